#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/client.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/encode.h"
#include "client/render/table.h"
#include "proto/support/status.h"
#include "proto/support/suggest.h"
#include "proto/support/tls/tls_files.h"

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> Actions() { return {"list", "use", "set", "delete", "show"}; }

// The config file as text and as what it says.
struct Config {
  std::string path;
  std::string text;
  ConfigFile file;
};

absl::StatusOr<Config> LoadConfig(CommandRun& run, bool to_write) {
  ConfigLocation location = FindConfig(GivenSettings(run.flags()).config, run.world().environment);
  if (location.path.empty()) {
    return absl::InvalidArgumentError(
        "there is no place for a config file: set HOME, or name one with --config FILE");
  }
  // What is written may be new.
  if (to_write) location.must_exist = false;
  Config config{.path = location.path};
  ASSIGN_OR_RETURN(config.text, ReadConfigText(location));
  ASSIGN_OR_RETURN(config.file, ParseConfig(config.path, config.text));
  return config;
}

absl::Status UnknownContext(const Config& config, const std::string& name) {
  return absl::NotFoundError(
      absl::StrCat("no context \"", name, "\" in ", config.path, ContextHint(config.file, name)));
}

// The one that a command without --context uses.
std::string CurrentName(CommandRun& run, const ConfigFile& file) {
  if (const auto flag = GivenSettings(run.flags()).context) return *flag;
  return run.world().environment("FSDPCTL_CONTEXT").value_or(file.current_context);
}

void Print(CommandRun& run, const Json& json) {
  const bool yaml = run.flags().GetString("output") == "yaml";
  const std::string text = json.dump(2);
  run.out() << (yaml ? JsonToYaml(text) : text + "\n");
}

absl::Status List(CommandRun& run) {
  ASSIGN_OR_RETURN(const Config config, LoadConfig(run, false));
  const std::string current = CurrentName(run, config.file);
  const std::string format = run.flags().GetString("output");
  Json list = Json::array();
  Table table({{"CURRENT"}, {"NAME"}, {"SERVER"}, {"TLS"}, {"TOKEN"}});
  for (const auto& [name, values] : config.file.contexts) {
    const auto value = [&values = values](const SettingKey& key) -> std::string {
      const auto found = values.find(key.file_key);
      return found == values.end() ? "-" : found->second;
    };
    const bool has_tls = values.count("tlsCa") > 0 || values.count("tlsCertificate") > 0;
    const std::string tls = !has_tls                             ? "-"
                            : values.count("tlsCertificate") > 0 ? "mutual"
                                                                 : "server";
    table.AddRow({name == current ? "*" : "", name, value(kServerKey), tls, value(kTokenFileKey)});
    if (format == "name") run.out() << name << "\n";
    Json one = {{"name", name}, {"current", name == current}};
    for (const auto& [key, text] : values) one[key] = text;
    list.push_back(std::move(one));
  }
  if (format == "json" || format == "yaml") {
    Print(run, {{"contexts", list}});
  } else if (format == "table" && !table.empty()) {
    run.out() << table.Render();
  } else if (format == "table") {
    run.err() << "no contexts in " << config.path
              << "; make one: fsdpctl context set NAME server=HOST:PORT\n";
  }
  return absl::OkStatus();
}

// What is in effect, and where from.
absl::Status Show(CommandRun& run) {
  SettingFlags flags = GivenSettings(run.flags());
  if (run.flags().positional().size() > 1) flags.context = run.flags().positional()[1];
  ASSIGN_OR_RETURN(const Settings settings, LoadSettings(flags, run.world().environment));
  const std::string format = run.flags().GetString("output");
  if (format == "name") {
    run.out() << settings.context << "\n";
  } else if (format == "table") {
    Table table({{"SETTING"}, {"VALUE"}, {"FROM"}});
    table.AddRow({"context", settings.context.empty() ? "-" : settings.context, ""});
    for (const auto& source : settings.sources) {
      table.AddRow({source.key, source.value, source.origin});
    }
    run.out() << table.Render();
  } else {
    Json values = Json::object();
    for (const auto& source : settings.sources) {
      values[source.key] = {{"value", source.value}, {"from", source.origin}};
    }
    Print(run, {{"context", settings.context}, {"settings", values}});
  }
  return absl::OkStatus();
}

