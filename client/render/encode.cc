#include "client/render/encode.h"

#include <google/protobuf/util/json_util.h>

#include <cctype>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/support/log.h"

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

std::string Print(const google::protobuf::Message& message) {
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text);
  // Fails only for messages that are not well formed (bad UTF-8 from a foreign server).
  if (!status.ok()) {
    LOG_WARNING("%s cannot be printed as JSON: %s", message.GetTypeName(), status.ToString());
    return "{}";
  }
  return text;
}

Json Parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  FSDP_CHECK(!json.is_discarded(), "not JSON: ", text.substr(0, 80));
  return json;
}

Json ListOf(const std::string& key, const std::vector<const google::protobuf::Message*>& messages) {
  Json list = Json::array();
  for (const auto* message : messages) list.push_back(Parse(Print(*message)));
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
std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string ScalarText(const Json& value) {
  if (!value.is_string()) return value.dump();
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

std::string ToJson(const google::protobuf::Message& message) {
  return Parse(Print(message)).dump(2) + "\n";
}

std::string ToJsonLine(const google::protobuf::Message& message) { return Print(message) + "\n"; }

std::string ToYaml(const google::protobuf::Message& message) {
  return YamlOf(Parse(Print(message)));
}

std::string ListToJson(const std::string& key,
                       const std::vector<const google::protobuf::Message*>& messages) {
  return ListOf(key, messages).dump(2) + "\n";
}

std::string ListToYaml(const std::string& key,
                       const std::vector<const google::protobuf::Message*>& messages) {
  return YamlOf(ListOf(key, messages));
}

std::string JsonToYaml(const std::string& json) { return YamlOf(Parse(json)); }

}  // namespace fsdp
