#include "client/flags.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "proto/support/suggest.h"

namespace fsdp {
namespace {

bool TakesValue(const FlagSpec& spec) { return spec.kind != FlagKind::kBool; }

absl::Status BadValue(const FlagSpec& spec, const std::string& value, const std::string& want) {
  return absl::InvalidArgumentError(absl::StrCat("--", spec.name, "=", value, ": must be ", want));
}

absl::Status CheckInt(const FlagSpec& spec, const std::string& value) {
  std::int64_t number = 0;
  if (absl::SimpleAtoi(value, &number) && number >= spec.min_value) {
    if (number <= spec.max_value) return absl::OkStatus();
    return BadValue(spec, value, absl::StrCat("a whole number of at most ", spec.max_value));
  }
  return BadValue(spec, value, absl::StrCat("a whole number of at least ", spec.min_value));
}

// Whatever the case it is typed in, `value` becomes the choice.
absl::Status TakeChoice(const FlagSpec& spec, std::string& value) {
  const auto& [name, word] = spec.text_choice;
  if (!name.empty() && absl::StartsWith(value, absl::StrCat(name, "="))) {
    return spec.check_text(value.substr(name.size() + 1));
  }
  if (!name.empty() && value == name) {
    return BadValue(spec, value, absl::StrCat(name, "=", word));
  }
  for (const auto& choice : spec.choices) {
    if (!absl::EqualsIgnoreCase(choice, value)) continue;
    value = choice;
    return absl::OkStatus();
  }
  std::string hint = DidYouMean(absl::AsciiStrToUpper(value), spec.choices);
  if (hint.empty()) hint = DidYouMean(absl::AsciiStrToLower(value), spec.choices);
  return BadValue(spec, value, absl::StrCat("one of ", absl::StrJoin(spec.choices, ", "), hint));
}

absl::Status CheckValue(const FlagSpec& spec, std::string& value) {
  switch (spec.kind) {
    case FlagKind::kBool:
      if (value == "true" || value == "false") return absl::OkStatus();
      return BadValue(spec, value, "true or false");
    case FlagKind::kInt:
      return CheckInt(spec, value);
    case FlagKind::kChoice:
      return TakeChoice(spec, value);
    case FlagKind::kDuration:
      if (ParseDurationText(value).ok()) return absl::OkStatus();
      return BadValue(spec, value, "a duration such as 30s, 2m or 1h");
    case FlagKind::kString:
    case FlagKind::kFile:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

// One argument taken apart: which flag, and its value when it is part of the same argument.
struct FlagArgument {
  const FlagSpec* spec = nullptr;
  std::optional<std::string> value;
};

absl::StatusOr<FlagArgument> FindLong(const std::vector<FlagSpec>& specs,
                                      const std::string& argument) {
  const std::size_t equals = argument.find('=');
  const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
  FlagArgument found;
  if (equals != std::string::npos) found.value = argument.substr(equals + 1);
  std::vector<std::string> names;
  for (const auto& spec : specs) {
    if (spec.name == name) found.spec = &spec;
    names.push_back(spec.name);
  }
  if (found.spec != nullptr) return found;
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag --", name, DidYouMean(name, names, "--")));
}

absl::StatusOr<FlagArgument> FindShort(const std::vector<FlagSpec>& specs,
                                       const std::string& argument) {
  for (const auto& spec : specs) {
    if (spec.short_name == 0 || spec.short_name != argument[1]) continue;
    FlagArgument found{&spec, std::nullopt};
    if (argument.size() == 2) return found;
    std::string rest = argument.substr(2);
    if (rest[0] == '=') rest.erase(0, 1);
    if (!TakesValue(spec)) break;
    found.value = rest;
    return found;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown flag ", argument));
}

std::string ValueText(const FlagSpec& spec) {
  if (spec.kind == FlagKind::kBool) return "";
  if (spec.kind == FlagKind::kChoice) {
    const auto& [name, word] = spec.text_choice;
    return absl::StrCat(" ", absl::StrJoin(spec.choices, "|"),
                        name.empty() ? "" : absl::StrCat("|", name, "=", word));
  }
  return absl::StrCat(" ", spec.value_name.empty() ? "VALUE" : spec.value_name);
}

}  // namespace

bool ParsedFlags::Has(const std::string& name) const { return values_.count(name) > 0; }

const FlagSpec& ParsedFlags::Spec(const std::string& name) const {
  const auto found = specs_.find(name);
  FSDP_CHECK(found != specs_.end(), "flag --", name, " is not declared");
  return found->second;
}

bool ParsedFlags::GetBool(const std::string& name) const { return GetString(name) == "true"; }

std::string ParsedFlags::GetString(const std::string& name) const {
  const FlagSpec& spec = Spec(name);
  const auto found = values_.find(name);
  return found == values_.end() ? spec.default_value : found->second.back();
}

std::vector<std::string> ParsedFlags::GetStrings(const std::string& name) const {
  FSDP_CHECK(specs_.count(name) > 0, "flag --", name, " is not declared");
  const auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>{} : found->second;
}

std::int64_t ParsedFlags::GetInt(const std::string& name) const {
  std::int64_t number = 0;
  const std::string text = GetString(name);
  FSDP_CHECK(text.empty() || absl::SimpleAtoi(text, &number), "--", name, "=", text);
  return number;
}

absl::Duration ParsedFlags::GetDuration(const std::string& name) const {
  const auto duration = ParseDurationText(GetString(name));
  FSDP_CHECK(duration.ok(), "--", name, ": ", duration.status().ToString());
  return *duration;
}

absl::StatusOr<ParsedFlags> ParseFlags(const std::vector<FlagSpec>& specs,
                                       const std::vector<std::string>& arguments) {
  ParsedFlags parsed;
  for (const auto& spec : specs) parsed.specs_.emplace(spec.name, spec);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      parsed.after_dashes_.emplace(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                   arguments.end());
      break;
    }
    // A lone dash is standard input.
    if (argument.size() < 2 || argument[0] != '-') {
      parsed.positional_.push_back(argument);
      continue;
    }
    ASSIGN_OR_RETURN(const FlagArgument flag,
                     argument[1] == '-' ? FindLong(specs, argument) : FindShort(specs, argument));
    std::string value = "true";
    if (flag.value.has_value()) {
      value = *flag.value;
    } else if (TakesValue(*flag.spec)) {
      if (i + 1 >= arguments.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", flag.spec->name, " needs a value:", ValueText(*flag.spec)));
      }
      value = arguments[++i];
    }
    RETURN_IF_ERROR(CheckValue(*flag.spec, value));
    auto& values = parsed.values_[flag.spec->name];
    if (!values.empty() && !flag.spec->repeated) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag.spec->name, " is given twice"));
    }
    values.push_back(value);
  }
  return parsed;
}

