#include "proto/support/spec_decode.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/spec_fields.h"
#include "proto/support/spec_names.h"
#include "proto/support/spec_number.h"
#include "proto/support/spec_path.h"

namespace fsdp::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Paths below `type` whose last name is `name`, "spec.optimizer.lr" for "lr".
void FindElsewhere(const Descriptor& type, std::string_view name, const std::string& prefix,
                   std::vector<std::string>* paths) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string path =
        prefix.empty() ? field.json_name() : absl::StrCat(prefix, ".", field.json_name());
    if (field.json_name() == name) paths->push_back(path);
    if (field.message_type() != nullptr && !field.is_repeated()) {
      FindElsewhere(*field.message_type(), name, path, paths);
    }
  }
}

// What an unknown key was probably meant to be: a near name of the same object, else the only place
// where that name exists.
std::string SuggestKey(const Descriptor& root, const Descriptor& type, const std::string& key) {
  std::string near = NearestName(key, JsonNames(type));
  if (!near.empty()) return near;
  std::vector<std::string> elsewhere;
  FindElsewhere(root, key, "", &elsewhere);
  return elsewhere.size() == 1 ? elsewhere.front() : "";
}

std::string KindWords(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_STRING:
      return "a string";
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return "a number";
    case FieldDescriptor::CPPTYPE_ENUM:
      return "a name";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "an object";
    default:
      return "a whole number";
  }
}

std::string_view NodeWords(const SpecNode& node) {
  switch (node.kind) {
    case SpecNode::Kind::kMap:
      return "an object";
    case SpecNode::Kind::kList:
      return "a list";
    case SpecNode::Kind::kNull:
      return "nothing";
    case SpecNode::Kind::kScalar:
      break;
  }
  return "a value";
}

// Would YAML read the plain scalar as something else than a string?
bool LooksTyped(const SpecNode& node) {
  if (node.quoted) return false;
  const std::string lower = absl::AsciiStrToLower(node.text);
  if (lower == "true" || lower == "false" || lower == "null") return true;
  const ParsedNumber<double> number = ParseDouble(node.text);
  const auto* error = std::get_if<NumberError>(&number);
  return error == nullptr || *error != NumberError::kSyntax;
}

class Decoder {
 public:
  Decoder(const Descriptor& root, SourceMap* source, std::vector<SpecIssue>* issues)
      : root_(root), source_(source), issues_(issues) {}

  void Object(const SpecNode& node, const FieldPath& path, Message* message) {
    if (node.kind == SpecNode::Kind::kNull) return;
    if (node.kind != SpecNode::Kind::kMap) {
      Report(node.place, path, ShownValue(node), "must be an object (key: value)");
      return;
    }
    std::set<std::string> seen;
    for (const Member& member : node.members) {
      const FieldDescriptor* field = FindByJsonName(*message->GetDescriptor(), member.key);
      if (field == nullptr) {
        ReportUnknown(*message->GetDescriptor(), member, path);
      } else if (!seen.insert(member.key).second) {
        Report(member.place, path.Child(*field), "", "is given twice; keep one");
      } else {
        const FieldPath child = path.Child(*field);
        source_->Add(child.shown, member.place);
        Field(member, *field, child, message);
      }
    }
  }

 private:
  void Field(const Member& member, const FieldDescriptor& field, const FieldPath& path,
             Message* message) {
    // An explicit null is the JSON form's "not set".
    if (member.value.kind == SpecNode::Kind::kNull && member.value.explicit_null) return;
    const auto* reflection = message->GetReflection();
    if (field.is_map()) {
      StringMap(member.value, member.place, field, path, message);
    } else if (field.is_repeated()) {
      List(member.value, member.place, field, path, message);
    } else if (field.message_type() != nullptr) {
      if (member.value.kind == SpecNode::Kind::kMap) reflection->MutableMessage(message, &field);
      if (member.value.kind != SpecNode::Kind::kNull) {
        SpecNode value = member.value;
        if (value.kind != SpecNode::Kind::kMap) value.place = member.place;
        Object(value, path, reflection->MutableMessage(message, &field));
      }
    } else {
      Scalar(member.value, member.place, field, path, message);
    }
  }

