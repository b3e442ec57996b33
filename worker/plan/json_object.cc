#include "worker/plan/json_object.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fsdp {

JsonObject::JsonObject(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object()) Fail(absl::StrCat(where_, " is not an object"));
}

double JsonObject::Number(const char* name, std::optional<double> fallback) {
  const Json* value = Member(name, fallback.has_value());
  if (value == nullptr) return fallback.value_or(0);
  if (value->is_number()) return value->get<double>();
  Fail(absl::StrCat(where_, ".", name, " is not a number"));
  return 0;
}

std::int64_t JsonObject::Integer(const char* name, std::optional<std::int64_t> fallback) {
  const Json* value = Member(name, fallback.has_value());
  if (value == nullptr) return fallback.value_or(0);
  if (value->is_number_integer()) return value->get<std::int64_t>();
  Fail(absl::StrCat(where_, ".", name, " is not an integer"));
  return 0;
}

bool JsonObject::Bool(const char* name, bool fallback) {
  const Json* value = Member(name, true);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Fail(absl::StrCat(where_, ".", name, " is not true or false"));
  return fallback;
}

std::string JsonObject::Text(const char* name, const std::string& fallback) {
  const Json* value = Member(name, true);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->get<std::string>();
  Fail(absl::StrCat(where_, ".", name, " is not a string"));
  return fallback;
}

const JsonObject::Json* JsonObject::Member(const char* name, bool optional) {
  taken_.insert(name);
  if (object_.is_object()) {
    const auto found = object_.find(name);
    if (found != object_.end() && !found->is_null()) return &*found;
  }
  if (!optional) Fail(absl::StrCat(where_, ".", name, " is missing"));
  return nullptr;
}

bool JsonObject::Names(const char* name) const {
  return object_.is_object() && object_.contains(name);
}

void JsonObject::Refuse(const std::string& text) { Fail(absl::StrCat(where_, ": ", text)); }

absl::Status JsonObject::Finish() {
  if (object_.is_object()) {
    for (const auto& [name, value] : object_.items()) {
      if (!taken_.contains(name)) Fail(absl::StrCat(where_, ".", name, " is not understood"));
    }
  }
  if (problems_.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems_, "; "));
}

}  // namespace fsdp
