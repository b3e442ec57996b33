#include "client/render/encode.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "fsdp/v1/job.pb.h"
#include "proto/support/log.h"
#include "proto/support/spec.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

Json Parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  FSDP_CHECK(!json.is_discarded(), "not JSON: ", text.substr(0, 80));
  return json;
}

// Whole numbers up to 2^53 survive every JSON reader; larger ones are strings, as in the proto's
// form.
template <typename Integer>
Json WholeNumber(Integer value) {
  constexpr std::int64_t kLargestExact = std::int64_t{1} << 53;
  const bool exact =
      std::cmp_less_equal(value, kLargestExact) && std::cmp_greater_equal(value, -kLargestExact);
  if (exact) return value;
  return std::to_string(value);
}

// JSON has no word for them; these are the proto form's.
Json Real(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

// "2026-01-02T03:04:05Z" and the like: the library knows them.
Json WellKnown(const Message& message) {
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text);
  if (!status.ok()) {
    LOG_WARNING("%s cannot be printed as JSON: %s", message.GetTypeName(), status.ToString());
    return nullptr;
  }
  return Parse(text);
}

Json ObjectOf(const Message& message);

// Item `index` of a list, or the field itself when it is -1.
Json ValueOf(const Message& message, const FieldDescriptor& field, int index) {
  const auto& r = *message.GetReflection();
  const bool in_list = index >= 0;
  const auto get = [&](auto single, auto repeated) {
    return in_list ? (r.*repeated)(message, &field, index) : (r.*single)(message, &field);
  };
  using R = google::protobuf::Reflection;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&R::GetBool, &R::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_INT32:
      return WholeNumber(get(&R::GetInt32, &R::GetRepeatedInt32));
    case FieldDescriptor::CPPTYPE_UINT32:
      return WholeNumber(get(&R::GetUInt32, &R::GetRepeatedUInt32));
    case FieldDescriptor::CPPTYPE_INT64:
      return WholeNumber(get(&R::GetInt64, &R::GetRepeatedInt64));
    case FieldDescriptor::CPPTYPE_UINT64:
      return WholeNumber(get(&R::GetUInt64, &R::GetRepeatedUInt64));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Real(get(&R::GetFloat, &R::GetRepeatedFloat));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Real(get(&R::GetDouble, &R::GetRepeatedDouble));
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumText(*field.enum_type(), get(&R::GetEnumValue, &R::GetRepeatedEnumValue));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ObjectOf(in_list ? r.GetRepeatedMessage(message, &field, index)
                              : r.GetMessage(message, &field));
    case FieldDescriptor::CPPTYPE_STRING:
      break;
  }
  const std::string text = get(&R::GetString, &R::GetRepeatedString);
  return field.type() == FieldDescriptor::TYPE_BYTES ? absl::Base64Escape(text) : text;
}

// Zero is a value of a number and a bool, not of a name, a text or a message.
bool IsPrinted(const Message& message, const FieldDescriptor& field) {
  if (field.is_repeated()) return message.GetReflection()->FieldSize(message, &field) > 0;
  if (message.GetReflection()->HasField(message, &field)) return true;
  return !field.has_presence() && field.cpp_type() != FieldDescriptor::CPPTYPE_STRING &&
         field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM;
}

Json MapOf(const Message& message, const FieldDescriptor& field) {
  const auto& r = *message.GetReflection();
  std::map<std::string, Json> sorted;
  for (int i = 0; i < r.FieldSize(message, &field); ++i) {
    const Message& entry = r.GetRepeatedMessage(message, &field, i);
    const Json key = ValueOf(entry, *field.message_type()->map_key(), -1);
    sorted[key.is_string() ? key.get<std::string>() : key.dump()] =
        ValueOf(entry, *field.message_type()->map_value(), -1);
  }
  Json object = Json::object();
  for (auto& [key, value] : sorted) object[key] = std::move(value);
  return object;
}

