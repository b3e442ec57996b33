#ifndef FSDPCTL_CLIENT_SETTINGS_H_
#define FSDPCTL_CLIENT_SETTINGS_H_

// Settings that may come from several places: flag > FSDPCTL_* environment > config file > default.

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/support/tls_files.h"

namespace fsdp {

// Value of an environment variable; absent when unset or empty.
using EnvironmentFn = std::function<std::optional<std::string>(const std::string&)>;

// As written on the command line; absent = not given.
struct SettingFlags {
  std::optional<std::string> server;
  std::optional<std::string> config;
  std::optional<std::string> call_timeout;
  std::optional<std::string> reconnect;
  std::optional<std::string> color;
};

// Longer than a coordinator takes to restart, short enough for somebody who looks at the screen.
inline constexpr char kDefaultReconnect[] = "8s";

enum class ColorMode { kAuto, kAlways, kNever };

struct Settings {
  // Where the coordinator listens. FSDPCTL_SERVER, `server:`.
  std::string server;
  // Where it came from, for messages: "--server", "FSDPCTL_SERVER", a file name, "default".
  std::string server_origin;
  // Of one call. FSDPCTL_CALL_TIMEOUT, `callTimeout:`.
  absl::Duration call_timeout;
  // How long `wait`, `submit --wait` and -f try to get a lost coordinator back. FSDPCTL_RECONNECT,
  // `reconnect:`.
  absl::Duration reconnect_window;
  // NO_COLOR (any value) beats all but --color. FSDPCTL_COLOR, `color:`.
  ColorMode color = ColorMode::kAuto;
  // FSDPCTL_TLS_CERTIFICATE, FSDPCTL_TLS_KEY, FSDPCTL_TLS_CA; `tlsCertificate:`, `tlsKey:`,
  // `tlsCa:`.
  TlsFiles tls;
  // File of a bearer token. FSDPCTL_TOKEN_FILE, `tokenFile:`.
  std::string token_file;
};

// Reads the config file: --config, FSDPCTL_CONFIG, or $XDG_CONFIG_HOME/fsdpctl/config.yaml
// (~/.config/fsdpctl/config.yaml); only the last may be missing.
//   INVALID_ARGUMENT  a value or key is wrong; the message says where it came from
//   UNIMPLEMENTED     TLS files or a token are set: not in this release
//   NOT_FOUND         the config file that was named does not exist
absl::StatusOr<Settings> LoadSettings(const SettingFlags& flags, const EnvironmentFn& environment);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_SETTINGS_H_
