#ifndef FSDPCTL_WORKER_TRAIN_TOOL_FLAGS_H_
#define FSDPCTL_WORKER_TRAIN_TOOL_FLAGS_H_

// The small command lines of fsdp-trainer and fsdp-tokenize: --name value, --name=value, --switch,
// and positional arguments. Everything that was not declared is an error.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp {

class ToolFlags {
 public:
  // `valued` flags take a value, `switches` none.
  //   INVALID_ARGUMENT  an unknown flag, a value that is missing, or a value for a switch
  static absl::StatusOr<ToolFlags> Parse(std::span<const std::string> arguments,
                                         const std::vector<std::string>& valued,
                                         const std::vector<std::string>& switches);

  [[nodiscard]] bool Has(const std::string& name) const { return values_.contains(name); }
  // The last one given, or `fallback`.
  [[nodiscard]] std::string Text(const std::string& name, const std::string& fallback) const;
  // All that were given, in order.
  [[nodiscard]] std::vector<std::string> Texts(const std::string& name) const;
  //   INVALID_ARGUMENT  not a whole number in [least, most]; names flag, value and range
  [[nodiscard]] absl::StatusOr<std::int64_t> Integer(const std::string& name, std::int64_t fallback,
                                                     std::int64_t least, std::int64_t most) const;
  //   INVALID_ARGUMENT  none of `choices`
  [[nodiscard]] absl::StatusOr<std::string> Choice(const std::string& name,
                                                   const std::string& fallback,
                                                   const std::vector<std::string>& choices) const;
  [[nodiscard]] const std::vector<std::string>& positional() const { return positional_; }

 private:
  std::map<std::string, std::vector<std::string>> values_;
  std::vector<std::string> positional_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TOOL_FLAGS_H_
