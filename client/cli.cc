#include "client/cli.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/commands/completion_plan.h"
#include "client/error.h"
#include "client/exit_code.h"
#include "proto/support/suggest.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

constexpr char kExitCodeHelp[] =
    "Exit codes: 0 ok, 1 internal error, 2 usage or not possible in the job's state, 3 invalid "
    "spec,\n"
    "4 unreachable or deadline, 5 not allowed, 6 unschedulable, 100 job failed, 101 job not "
    "finished,\n"
    "102 not found, 103 job cancelled.\n";

// Whose names a hint is looked for among: the newest.
constexpr int kMaxNames = 1000;

int PrintUsageError(std::ostream& err, const std::string& message, const std::string& verb) {
  err << "fsdpctl: error: " << message << "\n"
      << "Run `fsdpctl " << (verb.empty() ? "help" : absl::StrCat(verb, " --help"))
      << "` for usage.\n";
  return ToInt(ExitCode::kUsage);
}

std::vector<FlagSpec> AllFlags(const Command& command) {
  std::vector<FlagSpec> flags = command.flags;
  const auto& global = GlobalFlags();
  flags.insert(flags.end(), global.begin(), global.end());
  return flags;
}

std::optional<std::string> Given(const ParsedFlags& flags, const std::string& name) {
  if (!flags.Has(name)) return std::nullopt;
  return flags.GetString(name);
}

// Empty when the number of arguments is right.
std::string CountError(const Command& command, const ParsedFlags& flags) {
  const int count = static_cast<int>(flags.positional().size());
  if (flags.after_dashes().has_value() && !command.takes_command) {
    return absl::StrCat("`", command.name, "` takes nothing after --");
  }
  if (count < command.min_arguments) {
    return absl::StrCat("`", command.name, "` needs ", command.arguments);
  }
  if (command.max_arguments >= 0 && count > command.max_arguments) {
    const std::string& extra = flags.positional()[static_cast<std::size_t>(command.max_arguments)];
    return absl::StrCat("unexpected argument \"", extra, "\"");
  }
  // Most often a variable that a script forgot to set.
  const auto& given = flags.positional();
  if (std::find(given.begin(), given.end(), "") != given.end()) {
    return absl::StrCat("`", command.name, "` needs ", command.arguments,
                        "; an empty one is given");
  }
  return "";
}

int RunCommand(const Command& command, const std::vector<std::string>& arguments,
               const CliWorld& world) {
  const auto flags = ParseFlags(AllFlags(command), arguments);
  if (!flags.ok()) {
    // `--help` works also beside a mistake.
    if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
      *world.out << CommandHelp(command);
      return ToInt(ExitCode::kOk);
    }
    return PrintUsageError(*world.err, std::string(flags.status().message()), command.name);
  }
  if (flags->GetBool("help")) {
    *world.out << CommandHelp(command);
    return ToInt(ExitCode::kOk);
  }
  if (const std::string error = CountError(command, *flags); !error.empty()) {
    return PrintUsageError(*world.err, error, command.name);
  }
  const auto settings =
      command.needs_settings ? LoadSettings(GivenSettings(*flags), world.environment) : Settings{};
  if (!settings.ok()) {
    return PrintUsageError(*world.err, std::string(settings.status().message()), command.name);
  }
  CommandRun run(world, *settings, *flags);
  const int exit_code = command.run(run);
  world.out->flush();
  // A full disk or a closed pipe must not look like success.
  if (exit_code == 0 && world.out->fail()) {
    *world.err << "fsdpctl: error: cannot write the output\n";
    return ToInt(ExitCode::kInternal);
  }
  return exit_code;
}

}  // namespace

SettingFlags GivenSettings(const ParsedFlags& flags) {
  return {.server = Given(flags, "server"),
          .config = Given(flags, "config"),
          .context = Given(flags, "context"),
          .call_timeout = Given(flags, "call-timeout"),
          .reconnect = Given(flags, "reconnect"),
          .color = Given(flags, "color"),
          .token_file = Given(flags, "token-file"),
          .allow_plaintext_token = flags.GetBool("allow-plaintext-token"),
          .tls_ca = Given(flags, "tls-ca"),
          .tls_certificate = Given(flags, "tls-certificate"),
          .tls_key = Given(flags, "tls-key"),
          .tls_server_name = Given(flags, "tls-server-name")};
}