// "key=value"; "key=" takes the key out.
absl::StatusOr<ConfigChanges> ReadChanges(CommandRun& run) {
  std::vector<std::string> known;
  known.reserve(SettingKeys().size());
  for (const auto& key : SettingKeys()) known.emplace_back(key.file_key);
  ConfigChanges changes;
  const auto& given = run.flags().positional();
  for (std::size_t i = 2; i < given.size(); ++i) {
    const std::size_t equals = given[i].find('=');
    const std::string name = given[i].substr(0, equals);
    const auto key = std::find_if(SettingKeys().begin(), SettingKeys().end(),
                                  [&](const SettingKey& one) { return name == one.file_key; });
    if (equals == std::string::npos || key == SettingKeys().end()) {
      return absl::InvalidArgumentError(absl::StrCat("\"", given[i], "\" must be KEY=VALUE with ",
                                                     absl::StrJoin(known, ", "),
                                                     DidYouMean(name, known)));
    }
    const std::string value = given[i].substr(equals + 1);
    auto& change = changes[name];
    if (value.empty()) continue;
    const bool is_file = key->is_path && value != kSystemAuthorities;
    change = is_file ? std::filesystem::absolute(value).lexically_normal().string() : value;
    if (is_file && !std::filesystem::exists(*change)) {
      run.err() << run.err_style().Yellow("warning:") << " " << name << ": there is no " << *change
                << " yet\n";
    }
  }
  return changes;
}

// What `text` would mean with this context, for the checks of LoadSettings.
absl::Status CheckServerOf(const ConfigFile& file, const std::string& name) {
  const ConfigValues& values = file.contexts.at(name);
  const auto server = values.find(kServerKey.file_key);
  if (server != values.end()) {
    RETURN_IF_ERROR(Client::Create({.server = server->second}).status());
  }
  for (const SettingKey& key : {kCallTimeoutKey, kReconnectKey}) {
    const auto value = values.find(key.file_key);
    if (value == values.end()) continue;
    const auto duration = ParseDurationText(value->second);
    if (!duration.ok() || *duration <= absl::ZeroDuration()) {
      return absl::InvalidArgumentError(
          absl::StrCat(key.file_key, "=", value->second, ": must be a duration such as 10s"));
    }
  }
  const auto plaintext = values.find(kPlaintextTokenKey.file_key);
  if (plaintext != values.end() && plaintext->second != "true" && plaintext->second != "false") {
    return absl::InvalidArgumentError(
        absl::StrCat("allowPlaintextToken=", plaintext->second, ": must be true or false"));
  }
  const auto color = values.find(kColorKey.file_key);
  if (color != values.end() && color->second != "auto" && color->second != "always" &&
      color->second != "never") {
    return absl::InvalidArgumentError(
        absl::StrCat("color=", color->second, ": must be auto, always or never"));
  }
  return absl::OkStatus();
}

absl::Status Set(CommandRun& run, const std::string& name) {
  RETURN_IF_ERROR(CheckContextName(name));
  ASSIGN_OR_RETURN(const ConfigChanges changes, ReadChanges(run));
  ASSIGN_OR_RETURN(Config config, LoadConfig(run, true));
  const bool is_new = config.file.contexts.count(name) == 0;
  if (is_new && changes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("context \"", name, "\" is new: say at least ", "server=HOST:PORT"));
  }
  ASSIGN_OR_RETURN(config.text, WithContext(config.file, config.text, name, changes));
  ASSIGN_OR_RETURN(config.file, ParseConfig(config.path, config.text));
  RETURN_IF_ERROR(CheckServerOf(config.file, name));
  if (run.flags().GetBool("use")) {
    ASSIGN_OR_RETURN(config.text, WithCurrentContext(config.file, config.text, name));
  }
  RETURN_IF_ERROR(WriteConfig(config.path, config.text));
  run.out() << "context " << name << (is_new ? ": made in " : ": changed in ") << config.path
            << (run.flags().GetBool("use") ? ", in use\n" : "\n");
  return absl::OkStatus();
}

