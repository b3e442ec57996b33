#ifndef FSDPCTL_PROTO_SUPPORT_TLS_AUTHORITY_FOLDER_H_
#define FSDPCTL_PROTO_SUPPORT_TLS_AUTHORITY_FOLDER_H_

// Certificates on disk: an authority's folder (ca.crt, ca.key), and pairs NAME.crt, NAME.key. Keys
// are readable by their owner alone; files appear whole (written beside, flushed, renamed).

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/support/tls/authority.h"

namespace fsdp::tls {

inline constexpr char kAuthorityCertificate[] = "ca.crt";
inline constexpr char kAuthorityKey[] = "ca.key";

// Clocks differ: a certificate begins this long before it is made.
inline constexpr absl::Duration kClockSlack = absl::Minutes(5);

// Makes `folder` (0700) and a new authority in it.
//   ALREADY_EXISTS  one is there
//   others          as the system says
absl::Status InitAuthority(const std::string& folder, const std::string& common_name,
                           absl::Time now, absl::Duration validity);

// The authority in `folder`.
//   NOT_FOUND            there is none; the message says how to make one
//   FAILED_PRECONDITION  key and certificate do not fit, or others can read the key
absl::StatusOr<std::unique_ptr<Authority>> OpenAuthority(const std::string& folder);

absl::StatusOr<std::string> ReadTextFile(const std::string& path);
// `mode`: of a new file, such as 0600 for a key.
absl::Status WriteTextFile(const std::string& path, const std::string& text, unsigned mode);

// Both files must not exist yet.
//   ALREADY_EXISTS  one does
absl::Status WritePair(const std::string& certificate_path, const std::string& key_path,
                       const KeyPair& pair);

}  // namespace fsdp::tls

#endif  // FSDPCTL_PROTO_SUPPORT_TLS_AUTHORITY_FOLDER_H_
