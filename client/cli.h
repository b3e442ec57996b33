#ifndef FSDPCTL_CLIENT_CLI_H_
#define FSDPCTL_CLIENT_CLI_H_

// fsdpctl without its process: arguments in, text and an exit code out. Nothing here touches
// std::cout, the environment or signals; main() and the tests bring those.

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/flags.h"
#include "client/interrupt.h"
#include "client/render/style.h"
#include "client/settings.h"
#include "proto/support/clock.h"

namespace fsdp {

// The world of one run. Everything outlives RunCli.
struct CliWorld {
  std::istream* in = nullptr;
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  // Columns of the terminal.
  int columns = 80;
  EnvironmentFn environment;
  Interrupt* interrupt = nullptr;
  Clock* clock = nullptr;
  // The running executable; `local` looks for its neighbours beside it.
  std::string executable;
};

// What a verb's positional arguments are; for help and completion.
enum class ArgumentKind { kNone, kFile, kJob, kWorker, kQueue, kContext, kVerb, kShell };

class CommandRun;

struct Command {
  std::string name;
  std::vector<std::string> aliases;
  // One line in the list of verbs.
  std::string summary;
  // As in usage: "JOB...".
  std::string arguments;
  ArgumentKind argument_kind = ArgumentKind::kNone;
  // What the first argument may be: "list", "set".
  std::vector<std::string> actions;
  // What the third and later ones may begin with; for completion.
  std::vector<std::string> more_words;
  int min_arguments = 0;
  // -1: any number.
  int max_arguments = 0;
  // `-- CMD...` is accepted.
  bool takes_command = false;
  // False: runs also where the settings are wrong, to mend them; CommandRun::settings() are the
  // defaults.
  bool needs_settings = true;
  // Paragraphs of --help after the summary.
  std::string description;
  std::vector<FlagSpec> flags;
  struct Example {
    std::string command;
    std::string comment;
  };
  std::vector<Example> examples;
  // Returns the exit code.
  std::function<int(CommandRun&)> run;
};

// Flags of every verb: --server, --context, --config, --call-timeout, --color, --help.
const std::vector<FlagSpec>& GlobalFlags();

// What the global flags say; absent where not given.
SettingFlags GivenSettings(const ParsedFlags& flags);

// As the settings say. `interrupt` may be null.
ClientOptions OptionsOf(const Settings& settings, Interrupt* interrupt);

// One invocation of a verb.
class CommandRun {
 public:
  CommandRun(const CliWorld& world, const Settings& settings, const ParsedFlags& flags)
      : world_(world), settings_(settings), flags_(flags) {}

  [[nodiscard]] const CliWorld& world() const { return world_; }
  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] const ParsedFlags& flags() const { return flags_; }
  [[nodiscard]] std::ostream& out() const { return *world_.out; }
  [[nodiscard]] std::ostream& err() const { return *world_.err; }
  // Colours of standard output and of standard error.
  [[nodiscard]] Style out_style() const { return StyleFor(world_.out_is_terminal); }
  [[nodiscard]] Style err_style() const { return StyleFor(world_.err_is_terminal); }

  // Made at the first call; does not connect yet.
  absl::StatusOr<Client*> client();

  // Prints "fsdpctl: error: ..." and gives the status's exit code. A job or worker that does not
  // exist: also what may have been meant.
  int Fail(const absl::Status& status);
  // The same for a mistake on the command line.
  int UsageError(const std::string& message);

 private:
  [[nodiscard]] Style StyleFor(bool is_terminal) const;
  [[nodiscard]] std::string NameHint(const absl::Status& status) const;

  const CliWorld& world_;
  const Settings& settings_;
  const ParsedFlags& flags_;
  std::unique_ptr<Client> client_;
};

// All verbs, in the order of `fsdpctl help`.
const std::vector<Command>& Commands();
// By name or alias; null when there is none.
const Command* FindCommand(const std::string& name);

// What `fsdpctl help` and `fsdpctl VERB --help` print.
std::string GeneralHelp();
std::string CommandHelp(const Command& command);
// What the exit codes mean, as both end.
std::string ExitCodesHelp();

// Runs one command line (without the executable's name); never throws, never exits.
int RunCli(const std::vector<std::string>& arguments, const CliWorld& world);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_CLI_H_
