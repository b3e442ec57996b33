// The JSON Schema of job specs, from the proto and the rule table.
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "proto/support/spec_descriptors.h"
#include "proto/support/spec_fields.h"
#include "proto/support/spec_names.h"
#include "proto/support/spec_number.h"
#include "proto/support/spec_path.h"
#include "worker/plan/model_config.h"

namespace fsdp::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using Json = nlohmann::ordered_json;

bool IsWhole(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT32 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64;
}

Json Number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e16) return static_cast<std::int64_t>(value);
  return value;
}

Json DefaultOf(const FieldDescriptor& field, const FieldRule& rule) {
  const std::string text(rule.default_value);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return text == "true";
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    return Number(std::get<double>(ParseDouble(text)));
  }
  if (IsWhole(field)) return std::get<std::int64_t>(ParseInt64(text));
  return text;
}

void AddRange(const FieldRule& rule, Json* schema) {
  if (std::isfinite(rule.min)) {
    (*schema)[rule.above_min ? "exclusiveMinimum" : "minimum"] = Number(rule.min);
  }
  if (std::isfinite(rule.max)) {
    (*schema)[rule.below_max ? "exclusiveMaximum" : "maximum"] = Number(rule.max);
  }
}

// The decimals that ParseInt64 and ParseDouble read; a fraction that is none, and the range, only
// the parser sees.
constexpr char kQuotedNumber[] = "^-?((0|[1-9][0-9]*)(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]+)?$";

// Numbers may be quoted, as the proto's JSON form does with those past 2^53. Bounds and pattern
// each speak of one of the two types.
Json NumberSchema(const char* type, const FieldRule& rule) {
  Json schema = {{"type", {type, "string"}}};
  AddRange(rule, &schema);
  schema["pattern"] = kQuotedNumber;
  return schema;
}

Json ObjectSchema(const Descriptor& type, const FieldPath& path);

// The value itself: of the field, or of a list's item or a map's entry.
Json ValueSchema(const FieldDescriptor& field, const FieldPath& path, const FieldRule& rule) {
  Json schema = Json::object();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      schema["type"] = "boolean";
      break;
    case FieldDescriptor::CPPTYPE_STRING: {
      schema["type"] = "string";
      if (path.rule == "spec.model.preset") {
        schema["enum"] = PresetNames();
        break;
      }
      if (rule.any_scalar) schema["type"] = {"string", "number", "boolean"};
      schema["maxLength"] = rule.max_size;
      const std::string pattern = FormPattern(rule);
      if (!pattern.empty()) schema["pattern"] = pattern;
      break;
    }
    case FieldDescriptor::CPPTYPE_ENUM:
      schema["enum"] = AllowedNames(*field.enum_type(), path.rule);
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberSchema("number", rule);
    case FieldDescriptor::CPPTYPE_UINT64:
      schema = NumberSchema("integer", rule);
      schema["minimum"] = 0;
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ObjectSchema(*field.message_type(), path);
    default:
      return NumberSchema("integer", rule);
  }
  return schema;
}

Json MapSchema(const FieldDescriptor& field, const FieldPath& path, const FieldRule& rule) {
  const FieldPath entry = {"", path.rule + "{}"};
  Json schema = Json::object();
  schema["type"] = "object";
  schema["maxProperties"] = rule.max_size;
  const std::string names =
      path.rule == "spec.env" ? std::string(EnvNamePattern()) : FormPattern(RuleOf(entry.rule));
  schema["propertyNames"] = {{"pattern", names}, {"minLength", 1}};
  schema["additionalProperties"] =
      ValueSchema(*field.message_type()->map_value(), entry, RuleOf(entry.rule));
  return schema;
}

Json FieldSchema(const FieldDescriptor& field, const FieldPath& path) {
  const FieldRule& rule = RuleOf(path.rule);
  Json schema;
  if (field.is_map()) {
    schema = MapSchema(field, path, rule);
  } else if (field.is_repeated()) {
    schema = {{"type", "array"}, {"maxItems", rule.max_size}};
    // Bounds of a list of numbers are its items'; texts have a rule of their own.
    const FieldPath item = {"", path.rule + "[]"};
    const bool texts = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    schema["items"] = ValueSchema(field, item, texts ? RuleOf(item.rule) : rule);
  } else {
    schema = ValueSchema(field, path, rule);
  }
  std::string description = CommentOf(field);
  if (!rule.not_in_release.empty()) {
    absl::StrAppend(&description, description.empty() ? "" : " ",
                    "Not in this release: ", std::string(rule.not_in_release), ".");
    // A written-out default changes nothing and is accepted.
    const bool has_default =
        !field.is_repeated() && field.message_type() == nullptr &&
        (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL || IsWhole(field) ||
         (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE && !rule.default_value.empty()));
    schema = Json::object();
    if (has_default && rule.default_value.empty()) schema["const"] = false;
    if (has_default && !rule.default_value.empty()) {
      const Json value = DefaultOf(field, rule);
      if (value.is_boolean()) schema["const"] = value;
      if (!value.is_boolean()) schema["enum"] = Json::array({value, value.dump()});
    }
    if (!has_default) schema["not"] = Json::object();
  } else if (!rule.default_value.empty()) {
    schema["default"] = DefaultOf(field, rule);
  }
  if (!description.empty()) schema["description"] = description;
  return schema;
}

Json ObjectSchema(const Descriptor& type, const FieldPath& path) {
  Json schema = Json::object();
  schema["type"] = "object";
  const std::string comment = CommentOf(type);
  if (!comment.empty()) schema["description"] = comment;
  schema["additionalProperties"] = false;
  Json required = Json::array();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const FieldPath child = path.Child(field);
    if (RuleOf(child.rule).required) required.push_back(field.json_name());
    schema["properties"][field.json_name()] = FieldSchema(field, child);
  }
  if (!required.empty()) schema["required"] = required;
  for (const Choice& choice : Choices()) {
    if (choice.path != path.rule) continue;
    for (const std::string_view name : choice.names) {
      if (!name.empty()) {
        schema[choice.exactly_one ? "oneOf" : "anyOf"].push_back(
            {{"required", {std::string(name)}}});
      }
    }
  }
  return schema;
}

}  // namespace

std::string JobSchema(const SpecDescriptors& descriptors) {
  Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                 {"title", "fsdp.v1 TrainingJob"}};
  schema.update(ObjectSchema(descriptors.job(), FieldPath{}));
  return schema.dump(2) + "\n";
}

}  // namespace fsdp::spec
