#include "proto/support/program_flags.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
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

std::string FromSourceRoot(absl::string_view file) {
  std::string_view name(file.data(), file.size());
  while (name.starts_with("../")) name.remove_prefix(3);
  return std::string(name);
}

}  // namespace

absl::Status ParseProgramFlags(int argc, char** argv, const Program& program) {
  absl::SetProgramUsageMessage(program.usage);
  absl::FlagsUsageConfig config;
  config.contains_help_flags = IsOurs;
  config.contains_helpshort_flags = IsOurs;
  config.normalize_filename = FromSourceRoot;
  config.version_string = [program] {
    return absl::StrCat(program.name, " ", program.version, "\n");
  };
  absl::SetFlagsUsageConfig(config);

  std::vector<std::string> arguments = WithUnderscores(argc, argv);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const std::vector<char*> rest = absl::ParseCommandLine(argc, pointers.data());
  if (rest.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected argument '", rest[1], "': see --help"));
  }
  return absl::OkStatus();
}

}  // namespace fsdp