absl::Status Use(CommandRun& run, const std::string& name) {
  ASSIGN_OR_RETURN(Config config, LoadConfig(run, true));
  // "-" is no context's name.
  const std::string wanted = name == "-" ? "" : name;
  if (!wanted.empty() && config.file.contexts.count(wanted) == 0) {
    return UnknownContext(config, wanted);
  }
  ASSIGN_OR_RETURN(config.text, WithCurrentContext(config.file, config.text, wanted));
  RETURN_IF_ERROR(WriteConfig(config.path, config.text));
  run.out() << (wanted.empty() ? "no context is in use"
                               : absl::StrCat("context ", wanted, ": in use"))
            << "\n";
  if (const auto variable = run.world().environment("FSDPCTL_CONTEXT")) {
    run.err() << run.err_style().Yellow("warning:") << " FSDPCTL_CONTEXT=" << *variable
              << " in the environment goes before it\n";
  }
  return absl::OkStatus();
}

absl::Status Delete(CommandRun& run, const std::string& name) {
  ASSIGN_OR_RETURN(Config config, LoadConfig(run, true));
  if (config.file.contexts.count(name) == 0) return UnknownContext(config, name);
  ASSIGN_OR_RETURN(config.text, WithoutContext(config.file, config.text, name));
  RETURN_IF_ERROR(WriteConfig(config.path, config.text));
  run.out() << "context " << name << ": deleted"
            << (config.file.current_context == name ? "; none is in use now\n" : "\n");
  return absl::OkStatus();
}

absl::Status RunAction(CommandRun& run) {
  const auto& given = run.flags().positional();
  const std::string& action = given.front();
  const std::vector<std::string> actions = Actions();
  if (std::find(actions.begin(), actions.end(), action) == actions.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no action ", action, "; use ", absl::StrJoin(actions, ", "), DidYouMean(action, actions)));
  }
  const bool named = action == "use" || action == "set" || action == "delete";
  if (named && given.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(action, " needs a context's NAME"));
  }
  const std::size_t most = action == "list" ? 1 : action == "set" ? given.size() : 2;
  if (given.size() > most) {
    return absl::InvalidArgumentError(absl::StrCat("unexpected argument \"", given[most], "\""));
  }
  if (run.flags().GetBool("use") && action != "set") {
    return absl::InvalidArgumentError("--use goes with set");
  }
  if (action == "list") return List(run);
  if (action == "show") return Show(run);
  if (action == "set") return Set(run, given[1]);
  return action == "use" ? Use(run, given[1]) : Delete(run, given[1]);
}

int Run(CommandRun& run) {
  const absl::Status status = RunAction(run);
  if (status.ok()) return ToInt(ExitCode::kOk);
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    return run.UsageError(std::string(status.message()));
  }
  return run.Fail(status);
}

}  // namespace

Command ContextCommand() {
  Command command;
  command.name = "context";
  command.summary = "Named settings for several coordinators";
  command.arguments = "list|show [NAME]|use NAME|set NAME KEY=VALUE...|delete NAME";
  command.argument_kind = ArgumentKind::kContext;
  command.actions = Actions();
  command.more_words.reserve(SettingKeys().size());
  for (const auto& key : SettingKeys()) {
    command.more_words.push_back(absl::StrCat(key.file_key, "="));
  }
  command.min_arguments = 1;
  command.max_arguments = -1;
  command.needs_settings = false;
  command.description =
      "  list              the contexts of the config file; * is the one in use\n"
      "  show [NAME]       every setting in effect, and where it comes from\n"
      "  use NAME          from now on; - uses none\n"
      "  set NAME K=V...   makes or changes one; K= takes a key out\n"
      "  delete NAME       takes it out of the file\n"
      "Keys: server, callTimeout, reconnect, color, tlsCa, tlsCertificate, tlsKey, tlsServerName,\n"
      "tokenFile, allowPlaintextToken. A flag goes before FSDPCTL_*, that before the context, "
      "that\n"
      "before the top of the file. The file keeps its comments (those inside a deleted context go\n"
      "with it), and only its owner can read it. A token is named by its file, never written here.";
  command.flags = {{.name = "use", .help = "Also use it from now on (set)"},
                   OutputFlag({"table", "json", "yaml", "name"})};
  command.examples = {
      {"fsdpctl context set lab server=lab.example.com:7070 tlsCa=lab-ca.pem --use",
       "a cluster with TLS, used from now on"},
      {"fsdpctl list --context lab", "one command against another cluster"},
      {"fsdpctl context show", "which coordinator would be asked, and why that one"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp
