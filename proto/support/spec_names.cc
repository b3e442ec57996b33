#include "proto/support/spec_names.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fsdp/v1/job.pb.h"
#include "proto/support/suggest.h"

namespace fsdp::spec {
namespace {

constexpr std::string_view kUnspecified = "UNSPECIFIED";

void CollectNames(const google::protobuf::Descriptor& type,
                  std::map<std::string, std::string>* names) {
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& field = *type.field(i);
    if (field.name() != field.json_name()) names->emplace(field.name(), field.json_name());
    if (field.message_type() != nullptr && !field.is_map()) {
      CollectNames(*field.message_type(), names);
    }
  }
}

std::size_t PrefixLength(const google::protobuf::EnumDescriptor& type) {
  return type.value(0)->name().size() - kUnspecified.size();
}

std::string Normalised(std::string_view name) {
  std::string normalised;
  for (const char c : name) {
    if (c != '_' && c != '-')
      normalised.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
  }
  return normalised;
}

}  // namespace

std::vector<std::string> JsonNames(const google::protobuf::Descriptor& type) {
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(type.field_count()));
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->json_name());
  return names;
}

const google::protobuf::FieldDescriptor* FindByJsonName(const google::protobuf::Descriptor& type,
                                                        std::string_view name) {
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->json_name() == name) return type.field(i);
  }
  return nullptr;
}

std::string ShortEnumName(const google::protobuf::EnumDescriptor& type, int number) {
  const auto* value = type.FindValueByNumber(number);
  if (value == nullptr) return absl::StrCat(number);
  return absl::AsciiStrToLower(value->name().substr(PrefixLength(type)));
}

std::vector<std::string> ShortEnumNames(const google::protobuf::EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 1; i < type.value_count(); ++i) {
    names.push_back(ShortEnumName(type, type.value(i)->number()));
  }
  return names;
}

const google::protobuf::EnumValueDescriptor* FindEnumValue(
    const google::protobuf::EnumDescriptor& type, std::string_view name) {
  const std::string upper = absl::AsciiStrToUpper(std::string(name));
  const std::string prefix = type.value(0)->name().substr(0, PrefixLength(type));
  const auto* value = type.FindValueByName(upper.starts_with(prefix) ? upper : prefix + upper);
  return value == nullptr || value->number() == 0 ? nullptr : value;
}

std::string NearestName(std::string_view name, const std::vector<std::string>& names) {
  constexpr std::size_t kLongestName = 64;  // nothing longer is a slip of the finger
  if (name.empty() || name.size() > kLongestName) return "";
  const std::string wanted = Normalised(name);
  const std::size_t limit = std::max<std::size_t>(1, std::min<std::size_t>(3, wanted.size() / 3));
  std::size_t best = limit + 1;
  std::string nearest;
  for (const std::string& candidate : names) {
    const std::size_t distance = EditDistance(wanted, Normalised(candidate));
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string Shorten(std::string_view text, std::size_t max_bytes) {
  std::size_t end = std::min(text.size(), max_bytes);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  std::string shown;
  for (const char c : text.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppendFormat(&shown, "\\x%02x", byte);
    } else {
      shown.push_back(c);
    }
  }
  return end < text.size() ? shown + "..." : shown;
}

std::string WithJsonNames(const std::string& text) {
  static const auto* const names = [] {
    auto* collected = new std::map<std::string, std::string>;
    CollectNames(*v1::TrainingJob::descriptor(), collected);
    return collected;
  }();
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() &&
           (absl::ascii_isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) {
      ++end;
    }
    if (end == i) {
      result.push_back(text[i++]);
      continue;
    }
    const std::string word = text.substr(i, end - i);
    const auto found = names->find(word);
    result += found == names->end() ? word : found->second;
    i = end;
  }
  return result;
}

}  // namespace fsdp::spec
