#include "client/settings.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/flags.h"
#include "proto/support/status.h"
#include "proto/support/suggest.h"

namespace fsdp {
namespace {

struct Key {
  const char* file_key;
  const char* variable;
};
constexpr Key kServer{"server", "FSDPCTL_SERVER"};
constexpr Key kCallTimeout{"callTimeout", "FSDPCTL_CALL_TIMEOUT"};
constexpr Key kReconnect{"reconnect", "FSDPCTL_RECONNECT"};
constexpr Key kColor{"color", "FSDPCTL_COLOR"};
constexpr Key kTlsCertificate{"tlsCertificate", "FSDPCTL_TLS_CERTIFICATE"};
constexpr Key kTlsKey{"tlsKey", "FSDPCTL_TLS_KEY"};
constexpr Key kTlsCa{"tlsCa", "FSDPCTL_TLS_CA"};
constexpr Key kTokenFile{"tokenFile", "FSDPCTL_TOKEN_FILE"};

struct ConfigFile {
  std::string path;
  std::map<std::string, std::string> values;
};

// yaml-cpp throws; nothing of it leaves this function.
absl::Status ParseConfig(const std::string& text, ConfigFile* file) {
  const std::vector<std::string> known = {
      kServer.file_key,         kCallTimeout.file_key, kReconnect.file_key, kColor.file_key,
      kTlsCertificate.file_key, kTlsKey.file_key,      kTlsCa.file_key,     kTokenFile.file_key};
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return absl::OkStatus();
    if (!root.IsMap()) {
      return absl::InvalidArgumentError(absl::StrCat(file->path, ": must be `key: value` lines"));
    }
    for (const auto& entry : root) {
      const std::string key = entry.first.as<std::string>();
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        return absl::InvalidArgumentError(absl::StrCat(file->path, ":", entry.first.Mark().line + 1,
                                                       ": unknown key \"", key, "\"",
                                                       DidYouMean(key, known)));
      }
      if (!entry.second.IsScalar()) {
        return absl::InvalidArgumentError(absl::StrCat(file->path, ":", entry.first.Mark().line + 1,
                                                       ": ", key, " must be one value"));
      }
      file->values[key] = entry.second.as<std::string>();
    }
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(file->path, ":", error.mark.line + 1, ": ", error.msg));
  }
  return absl::OkStatus();
}

absl::StatusOr<ConfigFile> ReadConfig(const SettingFlags& flags, const EnvironmentFn& environment) {
  ConfigFile file;
  bool must_exist = true;
  if (flags.config.has_value()) {
    file.path = *flags.config;
  } else if (const auto named = environment("FSDPCTL_CONFIG")) {
    file.path = *named;
  } else {
    must_exist = false;
    if (const auto xdg = environment("XDG_CONFIG_HOME")) {
      file.path = absl::StrCat(*xdg, "/fsdpctl/config.yaml");
    } else if (const auto home = environment("HOME")) {
      file.path = absl::StrCat(*home, "/.config/fsdpctl/config.yaml");
    } else {
      return file;
    }
  }
  std::ifstream in(file.path);
  if (!in) {
    if (!must_exist) return file;
    return absl::NotFoundError(absl::StrCat("cannot read the config file ", file.path));
  }
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  RETURN_IF_ERROR(ParseConfig(text, &file));
  return file;
}

struct Setting {
  std::string value;
  std::string origin;
};

Setting Choose(const std::optional<std::string>& flag, const char* flag_name, const Key& key,
               const EnvironmentFn& environment, const ConfigFile& file, const char* fallback) {
  if (flag.has_value()) return {*flag, flag_name};
  if (const auto value = environment(key.variable)) return {*value, key.variable};
  if (const auto found = file.values.find(key.file_key); found != file.values.end()) {
    return {found->second, file.path};
  }
  return {fallback, "default"};
}

// Accepted so that configurations need not change later; refused so that nobody believes in it.
absl::Status ReadSecurity(const EnvironmentFn& environment, const ConfigFile& file,
                          Settings* settings) {
  const auto choose = [&](const Key& key) {
    return Choose(std::nullopt, "", key, environment, file, "");
  };
  settings->tls = {.certificate = choose(kTlsCertificate).value,
                   .key = choose(kTlsKey).value,
                   .ca = choose(kTlsCa).value};
  for (const Key& key : {kTlsCertificate, kTlsKey, kTlsCa}) {
    const Setting setting = choose(key);
    if (setting.value.empty()) continue;
    RETURN_IF_ERROR(
        CheckTlsFiles(settings->tls, absl::StrCat(key.file_key, " (", setting.origin, ")")));
  }
  const Setting token = choose(kTokenFile);
  settings->token_file = token.value;
  if (!token.value.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("tokenFile (", token.origin, "): tokens are not in this release; unset it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> ParsePositive(const char* what, const Setting& setting) {
  const auto duration = ParseDurationText(setting.value);
  if (!duration.ok() || *duration <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " \"", setting.value, "\" (", setting.origin, ") must be a duration such as 10s"));
  }
  return *duration;
}

absl::StatusOr<ColorMode> ParseColor(const Setting& setting) {
  if (setting.value == "auto") return ColorMode::kAuto;
  if (setting.value == "always") return ColorMode::kAlways;
  if (setting.value == "never") return ColorMode::kNever;
  return absl::InvalidArgumentError(absl::StrCat("color \"", setting.value, "\" (", setting.origin,
                                                 ") must be auto, always or never"));
}

}  // namespace

absl::StatusOr<Settings> LoadSettings(const SettingFlags& flags, const EnvironmentFn& environment) {
  ASSIGN_OR_RETURN(const ConfigFile file, ReadConfig(flags, environment));
  Settings settings;
  const Setting server =
      Choose(flags.server, "--server", kServer, environment, file, kDefaultServer);
  settings.server = server.value;
  settings.server_origin = server.origin;
  const Setting timeout =
      Choose(flags.call_timeout, "--call-timeout", kCallTimeout, environment, file, "10s");
  ASSIGN_OR_RETURN(settings.call_timeout, ParsePositive("call timeout", timeout));
  const Setting reconnect =
      Choose(flags.reconnect, "--reconnect", kReconnect, environment, file, kDefaultReconnect);
  ASSIGN_OR_RETURN(settings.reconnect_window, ParsePositive("reconnect time", reconnect));
  const Setting color = Choose(flags.color, "--color", kColor, environment, file, "auto");
  ASSIGN_OR_RETURN(settings.color, ParseColor(color));
  if (!flags.color.has_value() && environment("NO_COLOR")) settings.color = ColorMode::kNever;
  RETURN_IF_ERROR(ReadSecurity(environment, file, &settings));
  return settings;
}

}  // namespace fsdp
