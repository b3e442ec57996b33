#ifndef FSDPCTL_CLIENT_FLAGS_H_
#define FSDPCTL_CLIENT_FLAGS_H_

// Command-line flags from a table: one declaration feeds parsing, --help and shell completion.
// Accepted: --name=value, --name value, --bool, --bool=false, -x value, -xvalue, and `--` which
// ends the flags. Thread-safe (no state).

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fsdp {

enum class FlagKind {
  kBool,
  kString,
  // A path; completion offers files.
  kFile,
  kInt,
  // "1.5s", "2m", "500ms", or seconds without a unit.
  kDuration,
  // One of `choices`, in any case.
  kChoice,
};

// Names that completion asks of the coordinator, or of the config file.
enum class LiveNames { kNone, kJobs, kWorkers, kQueues, kContexts };

struct FlagSpec {
  // Without dashes.
  std::string name;
  // 0: none.
  char short_name = 0;
  FlagKind kind = FlagKind::kBool;
  // In help: "FILE", "N".
  std::string value_name;
  std::string help;
  // Shown in help; what the getters return when the flag is absent.
  std::string default_value;
  std::vector<std::string> choices;
  // A choice that goes on behind "=", with the word for it in help: {"jsonpath", "TEMPLATE"}. Its
  // text is judged by `check_text`, whose message is all that the user gets to read.
  std::pair<std::string, std::string> text_choice;
  std::function<absl::Status(const std::string&)> check_text;
  // May be given several times.
  bool repeated = false;
  // Of kString: what its value names.
  LiveNames live = LiveNames::kNone;
  // Of kInt. A flag that goes on as an int says kMaxInt.
  std::int64_t min_value = 0;
  std::int64_t max_value = std::numeric_limits<std::int64_t>::max();

  static constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
};

// Checked values. Getters CHECK that the flag was declared with their kind.
class ParsedFlags {
 public:
  [[nodiscard]] bool Has(const std::string& name) const;
  [[nodiscard]] bool GetBool(const std::string& name) const;
  [[nodiscard]] std::string GetString(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> GetStrings(const std::string& name) const;
  [[nodiscard]] std::int64_t GetInt(const std::string& name) const;
  [[nodiscard]] absl::Duration GetDuration(const std::string& name) const;
  // What is no flag, in order.
  [[nodiscard]] const std::vector<std::string>& positional() const { return positional_; }
  // What came after `--`; absent without one.
  [[nodiscard]] const std::optional<std::vector<std::string>>& after_dashes() const {
    return after_dashes_;
  }

 private:
  friend absl::StatusOr<ParsedFlags> ParseFlags(const std::vector<FlagSpec>& specs,
                                                const std::vector<std::string>& arguments);
  [[nodiscard]] const FlagSpec& Spec(const std::string& name) const;

  std::map<std::string, FlagSpec> specs_;
  std::map<std::string, std::vector<std::string>> values_;
  std::vector<std::string> positional_;
  std::optional<std::vector<std::string>> after_dashes_;
};

// INVALID_ARGUMENT: an unknown flag (with what was probably meant), a missing or wrong value, a
// flag given twice that is not repeated.
absl::StatusOr<ParsedFlags> ParseFlags(const std::vector<FlagSpec>& specs,
                                       const std::vector<std::string>& arguments);

// INVALID_ARGUMENT: neither a Go-style duration nor a number of seconds, or negative.
absl::StatusOr<absl::Duration> ParseDurationText(const std::string& text);

// "  -o, --output table|wide   What it does (default table)" lines, aligned.
std::string FlagsHelp(const std::vector<FlagSpec>& specs);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_FLAGS_H_
