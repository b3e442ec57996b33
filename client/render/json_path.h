#ifndef FSDPCTL_CLIENT_RENDER_JSON_PATH_H_
#define FSDPCTL_CLIENT_RENDER_JSON_PATH_H_

// -o jsonpath=TEMPLATE: pieces of the JSON that -o json prints, for scripts. A strict subset of
// what kubectl takes, with the same results:
//
//   text            as it is, outside of braces
//   {.a.b}          a field; {$.a.b} and {@.a.b} are the same; {['a']} for a name with other
//                   characters
//   {.a[0]} {.a[-1]} {.a[1:3]} {.a[*]}   items of a list; .* all fields of an object
//   {.a[?(@.b=="x")].c}   items of which that holds: == != < <= > >=, or only @.b: it is there
//   {range .a[*]}...{end}   the inside once for each item, . being the item
//   {"\n"} {'\t'}   text with escapes
//   {.a} {.b, .c}   several values are separated by blanks
//
// A string is printed bare, an object or list as JSON on one line, a value that is absent as
// nothing. Thread-safe (immutable).

#include <google/protobuf/descriptor.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp {

class JsonPath {
 public:
  // One step of a path: ".a", "[0]".
  struct Step;
  // Text, a value or a range.
  struct Part;

  // INVALID_ARGUMENT: "at 7: ...", the character counted from 1.
  static absl::StatusOr<JsonPath> Parse(const std::string& text);

  // Whether every field that is named can be there: in `item`, or with a list key in
  // {KEY: [item...]}. INVALID_ARGUMENT says where, and what was probably meant.
  [[nodiscard]] absl::Status Check(const google::protobuf::Descriptor& item,
                                   const std::string& list_key) const;

  // Ends with a newline.
  [[nodiscard]] std::string Render(const nlohmann::ordered_json& root) const;

 private:
  std::shared_ptr<const std::vector<Part>> parts_;
};

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_RENDER_JSON_PATH_H_