const std::vector<FlagSpec>& GlobalFlags() {
  static const auto& flags = *new std::vector<FlagSpec>{
      {.name = "server",
       .kind = FlagKind::kString,
       .value_name = "HOST:PORT",
       .help = "Coordinator to talk to, or several with commas between; else FSDPCTL_SERVER, else "
               "the config file, else " +
               std::string(kDefaultServer)},
      {.name = "context",
       .kind = FlagKind::kString,
       .value_name = "NAME",
       .help = "Settings of the config file to use; else FSDPCTL_CONTEXT, else its currentContext",
       .live = LiveNames::kContexts},
      {.name = "config",
       .kind = FlagKind::kFile,
       .value_name = "FILE",
       .help = "Config file; else FSDPCTL_CONFIG, else ~/.config/fsdpctl/config.yaml"},
      {.name = "tls-ca",
       .kind = FlagKind::kFile,
       .value_name = "FILE",
       .help = "Authority that the coordinator's certificate is checked by, or the word system; "
               "else FSDPCTL_TLS_CA. Without it nothing is encrypted"},
      {.name = "tls-certificate",
       .kind = FlagKind::kFile,
       .value_name = "FILE",
       .help = "Own certificate; else FSDPCTL_TLS_CERTIFICATE"},
      {.name = "tls-key",
       .kind = FlagKind::kFile,
       .value_name = "FILE",
       .help = "Its private key; else FSDPCTL_TLS_KEY"},
      {.name = "tls-server-name",
       .kind = FlagKind::kString,
       .value_name = "NAME",
       .help = "Name in the coordinator's certificate, when it is not the host of --server; else "
               "FSDPCTL_TLS_SERVER_NAME"},
      {.name = "call-timeout",
       .kind = FlagKind::kDuration,
       .value_name = "DURATION",
       .help = "Longest time for one call; else FSDPCTL_CALL_TIMEOUT, else 10s"},
      {.name = "reconnect",
       .kind = FlagKind::kDuration,
       .value_name = "DURATION",
       .help =
           absl::StrCat("How long to try to get back a coordinator that is lost while waiting or "
                        "following; else FSDPCTL_RECONNECT, else ",
                        kDefaultReconnect)},
      {.name = "color",
       .kind = FlagKind::kChoice,
       .help = "Colours: auto is on a terminal without NO_COLOR",
       .choices = {"auto", "always", "never"}},
      {.name = "token-file",
       .kind = FlagKind::kFile,
       .value_name = "FILE",
       .help = "File of a token that says who you are; else FSDPCTL_TOKEN_FILE, else the config "
               "file"},
      {.name = "allow-plaintext-token",
       .help = "Send the token in the clear also to other machines"},
      {.name = "help", .short_name = 'h', .help = "Show this help"},
  };
  return flags;
}

Style CommandRun::StyleFor(bool is_terminal) const {
  if (settings_.color == ColorMode::kAuto) return Style(is_terminal);
  return Style(settings_.color == ColorMode::kAlways);
}

ClientOptions OptionsOf(const Settings& settings, Interrupt* interrupt) {
  ClientOptions options;
  options.server = settings.server;
  options.call_timeout = settings.call_timeout;
  options.reconnect_window = settings.reconnect_window;
  options.retry_window = std::min(options.retry_window, settings.call_timeout);
  options.interrupt = interrupt;
  options.tls = settings.tls;
  options.tls_names = settings.tls_names;
  options.tls_server_name = settings.tls_server_name;
  options.token_file = settings.token_file;
  options.allow_plaintext_token = settings.allow_plaintext_token;
  return options;
}

absl::StatusOr<Client*> CommandRun::client() {
  if (client_ == nullptr) {
    const ClientOptions options = OptionsOf(settings_, world_.interrupt);
    auto client = Client::Create(options);
    // What is wrong with a token or a certificate names its file.
    const bool about_server = options.token_file.empty() && options.tls.empty();
    if (absl::IsInvalidArgument(client.status()) && about_server) {
      return absl::InvalidArgumentError(
          absl::StrCat(client.status().message(), " (from ", settings_.server_origin, ")"));
    }
    if (!client.ok()) return client.status();
    client_ = *std::move(client);
  }
  return client_.get();
}

