#include "worker/train/tool_flags.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/suggest.h"

namespace fsdp {
namespace {

bool Contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

absl::StatusOr<ToolFlags> ToolFlags::Parse(std::span<const std::string> arguments,
                                           const std::vector<std::string>& valued,
                                           const std::vector<std::string>& switches) {
  ToolFlags flags;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.rfind("--", 0) != 0) {
      flags.positional_.push_back(argument);
      continue;
    }
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (Contains(switches, name)) {
      if (equals != std::string::npos) {
        return absl::InvalidArgumentError(absl::StrCat("--", name, " takes no value"));
      }
      flags.values_[name].emplace_back();
    } else if (Contains(valued, name) && equals != std::string::npos) {
      flags.values_[name].push_back(argument.substr(equals + 1));
    } else if (Contains(valued, name) && i + 1 < arguments.size()) {
      flags.values_[name].push_back(arguments[++i]);
    } else if (Contains(valued, name)) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
    } else {
      std::vector<std::string> known = valued;
      known.insert(known.end(), switches.begin(), switches.end());
      return absl::InvalidArgumentError(absl::StrCat("unknown flag --", name,
                                                     DidYouMean(name, known, "--"), "; known: --",
                                                     absl::StrJoin(known, " --")));
    }
  }
  return flags;
}

std::string ToolFlags::Text(const std::string& name, const std::string& fallback) const {
  const auto found = values_.find(name);
  return found == values_.end() ? fallback : found->second.back();
}

std::vector<std::string> ToolFlags::Texts(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

absl::StatusOr<std::int64_t> ToolFlags::Integer(const std::string& name, std::int64_t fallback,
                                                std::int64_t least, std::int64_t most) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return fallback;
  const std::string& text = found->second.back();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (whole && value >= least && value <= most) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, " ", text, " is not a whole number in ", least, "..", most));
}

absl::StatusOr<std::string> ToolFlags::Choice(const std::string& name, const std::string& fallback,
                                              const std::vector<std::string>& choices) const {
  const std::string value = Text(name, fallback);
  if (Contains(choices, value)) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, " ", value, " is none of ", absl::StrJoin(choices, ", ")));
}

}  // namespace fsdp