absl::StatusOr<absl::Duration> ParseDurationText(const std::string& text) {
  absl::Duration duration;
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds) && std::isfinite(seconds)) {
    duration = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &duration)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a duration such as 30s, 2m or 1h"));
  }
  if (duration < absl::ZeroDuration() || duration == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is negative or infinite"));
  }
  return duration;
}

std::string FlagsHelp(const std::vector<FlagSpec>& specs) {
  std::vector<std::string> left;
  std::size_t width = 0;
  for (const auto& spec : specs) {
    const std::string short_text =
        spec.short_name == 0 ? "    " : absl::StrCat("-", std::string(1, spec.short_name), ", ");
    left.push_back(absl::StrCat("  ", short_text, "--", spec.name, ValueText(spec)));
    width = std::max(width, left.back().size());
  }
  width = std::min<std::size_t>(width, 38);
  std::string text;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    // A long flag has its help on the next line.
    const bool wraps = left[i].size() > width;
    absl::StrAppend(&text, left[i], wraps ? "\n" : "",
                    std::string(wraps ? width + 2 : width + 2 - left[i].size(), ' '),
                    specs[i].help);
    if (!specs[i].default_value.empty() && specs[i].kind != FlagKind::kBool) {
      absl::StrAppend(&text, " (default ", specs[i].default_value, ")");
    }
    if (specs[i].repeated) absl::StrAppend(&text, " (repeatable)");
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace fsdp
