#include "proto/support/program_flags.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fsdp {
namespace {

// The library knows flags by their C++ names.
std::vector<std::string> WithUnderscores(int argc, char** argv) {
  std::vector<std::string> arguments(argv, argv + argc);
  for (std::size_t i = 1; i < arguments.size() && arguments[i] != "--"; ++i) {
    std::string& argument = arguments[i];
    if (!argument.starts_with("--")) continue;
    const std::size_t end = std::min(argument.find('='), argument.size());
    std::replace(argument.begin() + 2, argument.begin() + static_cast<std::ptrdiff_t>(end), '-',
                 '_');
  }
  return arguments;
}

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

// The library's own page would end the process with 1.
void PrintHelp(const Program& program) {
  std::map<std::string, const absl::CommandLineFlag*> flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (IsOurs(flag->Filename()) && !IsInternal(*flag)) flags[WithDashes(name)] = flag;
  }
  std::printf("%s: %s\n\nFlags:\n", program.name.c_str(), program.usage.c_str());
  for (const auto& [name, flag] : flags) {
    std::printf("  --%s (%s); default: \"%s\"\n", name.c_str(), flag->Help().c_str(),
                flag->DefaultValue().c_str());
  }
  std::printf("  --version (print the version)\n  --help (print this)\n");
}

bool Asks(const std::vector<std::string>& arguments, std::string_view flag) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  return std::find(arguments.begin(), end, flag) != end;
}

}  // namespace

absl::StatusOr<bool> ParseProgramFlags(int argc, char** argv, const Program& program) {
  std::vector<std::string> arguments = WithUnderscores(argc, argv);
  if (Asks(arguments, "--help") || Asks(arguments, "-h") || Asks(arguments, "-help")) {
    PrintHelp(program);
    return false;
  }
  if (Asks(arguments, "--version")) {
    std::printf("%s %s\n", program.name.c_str(), program.version.c_str());
    return false;
  }
  // What the library says beside an error.
  absl::SetProgramUsageMessage(program.usage);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const std::vector<char*> rest = absl::ParseCommandLine(argc, pointers.data());
  if (rest.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected argument '", rest[1], "': see --help"));
  }
  return true;
}

}  // namespace fsdp
