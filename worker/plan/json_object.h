#ifndef FSDPCTL_WORKER_PLAN_JSON_OBJECT_H_
#define FSDPCTL_WORKER_PLAN_JSON_OBJECT_H_

// Reads an object's members by name, collects what is wrong with them, and finds those that nobody
// asked for. A member that is null counts as absent. One thread's; the object outlives the reader.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace fsdp {

class JsonObject {
 public:
  using Json = nlohmann::json;

  // `where` leads every message: "config.model".
  JsonObject(const Json& object, std::string where);

  // Without a fallback the member must be there.
  double Number(const char* name, std::optional<double> fallback = std::nullopt);
  std::int64_t Integer(const char* name, std::optional<std::int64_t> fallback = std::nullopt);
  bool Bool(const char* name, bool fallback);
  std::string Text(const char* name, const std::string& fallback);
  // Null when it is absent; an error when it is and `optional` is false.
  const Json* Member(const char* name, bool optional);
  void Ignore(const char* name) { taken_.insert(name); }
  // It is there, if only as null.
  [[nodiscard]] bool Names(const char* name) const;
  // "<where>: <text>".
  void Refuse(const std::string& text);

  // INVALID_ARGUMENT with everything that was wrong, and every member that was not asked for.
  absl::Status Finish();

 private:
  void Fail(std::string text) { problems_.push_back(std::move(text)); }

  const Json& object_;
  std::string where_;
  std::set<std::string> taken_;
  std::vector<std::string> problems_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PLAN_JSON_OBJECT_H_