// Asks for the names that there are; no hint when that fails too.
std::string CommandRun::NameHint(const absl::Status& status) const {
  const auto info = GetErrorInfo(status);
  if (client_ == nullptr || !info.has_value()) return "";
  std::string typed;
  std::vector<std::string> names;
  if (info->reason == "JOB_NOT_FOUND" && info->metadata.count("job") > 0) {
    typed = IdOf(info->metadata.at("job"));
    v1::ListJobsRequest request;
    request.mutable_read_mask()->add_paths("name");
    const auto jobs = client_->ListJobs(request, kMaxNames);
    if (!jobs.ok()) return "";
    for (const auto& job : *jobs) names.push_back(IdOf(job.name()));
  } else if (info->reason == "WORKER_NOT_FOUND" && info->metadata.count("worker") > 0) {
    typed = IdOf(info->metadata.at("worker"));
    const auto workers = client_->ListWorkers();
    if (!workers.ok()) return "";
    for (const auto& worker : *workers) names.push_back(IdOf(worker.name()));
  }
  const std::string hint = DidYouMean(typed, names);
  if (!hint.empty() || typed.empty()) return hint;
  // Jobs of one spec: the name without its digits is that of all of them.
  std::erase_if(names, [&](const std::string& name) { return !absl::StartsWith(name, typed); });
  if (names.empty()) return "";
  const std::size_t num_shown = std::min<std::size_t>(names.size(), 3);
  const std::string dots = names.size() > num_shown ? ", ..." : "";
  names.resize(num_shown);
  return absl::StrCat("; did you mean one of ", absl::StrJoin(names, ", "), dots, "?");
}

int CommandRun::Fail(const absl::Status& status) {
  err() << err_style().Red("fsdpctl: error:") << " " << FormatError(status) << NameHint(status)
        << "\n";
  return ToInt(ExitCodeForStatus(status));
}

int CommandRun::UsageError(const std::string& message) {
  err() << err_style().Red("fsdpctl: error:") << " " << message << "\n";
  return ToInt(ExitCode::kUsage);
}

const Command* FindCommand(const std::string& name) {
  for (const auto& command : Commands()) {
    if (command.name == name) return &command;
    const auto& aliases = command.aliases;
    if (std::find(aliases.begin(), aliases.end(), name) != aliases.end()) return &command;
  }
  return nullptr;
}

std::string ExitCodesHelp() { return kExitCodeHelp; }

std::string GeneralHelp() {
  std::string text =
      "fsdpctl trains transformers sharded over many devices.\n\n"
      "Usage: fsdpctl VERB [ARGUMENTS] [FLAGS]\n\nVerbs:\n";
  for (const auto& command : Commands()) {
    absl::StrAppend(&text, "  ", command.name, std::string(12 - command.name.size(), ' '),
                    command.summary, "\n");
  }
  absl::StrAppend(&text, "\nFlags of every verb:\n", FlagsHelp(GlobalFlags()), "\n", kExitCodeHelp,
                  "\nStart here: `fsdpctl local` in one terminal, `fsdpctl submit job.yaml --wait` "
                  "in another.\n");
  return text;
}

std::string CommandHelp(const Command& command) {
  std::string text = absl::StrCat(command.summary, "\n\nUsage: fsdpctl ", command.name);
  if (!command.arguments.empty()) absl::StrAppend(&text, " ", command.arguments);
  absl::StrAppend(&text, " [FLAGS]", command.takes_command ? " [-- COMMAND...]" : "", "\n");
  if (!command.aliases.empty()) {
    absl::StrAppend(&text, "Also: ", absl::StrJoin(command.aliases, ", "), "\n");
  }
  if (!command.description.empty()) absl::StrAppend(&text, "\n", command.description, "\n");
  if (!command.flags.empty()) {
    absl::StrAppend(&text, "\nFlags:\n", FlagsHelp(command.flags));
  }
  absl::StrAppend(&text, "\nFlags of every verb:\n", FlagsHelp(GlobalFlags()));
  absl::StrAppend(&text, "\nExamples:\n");
  for (const auto& example : command.examples) {
    absl::StrAppend(&text, "  # ", example.comment, "\n  ", example.command, "\n");
  }
  return text;
}

int RunCli(const std::vector<std::string>& arguments, const CliWorld& world) {
  if (arguments.empty()) {
    *world.err << GeneralHelp();
    return ToInt(ExitCode::kUsage);
  }
  const std::string& verb = arguments.front();
  if (verb == "--help" || verb == "-h") {
    *world.out << GeneralHelp();
    return ToInt(ExitCode::kOk);
  }
  if (verb == "--version") return RunCli({"version"}, world);
  // Of the scripts that `completion` prints; behind `--`, so that no word is taken for a flag.
  if (verb == "__complete" && arguments.size() > 1) {
    return RunCompletion({arguments.begin() + 2, arguments.end()}, world);
  }
  const Command* command = FindCommand(verb);
  if (command == nullptr) {
    std::vector<std::string> names;
    for (const auto& known : Commands()) {
      names.push_back(known.name);
      names.insert(names.end(), known.aliases.begin(), known.aliases.end());
    }
    const std::string what = verb[0] == '-' ? "flags come after the verb: " : "unknown verb ";
    return PrintUsageError(*world.err, absl::StrCat(what, verb, DidYouMean(verb, names)), "");
  }
  return RunCommand(*command, {arguments.begin() + 1, arguments.end()}, world);
}

}  // namespace fsdp
