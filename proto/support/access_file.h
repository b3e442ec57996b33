#ifndef FSDPCTL_PROTO_SUPPORT_ACCESS_FILE_H_
#define FSDPCTL_PROTO_SUPPORT_ACCESS_FILE_H_

// The coordinator's access file: who may call, and what each may do.
//
//   revoked:                            # optional: certificates that were taken back
//     - certificate: fsdp://worker/n7-*   # all that it names; or serial, or fingerprint
//       issuedBefore: 2026-12-01T10:00:00Z   # optional
//   identities:
//     - name: alice
//       tokenSha256: 9f86d081...        # of her token; or
//       certificate: fsdp://user/alice  # the URI of her certificate, or its common name
//       expires: 2027-01-01T00:00:00Z   # optional
//       grants:
//         - {role: submitter, queues: [research]}
//         - {role: viewer}              # in every queue
//
// A name may have several entries: two tokens while one takes the other's place.
//
// Thread rule: pure functions.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fsdp {

// Each of the first four may do what those before it may; kWorker is apart: what worker daemons do,
// and nothing else.
enum class Role { kViewer, kSubmitter, kOperator, kAdmin, kWorker };

// "viewer", and back.
std::string_view RoleName(Role role);
std::optional<Role> RoleFromName(std::string_view name);

struct Grant {
  Role role = Role::kViewer;
  // Empty: every queue, those to come included. Always so for kAdmin and kWorker.
  std::vector<std::string> queues;
};

struct AccessEntry {
  // The subject: jobs' owner, in audit lines.
  std::string name;
  // One of the two is set.
  std::string token_sha256;
  std::string certificate;
  absl::Time expires = absl::InfiniteFuture();
  std::vector<Grant> grants;
};

// Client certificates that are good for nothing any more. One of the first three is set.
struct RevokedCertificate {
  // A URI, or the common name of one without; '*' at its end: all that begin so.
  std::string certificate;
  // As HexDigits.
  std::string serial;
  // SHA-256 of the DER form, lower-case hex.
  std::string fingerprint;
  // Of `certificate`: only those that are valid since before this.
  absl::Time issued_before = absl::InfiniteFuture();
};

struct AccessFile {
  std::vector<AccessEntry> entries;
  std::vector<RevokedCertificate> revoked;
};

// One way to write a number of a certificate: "3f9a" of "3F:9A" and "003f9a".
std::string HexDigits(std::string_view text);

// `file` for messages, which begin with "file:line:column: ".
//   INVALID_ARGUMENT  not YAML, a key that is unknown or missing, a value that is wrong, a token or
//                     certificate in two entries; says the remedy
absl::StatusOr<AccessFile> ParseAccessFile(const std::string& text, const std::string& file);

// An entry as lines of the list under `identities:`.
std::string RenderAccessEntry(const AccessEntry& entry);

// A name as entries have it: 1-63 of [A-Za-z0-9._@-], not "anonymous".
bool IsSubjectName(std::string_view name);
// As spec.queue: 1-63 of a-z, 0-9 and -, a letter first, no - last.
bool IsQueueName(std::string_view name);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_ACCESS_FILE_H_
