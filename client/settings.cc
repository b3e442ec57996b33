#include "client/settings.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/flags.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

struct Setting {
  std::string value;
  std::string origin;
};

// Where settings are looked for; keeps account of what was found.
class Chooser {
 public:
  Chooser(const ConfigFile& file, const std::string& context, const EnvironmentFn& environment,
          std::vector<SettingSource>* sources)
      : file_(file), environment_(environment), sources_(*sources) {
    if (context.empty()) return;
    context_ = file.contexts.at(context);
    context_origin_ = absl::StrCat("context ", context, " of ", file.path);
  }

  Setting Choose(const std::optional<std::string>& flag, const char* flag_name,
                 const SettingKey& key, const char* fallback) {
    Setting setting = Look(flag, flag_name, key, fallback);
    if (!setting.value.empty()) sources_.push_back({key.file_key, setting.value, setting.origin});
    return setting;
  }

 private:
  [[nodiscard]] Setting Look(const std::optional<std::string>& flag, const char* flag_name,
                             const SettingKey& key, const char* fallback) const {
    if (flag.has_value()) return {*flag, flag_name};
    if (const auto value = environment_(key.variable)) return {*value, key.variable};
    if (const auto found = context_.find(key.file_key); found != context_.end()) {
      return {FromFile(key, found->second), context_origin_};
    }
    if (const auto found = file_.values.find(key.file_key); found != file_.values.end()) {
      return {FromFile(key, found->second), file_.path};
    }
    return {fallback, "default"};
  }

  // Paths in the file count from its folder.
  [[nodiscard]] std::string FromFile(const SettingKey& key, const std::string& value) const {
    if (!key.is_path || value.empty() || value == kSystemAuthorities) return value;
    return (std::filesystem::path(file_.path).parent_path() / value).string();
  }

  const ConfigFile& file_;
  ConfigValues context_;
  std::string context_origin_;
  const EnvironmentFn& environment_;
  std::vector<SettingSource>& sources_;
};

absl::StatusOr<std::string> ChooseContext(const SettingFlags& flags,
                                          const EnvironmentFn& environment,
                                          const ConfigFile& file) {
  Setting context{file.current_context, absl::StrCat("currentContext of ", file.path)};
  if (flags.context.has_value()) {
    context = {*flags.context, "--context"};
  } else if (const auto named = environment("FSDPCTL_CONTEXT")) {
    context = {*named, "FSDPCTL_CONTEXT"};
  }
  if (context.value.empty() || file.contexts.count(context.value) > 0) return context.value;
  return absl::NotFoundError(absl::StrCat("no context \"", context.value, "\" (", context.origin,
                                          ")", ContextHint(file, context.value)));
}

// "--tls-ca", "tlsCa (FSDPCTL_TLS_CA)".
std::string NameOf(const Setting& setting, const char* flag_name, const SettingKey& key) {
  if (setting.origin == flag_name || setting.value.empty()) return flag_name;
  return absl::StrCat(key.file_key, " (", setting.origin, ")");
}

absl::Status ReadTls(const SettingFlags& flags, Chooser& chooser, Settings* settings) {
  const auto choose = [&](const std::optional<std::string>& flag, const char* flag_name,
                          const SettingKey& key, std::string* path, std::string* name) {
    const Setting setting = chooser.Choose(flag, flag_name, key, "");
    *path = setting.value;
    *name = NameOf(setting, flag_name, key);
  };
  TlsFiles& tls = settings->tls;
  TlsFileNames& names = settings->tls_names;
  choose(flags.tls_ca, "--tls-ca", kTlsCaKey, &tls.ca, &names.ca);
  choose(flags.tls_certificate, "--tls-certificate", kTlsCertificateKey, &tls.certificate,
         &names.certificate);
  choose(flags.tls_key, "--tls-key", kTlsKeyKey, &tls.key, &names.key);
  settings->tls_server_name =
      chooser.Choose(flags.tls_server_name, "--tls-server-name", kTlsServerNameKey, "").value;
  return CheckClientFiles(tls, names);
}

absl::Status ReadToken(const SettingFlags& flags, Chooser& chooser, Settings* settings) {
  settings->token_file = chooser.Choose(flags.token_file, "--token-file", kTokenFileKey, "").value;
  const std::optional<std::string> flag =
      flags.allow_plaintext_token ? std::optional<std::string>("true") : std::nullopt;
  const Setting plaintext =
      chooser.Choose(flag, "--allow-plaintext-token", kPlaintextTokenKey, "false");
  settings->allow_plaintext_token = plaintext.value == "true" || plaintext.value == "1";
  if (settings->allow_plaintext_token || plaintext.value == "false" || plaintext.value == "0") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("allowPlaintextToken \"", plaintext.value, "\" (",
                                                 plaintext.origin, ") must be true or false"));
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
  const ConfigLocation location = FindConfig(flags.config, environment);
  ASSIGN_OR_RETURN(const std::string text, ReadConfigText(location));
  ASSIGN_OR_RETURN(const ConfigFile file, ParseConfig(location.path, text));
  Settings settings;
  ASSIGN_OR_RETURN(settings.context, ChooseContext(flags, environment, file));
  Chooser chooser(file, settings.context, environment, &settings.sources);
  const Setting server = chooser.Choose(flags.server, "--server", kServerKey, kDefaultServer);
  settings.server = server.value;
  settings.server_origin = server.origin;
  const Setting timeout =
      chooser.Choose(flags.call_timeout, "--call-timeout", kCallTimeoutKey, "10s");
  ASSIGN_OR_RETURN(settings.call_timeout, ParsePositive("call timeout", timeout));
  const Setting reconnect =
      chooser.Choose(flags.reconnect, "--reconnect", kReconnectKey, kDefaultReconnect);
  ASSIGN_OR_RETURN(settings.reconnect_window, ParsePositive("reconnect time", reconnect));
  const Setting color = chooser.Choose(flags.color, "--color", kColorKey, "auto");
  ASSIGN_OR_RETURN(settings.color, ParseColor(color));
  if (!flags.color.has_value() && environment("NO_COLOR")) settings.color = ColorMode::kNever;
  RETURN_IF_ERROR(ReadTls(flags, chooser, &settings));
  RETURN_IF_ERROR(ReadToken(flags, chooser, &settings));
  return settings;
}

}  // namespace fsdp
