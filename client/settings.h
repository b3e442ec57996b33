#ifndef FSDPCTL_CLIENT_SETTINGS_H_
#define FSDPCTL_CLIENT_SETTINGS_H_

// Settings that may come from several places: flag > FSDPCTL_* environment > the context in use >
// the top of the config file > default.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/config_file.h"
#include "proto/support/tls/tls_files.h"

namespace fsdp {

// As written on the command line; absent = not given.
struct SettingFlags {
  std::optional<std::string> server;
  std::optional<std::string> config;
  // Empty: use none.
  std::optional<std::string> context;
  std::optional<std::string> call_timeout;
  std::optional<std::string> reconnect;
  std::optional<std::string> color;
  std::optional<std::string> token_file;
  bool allow_plaintext_token = false;
  std::optional<std::string> tls_ca;
  std::optional<std::string> tls_certificate;
  std::optional<std::string> tls_key;
  std::optional<std::string> tls_server_name;
};

// Longer than a coordinator takes to restart, short enough for somebody who looks at the screen.
inline constexpr char kDefaultReconnect[] = "8s";

enum class ColorMode { kAuto, kAlways, kNever };

// One value and where it came from: "--server", "FSDPCTL_SERVER", a file's name with its context,
// "default".
struct SettingSource {
  std::string key;
  std::string value;
  std::string origin;
};

struct Settings {
  // The context in use; empty: none. --context, FSDPCTL_CONTEXT, `currentContext:`.
  std::string context;
  // All settings that have a value.
  std::vector<SettingSource> sources;
  // Where the coordinator listens. FSDPCTL_SERVER, `server:`.
  std::string server;
  // Where it came from, for messages.
  std::string server_origin;
  // Of one call. FSDPCTL_CALL_TIMEOUT, `callTimeout:`.
  absl::Duration call_timeout;
  // How long `wait`, `submit --wait` and -f try to get a lost coordinator back. FSDPCTL_RECONNECT,
  // `reconnect:`.
  absl::Duration reconnect_window;
  // NO_COLOR (any value) beats all but --color. FSDPCTL_COLOR, `color:`.
  ColorMode color = ColorMode::kAuto;
  // FSDPCTL_TLS_CA, FSDPCTL_TLS_CERTIFICATE, FSDPCTL_TLS_KEY; `tlsCa:`, `tlsCertificate:`,
  // `tlsKey:`. Empty: no TLS. A file's name in the config file counts from the file's folder.
  TlsFiles tls;
  // How they were given, for messages.
  TlsFileNames tls_names;
  // FSDPCTL_TLS_SERVER_NAME, `tlsServerName:`; empty: the host of `server`.
  std::string tls_server_name;
  // File of a bearer token. FSDPCTL_TOKEN_FILE, `tokenFile:` (which counts from the config file's
  // folder).
  std::string token_file;
  // FSDPCTL_ALLOW_PLAINTEXT_TOKEN, `allowPlaintextToken:`.
  bool allow_plaintext_token = false;
};

// Reads the config file: --config, FSDPCTL_CONFIG, or $XDG_CONFIG_HOME/fsdpctl/config.yaml
// (~/.config/fsdpctl/config.yaml); only the last may be missing.
//   INVALID_ARGUMENT  a value or key is wrong; the message says where it came from
//   NOT_FOUND         the config file or the context that was named does not exist
absl::StatusOr<Settings> LoadSettings(const SettingFlags& flags, const EnvironmentFn& environment);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_SETTINGS_H_
