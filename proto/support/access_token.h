#ifndef FSDPCTL_PROTO_SUPPORT_ACCESS_TOKEN_H_
#define FSDPCTL_PROTO_SUPPORT_ACCESS_TOKEN_H_

// Bearer tokens: made by an administrator, kept in a file by whoever uses them, known to the
// coordinator by their hash alone.
//
// Thread rule: pure functions, but for the two that say otherwise.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace fsdp {

// "fsdp_" and 43 characters of [A-Za-z0-9_-]: 256 bits of the system's random source, so a plain
// hash of it cannot be guessed back.
std::string NewToken();

// SHA-256 in lower-case hexadecimal digits: what access files hold.
std::string TokenHash(std::string_view token);

// Could it be sent as a token: 20 to 512 visible ASCII characters? Not only NewToken's.
bool IsTokenText(std::string_view text);

// The token in a file, without the newline behind it. Reads the file; messages never have what is
// in it.
//   NOT_FOUND, PERMISSION_DENIED  the file cannot be read
//   INVALID_ARGUMENT              it holds no token
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_ACCESS_TOKEN_H_
