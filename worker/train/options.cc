#include "worker/train/options.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace fsdp {

absl::StatusOr<CommandLine> CommandLine::Parse(const std::vector<std::string>& arguments,
                                               const std::set<std::string>& switches) {
  CommandLine line;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.rfind("--", 0) != 0) {
      line.positional_.push_back(argument);
      continue;
    }
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    const bool is_switch = switches.count(name) > 0;
    if (is_switch && equals != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " takes no value"));
    }
    if (is_switch) {
      line.flags_[name].emplace_back();
    } else if (equals != std::string::npos) {
      line.flags_[name].push_back(argument.substr(equals + 1));
    } else if (i + 1 < arguments.size()) {
      line.flags_[name].push_back(arguments[++i]);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
    }
  }
  return line;
}

std::string CommandLine::Text(const std::string& flag, const std::string& otherwise) const {
  const auto found = flags_.find(flag);
  return found == flags_.end() ? otherwise : found->second.back();
}

std::vector<std::string> CommandLine::Texts(const std::string& flag) const {
  const auto found = flags_.find(flag);
  return found == flags_.end() ? std::vector<std::string>() : found->second;
}

absl::StatusOr<std::int64_t> CommandLine::Number(const std::string& flag, std::int64_t otherwise,
                                                 std::int64_t min, std::int64_t max) const {
  if (!Has(flag)) return otherwise;
  std::int64_t value = 0;
  const std::string text = Text(flag, "");
  if (!absl::SimpleAtoi(text, &value) || value < min || value > max) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--%s is \"%s\"; give an integer in %d..%d", flag, text, min, max));
  }
  return value;
}

absl::Status CommandLine::CheckKnown(const std::set<std::string>& known) const {
  for (const auto& [flag, values] : flags_) {
    if (known.count(flag) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown flag --", flag, "; this command knows --", absl::StrJoin(known, ", --")));
  }
  return absl::OkStatus();
}

}  // namespace fsdp
