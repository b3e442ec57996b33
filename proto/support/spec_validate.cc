#include "proto/support/spec_validate.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/support/spec_fields.h"
#include "proto/support/spec_names.h"
#include "proto/support/spec_path.h"

namespace fsdp::spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string NotInRelease(std::string_view instead) {
  return absl::StrCat("not in this release; ", std::string(instead));
}

std::string Quoted(const std::string& text) { return absl::StrCat("\"", Shorten(text), "\""); }

// Is `path` at or below `field`?
bool IsUnder(std::string_view path, std::string_view field) {
  if (!path.starts_with(field)) return false;
  return path.size() == field.size() || field.empty() || path[field.size()] == '.' ||
         path[field.size()] == '[';
}

class FieldChecker {
 public:
  explicit FieldChecker(Findings* findings) : findings_(findings) {}

  void Check(const Message& message, const FieldPath& path) {
    const Reflection& reflection = *message.GetReflection();
    // A newer client's fields: honouring a part of a spec silently would be worse than refusing it.
    const auto& unknown = reflection.GetUnknownFields(message);
    for (int i = 0; i < unknown.field_count(); ++i) {
      findings_->Error(path.shown, absl::StrCat("field number ", unknown.field(i).number(),
                                                " is not known to this release; submit with a "
                                                "client of the coordinator's version"));
    }
    const auto& type = *message.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      const FieldPath child = path.Child(field);
      const FieldRule& rule = RuleOf(child.rule);
      const bool is_set = field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                                              : reflection.HasField(message, &field);
      if (is_set) {
        CheckSet(message, field, child, rule);
      } else if (rule.required) {
        findings_->Error(child.shown, "is required", {.allowed = AllowedFor(field, rule)});
      }
    }
  }

 private:
  void CheckSet(const Message& message, const FieldDescriptor& field, const FieldPath& path,
                const FieldRule& rule) {
    if (!rule.not_in_release.empty() && !IsDefault(message, field, rule)) {
      findings_->Error(path.shown, NotInRelease(rule.not_in_release));
      return;
    }
    if (field.is_map()) {
      CheckMap(message, field, path, rule);
    } else if (field.is_repeated()) {
      CheckList(message, field, path, rule);
    } else {
      CheckOne(message, field, -1, path, rule);
    }
  }

  // Written out, a default is accepted also where nothing else is.
  static bool IsDefault(const Message& message, const FieldDescriptor& field,
                        const FieldRule& rule) {
    if (field.is_repeated() || field.message_type() != nullptr) return false;
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection.GetBool(message, &field) == (rule.default_value == "true");
      case FieldDescriptor::CPPTYPE_INT32:
        return absl::StrCat(reflection.GetInt32(message, &field)) == rule.default_value;
      case FieldDescriptor::CPPTYPE_INT64:
        return absl::StrCat(reflection.GetInt64(message, &field)) == rule.default_value;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return absl::StrCat(reflection.GetDouble(message, &field)) == rule.default_value;
      default:
        return false;
    }
  }

  void CheckMap(const Message& message, const FieldDescriptor& field, const FieldPath& path,
                const FieldRule& rule) {
    const Reflection& reflection = *message.GetReflection();
    const int size = reflection.FieldSize(message, &field);
    if (static_cast<std::size_t>(size) > rule.max_size) {
      findings_->Error(path.shown, absl::StrCat("has ", size, " entries"),
                       {.allowed = absl::StrCat("at most ", rule.max_size)});
      return;
    }
    for (int i = 0; i < size; ++i) {
      const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
      const std::string key =
          entry.GetReflection()->GetString(entry, field.message_type()->map_key());
      const FieldPath entry_path = path.Entry(Shorten(key, 64));
      CheckKey(key, entry_path, path.rule);
      CheckOne(entry, *field.message_type()->map_value(), -1, entry_path, RuleOf(entry_path.rule));
    }
  }

  void CheckKey(const std::string& key, const FieldPath& path, const std::string& map_rule) {
    if (map_rule == "spec.env" && !IsEnvNameAllowed(key)) {
      findings_->Error(path.shown, "this name may not be set",
                       {.allowed = std::string(EnvNameWords())});
    }
    const FieldRule& rule = RuleOf(path.rule);
    if (map_rule == "metadata.labels" &&
        (key.empty() || key.size() > rule.max_size || !HasForm(rule, key))) {
      findings_->Error(path.shown, "this key is not of the right form",
                       {.value = "", .allowed = FormWords(rule), .suggestion = ""});
    }
  }

  void CheckList(const Message& message, const FieldDescriptor& field, const FieldPath& path,
                 const FieldRule& rule) {
    const int size = message.GetReflection()->FieldSize(message, &field);
    if (static_cast<std::size_t>(size) > rule.max_size) {
      findings_->Error(path.shown, absl::StrCat("has ", size, " entries"),
                       {.allowed = absl::StrCat("at most ", rule.max_size)});
      return;
    }
    // Bounds of a list of numbers are its items'; texts have a rule of their own.
    const bool texts = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    for (int i = 0; i < size; ++i) {
      const FieldPath item = path.Item(i);
      CheckOne(message, field, i, item, texts ? RuleOf(item.rule) : rule);
    }
  }

  // Item `index` of a list, or the field itself when it is -1.
  void CheckOne(const Message& message, const FieldDescriptor& field, int index,
                const FieldPath& path, const FieldRule& rule) {
    const Reflection& r = *message.GetReflection();
    const bool in_list = index >= 0;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        Check(
            in_list ? r.GetRepeatedMessage(message, &field, index) : r.GetMessage(message, &field),
            path);
        break;
      case FieldDescriptor::CPPTYPE_INT32: {
        const auto value =
            in_list ? r.GetRepeatedInt32(message, &field, index) : r.GetInt32(message, &field);
        CheckRange(value, absl::StrCat(value), path, rule);
        break;
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        const auto value = r.GetInt64(message, &field);
        CheckRange(static_cast<double>(value), absl::StrCat(value), path, rule);
        break;
      }
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        const double value = r.GetDouble(message, &field);
        CheckRange(value, absl::StrFormat("%.15g", value), path, rule);
        break;
      }
      case FieldDescriptor::CPPTYPE_ENUM:
        CheckEnum(field,
                  in_list ? r.GetRepeatedEnumValue(message, &field, index)
                          : r.GetEnumValue(message, &field),
                  path);
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        CheckString(
            in_list ? r.GetRepeatedString(message, &field, index) : r.GetString(message, &field),
            path, rule);
        break;
      default:
        break;
    }
  }

  void CheckRange(double value, const std::string& text, const FieldPath& path,
                  const FieldRule& rule) {
    if (!std::isfinite(value)) {
      findings_->Error(path.shown, "must be finite", {text, RangeWords(rule), ""});
      return;
    }
    const bool too_low = rule.above_min ? value <= rule.min : value < rule.min;
    const bool too_high = rule.below_max ? value >= rule.max : value > rule.max;
    if (too_low || too_high) {
      findings_->Error(path.shown, too_low ? "is too small" : "is too large",
                       {text, RangeWords(rule), ""});
    }
  }

  void CheckEnum(const FieldDescriptor& field, int number, const FieldPath& path) {
    const auto& type = *field.enum_type();
    const std::string name = ShortEnumName(type, number);
    if (type.FindValueByNumber(number) == nullptr || number == 0) {
      findings_->Error(path.shown, "is not a known name",
                       {name, absl::StrJoin(AllowedNames(type, path.rule), ", "), ""});
      return;
    }
    for (const ValueRule& rule : ValuesNotInRelease()) {
      if (rule.path == path.rule && rule.value == name) {
        findings_->Error(path.shown, NotInRelease(rule.instead), {name, "", ""});
      }
    }
  }

  void CheckString(const std::string& text, const FieldPath& path, const FieldRule& rule) {
    if (text.size() > rule.max_size) {
      findings_->Error(path.shown, absl::StrCat("has ", text.size(), " bytes"),
                       {Quoted(text), absl::StrCat("at most ", rule.max_size), ""});
    } else if (std::any_of(text.begin(), text.end(),
                           [](unsigned char c) { return c < 0x20 || c == 0x7F; })) {
      findings_->Error(path.shown, "holds a control character; remove it", {Quoted(text), "", ""});
    } else if (!HasForm(rule, text)) {
      const std::string suggestion =
          rule.form == TextForm::kConstant ? std::string(rule.constant) : "";
      findings_->Error(path.shown, "is not of the right form",
                       {Quoted(text), FormWords(rule), suggestion});
    }
  }

  static std::string AllowedFor(const FieldDescriptor& field, const FieldRule& rule) {
    if (field.enum_type() != nullptr)
      return absl::StrJoin(AllowedNames(*field.enum_type(), rule.path), ", ");
    std::string range = RangeWords(rule);
    return range.empty() ? FormWords(rule) : range;
  }

  Findings* findings_;
};

}  // namespace

bool Findings::HasErrorUnder(std::string_view field) const {
  return std::any_of(issues_.begin(), issues_.end(), [&](const SpecIssue& issue) {
    return issue.severity == SpecSeverity::kError && IsUnder(issue.field, field);
  });
}

void Findings::Add(std::string_view field, std::string message, Detail detail,
                   SpecSeverity severity) {
  SpecIssue issue;
  if (source_ != nullptr) {
    SourceMap::Place place = source_->Locate(field);
    issue.line = place.line;
    issue.column = place.column;
    issue.set_text = std::move(place.set_text);
  }
  issue.field = std::string(field);
  issue.value = std::move(detail.value);
  issue.message = std::move(message);
  issue.allowed = std::move(detail.allowed);
  issue.suggestion = std::move(detail.suggestion);
  issue.severity = severity;
  issues_.push_back(std::move(issue));
}

void CheckFields(const v1::TrainingJob& job, Findings* findings) {
  FieldChecker(findings).Check(job, FieldPath{});
}

void CheckDocument(const Message& message, const std::string& rule_root, Findings* findings) {
  FieldChecker(findings).Check(message, FieldPath{"", rule_root});
}

}  // namespace fsdp::spec
