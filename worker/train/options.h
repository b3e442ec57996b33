#ifndef FSDPCTL_WORKER_TRAIN_OPTIONS_H_
#define FSDPCTL_WORKER_TRAIN_OPTIONS_H_

// The command line of fsdp-trainer: a command and its flags, "--name=value" or "--name value".

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp {

class CommandLine {
 public:
  // `switches` take no value.
  //   INVALID_ARGUMENT  a flag without its value, or a value for a switch
  static absl::StatusOr<CommandLine> Parse(const std::vector<std::string>& arguments,
                                           const std::set<std::string>& switches);

  [[nodiscard]] const std::vector<std::string>& positional() const { return positional_; }
  [[nodiscard]] bool Has(const std::string& flag) const { return flags_.count(flag) > 0; }
  // The last one given, or `otherwise`.
  [[nodiscard]] std::string Text(const std::string& flag, const std::string& otherwise) const;
  // All that were given, in order.
  [[nodiscard]] std::vector<std::string> Texts(const std::string& flag) const;
  //   INVALID_ARGUMENT  not an integer in min..max
  [[nodiscard]] absl::StatusOr<std::int64_t> Number(const std::string& flag, std::int64_t otherwise,
                                                    std::int64_t min, std::int64_t max) const;
  //   INVALID_ARGUMENT  another flag was given; names it and the known ones
  [[nodiscard]] absl::Status CheckKnown(const std::set<std::string>& known) const;

 private:
  std::vector<std::string> positional_;
  std::map<std::string, std::vector<std::string>> flags_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_OPTIONS_H_
