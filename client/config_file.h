#ifndef FSDPCTL_CLIENT_CONFIG_FILE_H_
#define FSDPCTL_CLIENT_CONFIG_FILE_H_

// fsdpctl's config file: settings, and contexts (named sets of them, one of which is current).
//
//   server: localhost:7070        # when no context is in use
//   currentContext: lab
//   contexts:
//     lab:
//       server: lab.example.com:7070
//       tlsCa: /home/me/lab-ca.pem
//
// Parsing and editing are pure: text in, text out. Thread-safe (no state).

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp {

// Value of an environment variable; absent when unset or empty.
using EnvironmentFn = std::function<std::optional<std::string>(const std::string&)>;

// One setting: its key in the file, and the variable that beats it.
struct SettingKey {
  const char* file_key;
  const char* variable;
  // A path: counts from the file's folder; `fsdpctl context set` writes it absolute.
  bool is_path = false;
};
inline constexpr SettingKey kServerKey{"server", "FSDPCTL_SERVER"};
inline constexpr SettingKey kCallTimeoutKey{"callTimeout", "FSDPCTL_CALL_TIMEOUT"};
inline constexpr SettingKey kReconnectKey{"reconnect", "FSDPCTL_RECONNECT"};
inline constexpr SettingKey kColorKey{"color", "FSDPCTL_COLOR"};
inline constexpr SettingKey kTlsCaKey{"tlsCa", "FSDPCTL_TLS_CA", true};
inline constexpr SettingKey kTlsCertificateKey{"tlsCertificate", "FSDPCTL_TLS_CERTIFICATE", true};
inline constexpr SettingKey kTlsKeyKey{"tlsKey", "FSDPCTL_TLS_KEY", true};
inline constexpr SettingKey kTlsServerNameKey{"tlsServerName", "FSDPCTL_TLS_SERVER_NAME"};
inline constexpr SettingKey kTokenFileKey{"tokenFile", "FSDPCTL_TOKEN_FILE", true};
inline constexpr SettingKey kPlaintextTokenKey{"allowPlaintextToken",
                                               "FSDPCTL_ALLOW_PLAINTEXT_TOKEN"};
// All of them: what may stand at the file's top and in a context.
const std::vector<SettingKey>& SettingKeys();

using ConfigValues = std::map<std::string, std::string>;

struct ConfigFile {
  std::string path;
  // At the top of the file.
  ConfigValues values;
  // Empty: none.
  std::string current_context;
  std::map<std::string, ConfigValues> contexts;

  bool operator==(const ConfigFile&) const = default;
};

struct ConfigLocation {
  // Empty: there is no home to look in.
  std::string path;
  // It was named: a missing file is a mistake.
  bool must_exist = false;
};
// --config, FSDPCTL_CONFIG, $XDG_CONFIG_HOME/fsdpctl/config.yaml, ~/.config/fsdpctl/config.yaml.
ConfigLocation FindConfig(const std::optional<std::string>& flag, const EnvironmentFn& environment);

// The file's text; empty for a missing one that was not named.
//   NOT_FOUND  it was named and cannot be read
absl::StatusOr<std::string> ReadConfigText(const ConfigLocation& location);

//   INVALID_ARGUMENT  "PATH:LINE: ..." what is wrong there
absl::StatusOr<ConfigFile> ParseConfig(const std::string& path, const std::string& text);

//   INVALID_ARGUMENT  not 1 to 63 of [A-Za-z0-9._-], or not beginning with a letter or digit
absl::Status CheckContextName(const std::string& name);

// "; there are a, b" or "; did you mean a?" for an unknown context.
std::string ContextHint(const ConfigFile& file, const std::string& name);

// What an edit changes: each key's new value, absent where it goes.
using ConfigChanges = std::map<std::string, std::optional<std::string>>;

// Edits of a file's text. Lines that an edit does not concern, comments among them, stay as they
// are; comments inside a deleted context go with it. Every result was parsed again and holds
// exactly the change.
//   FAILED_PRECONDITION  the file is written in a form that cannot be edited by lines ({a: b}); the
//                        message says where and what to do
absl::StatusOr<std::string> WithContext(const ConfigFile& file, const std::string& text,
                                        const std::string& name, const ConfigChanges& changes);
// Also stops using it.
absl::StatusOr<std::string> WithoutContext(const ConfigFile& file, const std::string& text,
                                           const std::string& name);
// Empty name: none is in use.
absl::StatusOr<std::string> WithCurrentContext(const ConfigFile& file, const std::string& text,
                                               const std::string& name);

// Replaces the file as a whole, readable by its owner alone (0600, folders that are made 0700). A
// link is followed.
absl::Status WriteConfig(const std::string& path, const std::string& text);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_CONFIG_FILE_H_
