// Jobs as text: only what is set, in the order of the proto, enum values by their short names.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/support/spec.h"
#include "proto/support/spec_names.h"
#include "proto/support/spec_number.h"

namespace fsdp {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Json = nlohmann::ordered_json;

// Whole numbers up to 2^53 survive every JSON reader; larger ones travel as strings, as in the
// proto's JSON form.
constexpr std::int64_t kLargestExact = std::int64_t{1} << 53;

Json ToJson(const Message& message);

Json ItemToJson(const Message& message, const FieldDescriptor& field, int index) {
  const auto& r = *message.GetReflection();
  const bool in_list = index >= 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return r.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_INT32:
      return in_list ? r.GetRepeatedInt32(message, &field, index) : r.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64: {
      const std::int64_t value = r.GetInt64(message, &field);
      if (std::abs(value) > kLargestExact) return absl::StrCat(value);
      return value;
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const std::uint64_t value = r.GetUInt64(message, &field);
      if (value > static_cast<std::uint64_t>(kLargestExact)) return absl::StrCat(value);
      return value;
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return spec::ShortEnumName(*field.enum_type(),
                                 in_list ? r.GetRepeatedEnumValue(message, &field, index)
                                         : r.GetEnumValue(message, &field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(in_list ? r.GetRepeatedMessage(message, &field, index)
                            : r.GetMessage(message, &field));
    default:
      return in_list ? r.GetRepeatedString(message, &field, index) : r.GetString(message, &field);
  }
}

Json MapToJson(const Message& message, const FieldDescriptor& field) {
  const auto& r = *message.GetReflection();
  std::map<std::string, Json> sorted;
  for (int i = 0; i < r.FieldSize(message, &field); ++i) {
    const Message& entry = r.GetRepeatedMessage(message, &field, i);
    const std::string key =
        entry.GetReflection()->GetString(entry, field.message_type()->map_key());
    sorted[key] = ItemToJson(entry, *field.message_type()->map_value(), -1);
  }
  Json object = Json::object();
  for (auto& [key, value] : sorted) object[key] = std::move(value);
  return object;
}

Json ToJson(const Message& message) {
  const auto& r = *message.GetReflection();
  Json object = Json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (field.is_map()) {
      if (r.FieldSize(message, &field) > 0) object[field.json_name()] = MapToJson(message, field);
    } else if (field.is_repeated()) {
      for (int item = 0; item < r.FieldSize(message, &field); ++item) {
        object[field.json_name()].push_back(ItemToJson(message, field, item));
      }
    } else if (r.HasField(message, &field)) {
      object[field.json_name()] = ItemToJson(message, field, -1);
    }
  }
  return object;
}

// Plain where YAML cannot take it for anything but this string.
std::string YamlString(const std::string& text) {
  const auto is_plain = [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '/' || c == '.' || c == '-';
  };
  const bool plain =
      !text.empty() && std::all_of(text.begin(), text.end(), is_plain) &&
      (absl::ascii_isalpha(static_cast<unsigned char>(text.front())) || text.front() == '/');
  const std::string lower = absl::AsciiStrToLower(text);
  const bool is_word = lower == "true" || lower == "false" || lower == "null" || lower == "yes" ||
                       lower == "no" || lower == "on" || lower == "off" || lower == "y" ||
                       lower == "n" || lower == "nan" || lower == "inf" || lower == "infinity";
  return plain && !is_word ? text : Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string YamlScalar(const Json& value) {
  return value.is_string() ? YamlString(value.get<std::string>()) : value.dump();
}

void AppendYaml(const Json& value, int indent, std::string* out);

void AppendYamlMember(const std::string& key, const Json& value, int indent, std::string* out) {
  absl::StrAppend(out, YamlString(key), ":");
  if (value.is_object() && value.empty()) {
    absl::StrAppend(out, " {}\n");
  } else if (value.is_structured()) {
    absl::StrAppend(out, "\n");
    AppendYaml(value, indent + 2, out);
  } else {
    absl::StrAppend(out, " ", YamlScalar(value), "\n");
  }
}

// Lists of scalars in one line; objects in lists start behind their dash.
void AppendYaml(const Json& value, int indent, std::string* out) {
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      absl::StrAppend(out, margin);
      AppendYamlMember(key, member, indent, out);
    }
    return;
  }
  for (const Json& item : value) {
    if (!item.is_object()) {
      absl::StrAppend(out, margin, "- ", YamlScalar(item), "\n");
      continue;
    }
    bool first = true;
    for (const auto& [key, member] : item.items()) {
      absl::StrAppend(out, margin, first ? "- " : "  ");
      AppendYamlMember(key, member, indent + 2, out);
      first = false;
    }
    if (first) absl::StrAppend(out, margin, "- {}\n");
  }
}

}  // namespace

std::string JobToJson(const v1::TrainingJob& job) {
  return ToJson(job).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string JobToYaml(const v1::TrainingJob& job) {
  std::string text;
  AppendYaml(ToJson(job), 0, &text);
  return text;
}

}  // namespace fsdp
