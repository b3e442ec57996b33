#ifndef FSDPCTL_CLIENT_RENDER_JSON_PATH_PARTS_H_
#define FSDPCTL_CLIENT_RENDER_JSON_PATH_PARTS_H_

// A parsed template; between json_path_parse.cc, which makes it, and json_path.cc, which uses it.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "client/render/json_path.h"

namespace fsdp {

using JsonSteps = std::vector<JsonPath::Step>;

// "@.b == 3": of each item.
struct JsonFilter {
  JsonSteps left;
  // Empty: `left` is there.
  std::string op;
  nlohmann::ordered_json right;
};

struct JsonPath::Step {
  enum class Kind { kField, kIndex, kSlice, kAll, kFilter };
  Kind kind = Kind::kField;
  // Of its first character, from 1.
  std::size_t position = 0;
  std::string name;
  // Of kIndex, and of kSlice with its `end`: [first:end].
  std::optional<std::ptrdiff_t> first;
  std::optional<std::ptrdiff_t> end;
  JsonFilter filter;
};

struct JsonPath::Part {
  enum class Kind { kText, kValues, kRange };
  Kind kind = Kind::kText;
  std::string text;
  // Of kValues several, of kRange one.
  std::vector<JsonSteps> paths;
  // Of kRange.
  std::vector<Part> inside;
};

absl::StatusOr<std::vector<JsonPath::Part>> ParseJsonPathParts(const std::string& text);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_RENDER_JSON_PATH_PARTS_H_