Json ObjectOf(const Message& message) {
  const auto& type = *message.GetDescriptor();
  if (type.well_known_type() != google::protobuf::Descriptor::WELLKNOWNTYPE_UNSPECIFIED) {
    return WellKnown(message);
  }
  // A spec as its user would write it: there, what is not given is not zero.
  if (const auto* job = google::protobuf::DynamicCastToGenerated<v1::TrainingJob>(&message)) {
    return Parse(JobToJson(*job));
  }
  Json object = Json::object();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!IsPrinted(message, field)) continue;
    Json& value = object[field.json_name()];
    if (field.is_map()) {
      value = MapOf(message, field);
    } else if (field.is_repeated()) {
      const int size = message.GetReflection()->FieldSize(message, &field);
      for (int item = 0; item < size; ++item) value.push_back(ValueOf(message, field, item));
    } else {
      value = ValueOf(message, field, -1);
    }
  }
  return object;
}

// Text of a foreign server that is not UTF-8 must not end the program.
std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json ListOf(const std::string& key, const std::vector<const Message*>& messages) {
  Json list = Json::array();
  for (const auto* message : messages) list.push_back(ObjectOf(*message));
  Json root = Json::object();
  root[key] = std::move(list);
  return root;
}

// Plain only where no YAML reader can take it for something else.
bool IsPlain(const std::string& text) {
  static const char* const kReserved[] = {"true", "false", "null", "yes", "no",  "on",
                                          "off",  "y",     "n",    "~",   "nan", "inf"};
  if (text.empty() || std::isalpha(static_cast<unsigned char>(text[0])) == 0) return false;
  const std::string lower = absl::AsciiStrToLower(text);
  for (const char* word : kReserved) {
    if (lower == word) return false;
  }
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) == 0 && c != '_' && c != '-' && c != '.' && c != '/' && c != '+') {
      return false;
    }
  }
  return true;
}

// JSON's escapes are a subset of YAML's double-quoted style.
std::string Quoted(const std::string& text) { return Dump(Json(text), -1); }

std::string ScalarText(const Json& value) {
  if (!value.is_string()) return Dump(value, -1);
  const auto& text = value.get_ref<const std::string&>();
  return IsPlain(text) ? text : Quoted(text);
}

void Emit(const Json& value, int indent, std::string* out);

void EmitObject(const Json& object, int indent, bool first_inline, std::string* out) {
  for (const auto& [key, value] : object.items()) {
    if (!first_inline) out->append(static_cast<std::size_t>(indent), ' ');
    first_inline = false;
    absl::StrAppend(out, IsPlain(key) ? key : Quoted(key), ":");
    Emit(value, indent + 2, out);
  }
}

// What follows "key:" or "-".
void Emit(const Json& value, int indent, std::string* out) {
  if (value.is_object() && !value.empty()) {
    out->append("\n");
    EmitObject(value, indent, false, out);
  } else if (value.is_array() && !value.empty()) {
    out->append("\n");
    for (const auto& element : value) {
      out->append(static_cast<std::size_t>(indent - 2), ' ');
      out->append("-");
      if (element.is_object() && !element.empty()) {
        out->append(" ");
        EmitObject(element, indent, true, out);
      } else {
        Emit(element, indent + 2, out);
      }
    }
  } else {
    absl::StrAppend(out, " ", ScalarText(value), "\n");
  }
}

std::string YamlOf(const Json& root) {
  std::string out;
  if (root.is_object() && !root.empty()) {
    EmitObject(root, 0, false, &out);
  } else {
    Emit(root, 2, &out);
    out.erase(0, 1);
  }
  return out;
}

}  // namespace

std::string ToJson(const Message& message) { return Dump(ObjectOf(message), 2) + "\n"; }

std::string ToJsonLine(const Message& message) { return Dump(ObjectOf(message), -1) + "\n"; }

std::string ToYaml(const Message& message) { return YamlOf(ObjectOf(message)); }

std::string ListToJson(const std::string& key, const std::vector<const Message*>& messages) {
  return Dump(ListOf(key, messages), 2) + "\n";
}

std::string ListToYaml(const std::string& key, const std::vector<const Message*>& messages) {
  return YamlOf(ListOf(key, messages));
}

std::string JsonToYaml(const std::string& json) { return YamlOf(Parse(json)); }

}  // namespace fsdp
