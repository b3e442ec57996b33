#ifndef FSDPCTL_PROTO_SUPPORT_PROGRAM_FLAGS_H_
#define FSDPCTL_PROTO_SUPPORT_PROGRAM_FLAGS_H_

// The command line of our daemons: ABSL_FLAGs spelled with dashes or underscores, and a --help and
// a --version that speak of the program alone. The trainers and fsdpctl have parsers of their own.

#include <string>

#include "absl/status/statusor.h"

namespace fsdp {

struct Program {
  // As typed: "fsdp-worker".
  std::string name;
  std::string version;
  // What it does, and examples; printed by --help above the flags.
  std::string usage;
};

// Reads `argv` into the program's flags. False: --help or --version was asked for and printed, and
// the program ends with 0.
//   InvalidArgument: an argument that is no flag, an unknown flag (with what was probably meant),
//   or a value that does not parse. A usage error: the program ends with 2.
absl::StatusOr<bool> ParseProgramFlags(int argc, char** argv, const Program& program);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_PROGRAM_FLAGS_H_
