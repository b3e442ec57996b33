#include "proto/support/program_flags.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "proto/support/suggest.h"

namespace fsdp {
namespace {

// Flags of ours are defined in files named main.cc, the library's own elsewhere.
bool IsOurs(absl::string_view file) {
  const std::string_view name(file.data(), file.size());
  return name.ends_with("/main.cc") || name == "main.cc";
}

// "HOST:PORT" stays, "state_dir" becomes "state-dir": as people type it.
std::string WithDashes(absl::string_view name) {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return dashed;
}

// Flags that one of our processes gives to another are nobody's business.
bool IsInternal(const absl::CommandLineFlag& flag) {
  return absl::StartsWith(flag.Help(), "Internal:");
}

using Flags = std::map<std::string, absl::CommandLineFlag*>;

// By the names that people type.
Flags OurFlags() {
  Flags flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (IsOurs(flag->Filename())) flags[WithDashes(name)] = flag;
  }
  return flags;
}

void PrintHelp(const Program& program) {
  std::printf("%s: %s\n\nFlags:\n", program.name.c_str(), program.usage.c_str());
  for (const auto& [name, flag] : OurFlags()) {
    if (IsInternal(*flag)) continue;
    std::printf("  --%s (%s); default: \"%s\"\n", name.c_str(), flag->Help().c_str(),
                flag->DefaultValue().c_str());
  }
  std::printf("  --version (print the version)\n  --help (print this)\n");
}

absl::Status UnknownFlag(const std::string& name, const Flags& flags) {
  std::vector<std::string> names = {"help", "version"};
  for (const auto& [known, flag] : flags) {
    if (!IsInternal(*flag)) names.push_back(known);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag --", name, DidYouMean(name, names, "--"), ": see --help"));
}

// A list that was given before grows; `lists` has what it holds.
absl::Status Set(absl::CommandLineFlag& flag, const std::string& name, std::string value,
                 std::map<std::string, std::string>& lists) {
  if (flag.IsOfType<std::vector<std::string>>()) {
    const auto [list, first] = lists.emplace(name, value);
    if (!first) value = absl::StrCat(list->second, ",", value);
    list->second = value;
  }
  std::string error;
  if (flag.ParseFrom(value, &error)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", name, "=", value, " is no value of it (",
                                                 flag.Help(), "; default \"", flag.DefaultValue(),
                                                 "\")"));
}

// --name=value, --name value, and of switches --name and --noname. The library's own parser would
// end the process with 1.
absl::Status ParseFlags(const std::vector<std::string>& arguments) {
  const Flags flags = OurFlags();
  std::map<std::string, std::string> lists;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("--") || argument == "--") {
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected argument '", argument, "': see --help"));
    }
    const std::size_t equals = argument.find('=');
    const std::string name = WithDashes(argument.substr(2, equals - 2));
    const auto found = flags.find(name);
    const auto negated = name.starts_with("no") ? flags.find(name.substr(2)) : flags.end();
    if (found == flags.end()) {
      if (negated == flags.end() || !negated->second->IsOfType<bool>() ||
          equals != std::string::npos) {
        return UnknownFlag(name, flags);
      }
      RETURN_IF_ERROR(Set(*negated->second, name, "false", lists));
      continue;
    }
    if (equals != std::string::npos) {
      RETURN_IF_ERROR(Set(*found->second, name, argument.substr(equals + 1), lists));
    } else if (found->second->IsOfType<bool>()) {
      RETURN_IF_ERROR(Set(*found->second, name, "true", lists));
    } else if (i + 1 < arguments.size()) {
      RETURN_IF_ERROR(Set(*found->second, name, arguments[++i], lists));
    } else {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
    }
  }
  return absl::OkStatus();
}

bool Asks(const std::vector<std::string>& arguments, std::string_view flag) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  return std::find(arguments.begin(), end, flag) != end;
}

}  // namespace

absl::StatusOr<bool> ParseProgramFlags(int argc, char** argv, const Program& program) {
  const std::vector<std::string> arguments(argv, argv + argc);
  if (Asks(arguments, "--help") || Asks(arguments, "-h") || Asks(arguments, "-help")) {
    PrintHelp(program);
    return false;
  }
  if (Asks(arguments, "--version")) {
    std::printf("%s %s\n", program.name.c_str(), program.version.c_str());
    return false;
  }
  RETURN_IF_ERROR(ParseFlags(arguments));
  return true;
}

}  // namespace fsdp