  void StringMap(const SpecNode& node, const SourceMap::Place& place, const FieldDescriptor& field,
                 const FieldPath& path, Message* message) {
    if (node.kind == SpecNode::Kind::kNull) return;
    if (node.kind != SpecNode::Kind::kMap) {
      Report(place, path, ShownValue(node), "must be an object (name: \"text\")");
      return;
    }
    const auto* reflection = message->GetReflection();
    const FieldDescriptor& key = *field.message_type()->map_key();
    const FieldDescriptor& value = *field.message_type()->map_value();
    std::set<std::string> seen;
    for (const Member& member : node.members) {
      const FieldPath entry_path = path.Entry(Shorten(member.key, 64));
      if (!seen.insert(member.key).second) {
        Report(member.place, entry_path, "", "is given twice; keep one");
        continue;
      }
      source_->Add(entry_path.shown, member.place);
      Message* entry = reflection->AddMessage(message, &field);
      entry->GetReflection()->SetString(entry, &key, member.key);
      if (!Scalar(member.value, member.place, value, entry_path, entry)) {
        reflection->RemoveLast(message, &field);
      }
    }
  }

  void List(const SpecNode& node, const SourceMap::Place& place, const FieldDescriptor& field,
            const FieldPath& path, Message* message) {
    if (node.kind == SpecNode::Kind::kNull) return;
    if (node.kind != SpecNode::Kind::kList) {
      Report(place, path, ShownValue(node), "must be a list ([...], or lines that start with -)");
      return;
    }
    const auto* reflection = message->GetReflection();
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const SpecNode& item = node.items[i];
      const FieldPath item_path = path.Item(static_cast<int>(i));
      source_->Add(item_path.shown, item.place);
      if (field.message_type() != nullptr) {
        Object(item, item_path, reflection->AddMessage(message, &field));
      } else {
        Scalar(item, item.place, field, item_path, message);
      }
    }
  }

  // Sets (or, in a list, appends) the value; false when it has a problem.
  bool Scalar(const SpecNode& node, const SourceMap::Place& place, const FieldDescriptor& field,
              const FieldPath& path, Message* message) {
    if (node.kind == SpecNode::Kind::kNull) {
      Report(place, path, "", "has no value; give one or remove the key",
             AllowedFor(field, path.rule));
      return false;
    }
    if (node.kind != SpecNode::Kind::kScalar) {
      Report(place, path, "",
             absl::StrCat("is ", std::string(NodeWords(node)), "; must be ", KindWords(field)),
             AllowedFor(field, path.rule));
      return false;
    }
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        return Bool(node, place, field, path, message);
      case FieldDescriptor::CPPTYPE_STRING:
        return String(node, place, field, path, message);
      case FieldDescriptor::CPPTYPE_ENUM:
        return Enum(node, place, field, path, message);
      default:
        return Number(node, place, field, path, message);
    }
  }

  bool Bool(const SpecNode& node, const SourceMap::Place& place, const FieldDescriptor& field,
            const FieldPath& path, Message* message) {
    const bool is_true = !node.quoted && node.text == "true";
    if (is_true || (!node.quoted && node.text == "false")) {
      message->GetReflection()->SetBool(message, &field, is_true);
      return true;
    }
    const std::string lower = absl::AsciiStrToLower(node.text);
    std::string meant;
    if (lower == "true" || lower == "yes" || lower == "on" || lower == "1") meant = "true";
    if (lower == "false" || lower == "no" || lower == "off" || lower == "0") meant = "false";
    Report(place, path, ShownValue(node), "must be true or false", "true, false", meant);
    return false;
  }

  bool String(const SpecNode& node, const SourceMap::Place& place, const FieldDescriptor& field,
              const FieldPath& path, Message* message) {
    if (LooksTyped(node) && !RuleOf(path.rule).any_scalar) {
      Report(place, path, ShownValue(node), "must be a string; put it in quotes", "",
             absl::StrCat("\"", node.text, "\""));
      return false;
    }
    const auto* reflection = message->GetReflection();
    if (field.is_repeated()) {
      reflection->AddString(message, &field, node.text);
    } else {
      reflection->SetString(message, &field, node.text);
    }
    return true;
  }

  bool Enum(const SpecNode& node, const SourceMap::Place& place, const FieldDescriptor& field,
            const FieldPath& path, Message* message) {
    const auto* value = FindEnumValue(*field.enum_type(), node.text);
    if (value == nullptr) {
      const auto names = AllowedNames(*field.enum_type(), path.rule);
      Report(place, path, ShownValue(node), "is not a known name", absl::StrJoin(names, ", "),
             NearestName(node.text, names));
      return false;
    }
    const auto* reflection = message->GetReflection();
    if (field.is_repeated()) {
      reflection->AddEnum(message, &field, value);
    } else {
      reflection->SetEnum(message, &field, value);
    }
    return true;
  }

  bool Number(const SpecNode& node, const SourceMap::Place& place, const FieldDescriptor& field,
              const FieldPath& path, Message* message) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return Narrow(node, place, field, path, message);
      case FieldDescriptor::CPPTYPE_INT64:
        return Store(ParseInt64(node.text), node, place, field, path, [&](std::int64_t value) {
          message->GetReflection()->SetInt64(message, &field, value);
        });
      case FieldDescriptor::CPPTYPE_UINT64:
        return Store(ParseUint64(node.text), node, place, field, path, [&](std::uint64_t value) {
          message->GetReflection()->SetUInt64(message, &field, value);
        });
      default:
        return Store(ParseDouble(node.text), node, place, field, path, [&](double value) {
          message->GetReflection()->SetDouble(message, &field, value);
        });
    }
  }

  bool Narrow(const SpecNode& node, const SourceMap::Place& place, const FieldDescriptor& field,
              const FieldPath& path, Message* message) {
    ParsedNumber<std::int64_t> parsed = ParseInt64(node.text);
    const auto* wide = std::get_if<std::int64_t>(&parsed);
    if (wide != nullptr && (*wide < std::numeric_limits<std::int32_t>::min() ||
                            *wide > std::numeric_limits<std::int32_t>::max())) {
      parsed = NumberError::kRange;
    }
    return Store(parsed, node, place, field, path, [&](std::int64_t value) {
      const auto narrow = static_cast<std::int32_t>(value);
      const auto* reflection = message->GetReflection();
      if (field.is_repeated()) {
        reflection->AddInt32(message, &field, narrow);
      } else {
        reflection->SetInt32(message, &field, narrow);
      }
    });
  }

  template <typename T, typename Setter>
  bool Store(const ParsedNumber<T>& parsed, const SpecNode& node, const SourceMap::Place& place,
             const FieldDescriptor& field, const FieldPath& path, Setter set) {
    if (const T* value = std::get_if<T>(&parsed)) {
      set(*value);
      return true;
    }
    std::string message = absl::StrCat("must be ", KindWords(field));
    switch (std::get<NumberError>(parsed)) {
      case NumberError::kRange:
        message = "is out of range";
        break;
      case NumberError::kNonFinite:
        message = "must be finite";
        break;
      case NumberError::kFraction:
      case NumberError::kSyntax:
        break;
    }
    Report(place, path, ShownValue(node), message, AllowedFor(field, path.rule));
    return false;
  }

  static std::string AllowedFor(const FieldDescriptor& field, const std::string& rule_path) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      return absl::StrJoin(AllowedNames(*field.enum_type(), rule_path), ", ");
    }
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return "true, false";
    std::string range = RangeWords(RuleOf(rule_path));
    if (!range.empty()) return range;
    return field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64 ? "0..18446744073709551615" : "";
  }

  static std::string ShownValue(const SpecNode& node) {
    if (node.kind != SpecNode::Kind::kScalar) return "";
    return node.quoted ? absl::StrCat("\"", Shorten(node.text), "\"") : Shorten(node.text);
  }

  void ReportUnknown(const Descriptor& type, const Member& member, const FieldPath& path) {
    const std::string key = Shorten(member.key, 64);
    const FieldPath child = {path.shown.empty() ? key : absl::StrCat(path.shown, ".", key), ""};
    Report(member.place, child, "", "");
    DescribeUnknownKey(root_, type, member.key, &issues_->back());
  }

  void Report(const SourceMap::Place& place, const FieldPath& path, std::string value,
              std::string message, std::string allowed = "", std::string suggestion = "") {
    SpecIssue issue;
    issue.line = place.line;
    issue.column = place.column;
    issue.set_text = place.set_text;
    issue.field = path.shown;
    issue.value = std::move(value);
    issue.message = std::move(message);
    issue.allowed = std::move(allowed);
    issue.suggestion = std::move(suggestion);
    issues_->push_back(std::move(issue));
  }

  const Descriptor& root_;
  SourceMap* source_;
  std::vector<SpecIssue>* issues_;
};

}  // namespace

void DescribeUnknownKey(const Descriptor& root, const Descriptor& type, const std::string& key,
                        SpecIssue* issue) {
  issue->message = kUnknownKey;
  issue->suggestion = SuggestKey(root, type, key);
  if (issue->suggestion.empty()) issue->allowed = absl::StrJoin(JsonNames(type), ", ");
}

void DecodeJob(const SpecNode& root, v1::TrainingJob* job, SourceMap* source,
               std::vector<SpecIssue>* issues) {
  DecodeDocument(root, "", job, source, issues);
}

void DecodeDocument(const SpecNode& root, const std::string& rule_root, Message* message,
                    SourceMap* source, std::vector<SpecIssue>* issues) {
  Decoder(*message->GetDescriptor(), source, issues).Object(root, {"", rule_root}, message);
}

}  // namespace fsdp::spec
