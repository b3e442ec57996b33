#include "proto/support/strict_json.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace fsdp {

absl::StatusOr<nlohmann::json> ParseStrictJson(std::string_view text, int max_depth) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> keys;
  std::string problem;
  const auto callback = [&](int depth, Event event, nlohmann::json& value) {
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get<std::string>()).second &&
        problem.empty()) {
      problem = absl::StrCat("key \"", value.get<std::string>(), "\" appears twice");
    }
    if (depth >= max_depth && (event == Event::object_start || event == Event::array_start) &&
        problem.empty()) {
      problem = absl::StrCat("nested deeper than ", max_depth);
    }
    // Dropping values after the first problem bounds the memory that garbage can take.
    return problem.empty();
  };
  nlohmann::json json =
      nlohmann::json::parse(text.begin(), text.end(), callback, /*allow_exceptions=*/false);
  if (!problem.empty()) return absl::DataLossError(problem);
  if (json.is_discarded()) return absl::DataLossError("it is not well-formed JSON");
  return json;
}

}  // namespace fsdp
