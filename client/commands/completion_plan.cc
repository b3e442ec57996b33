#include "client/commands/completion_plan.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/exit_code.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

// A key press waits for it.
constexpr absl::Duration kAskTimeout = absl::Seconds(1);
constexpr int kMaxNames = 1000;

std::vector<FlagSpec> FlagsOf(const Command& command) {
  std::vector<FlagSpec> flags = command.flags;
  flags.insert(flags.end(), GlobalFlags().begin(), GlobalFlags().end());
  return flags;
}

void AddVerbs(CompletionPlan* plan) {
  for (const auto& command : Commands()) plan->words.push_back({command.name, command.summary});
}

void AddWords(const std::vector<std::string>& words, CompletionPlan* plan) {
  for (const auto& word : words) plan->words.push_back({word, ""});
}

void CompleteValue(const FlagSpec& flag, CompletionPlan* plan) {
  plan->live = flag.live;
  plan->files = flag.kind == FlagKind::kFile;
  if (flag.kind == FlagKind::kBool) AddWords({"true", "false"}, plan);
  if (flag.kind != FlagKind::kChoice) return;
  AddWords(flag.choices, plan);
  if (!flag.text_choice.first.empty()) AddWords({flag.text_choice.first + "="}, plan);
}

void CompletePositional(const Command& command, std::size_t index, CompletionPlan* plan) {
  const bool is_over =
      command.max_arguments >= 0 && index >= static_cast<std::size_t>(command.max_arguments);
  if (is_over) return;
  if (!command.actions.empty() && index == 0) return AddWords(command.actions, plan);
  if (!command.more_words.empty() && index >= 2) return AddWords(command.more_words, plan);
  switch (command.argument_kind) {
    case ArgumentKind::kFile:
      plan->files = true;
      break;
    case ArgumentKind::kJob:
      plan->live = LiveNames::kJobs;
      break;
    case ArgumentKind::kWorker:
      plan->live = LiveNames::kWorkers;
      break;
    case ArgumentKind::kQueue:
      plan->live = LiveNames::kQueues;
      break;
    case ArgumentKind::kContext:
      plan->live = LiveNames::kContexts;
      break;
    case ArgumentKind::kVerb:
      AddVerbs(plan);
      break;
    case ArgumentKind::kShell:
      AddWords({"bash", "zsh", "fish"}, plan);
      break;
    case ArgumentKind::kNone:
      break;
  }
}

// The words before the one that is being typed.
struct Typed {
  std::vector<std::string> positional;
  std::map<std::string, std::string> values;
  // Its value is being typed.
  const FlagSpec* open = nullptr;
  bool after_dashes = false;
};

// Null for a word that is no flag of the verb.
const FlagSpec* FlagOf(const std::vector<FlagSpec>& flags, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  for (const auto& flag : flags) {
    if (name == absl::StrCat("--", flag.name)) return &flag;
    if (flag.short_name != 0 && word == absl::StrCat("-", std::string(1, flag.short_name))) {
      return &flag;
    }
  }
  return nullptr;
}

Typed ReadTyped(const std::vector<FlagSpec>& flags, const std::vector<std::string>& words) {
  Typed typed;
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      typed.after_dashes = true;
      return typed;
    }
    if (word.size() < 2 || word[0] != '-') {
      typed.positional.push_back(word);
      continue;
    }
    const FlagSpec* flag = FlagOf(flags, word);
    if (flag == nullptr) continue;
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) {
      typed.values[flag->name] = word.substr(equals + 1);
    } else if (flag->kind == FlagKind::kBool) {
      typed.values[flag->name] = "true";
    } else {
      if (i + 2 == words.size()) typed.open = flag;
      if (i + 2 < words.size()) typed.values[flag->name] = words[++i];
    }
  }
  return typed;
}

SettingFlags SettingsOf(const Typed& typed) {
  const auto value = [&typed](const char* name) -> std::optional<std::string> {
    const auto found = typed.values.find(name);
    if (found == typed.values.end()) return std::nullopt;
    return found->second;
  };
  SettingFlags settings;
  settings.server = value("server");
  settings.config = value("config");
  settings.context = value("context");
  settings.token_file = value("token-file");
  settings.allow_plaintext_token = typed.values.count("allow-plaintext-token") > 0;
  settings.tls_ca = value("tls-ca");
  settings.tls_certificate = value("tls-certificate");
  settings.tls_key = value("tls-key");
  settings.tls_server_name = value("tls-server-name");
  return settings;
}

std::vector<CompletionWord> JobWords(Client& client) {
  std::vector<CompletionWord> words;
  const auto jobs = client.ListJobs({}, kMaxNames);
  if (!jobs.ok()) return words;
  words.reserve(jobs->size());
  for (const auto& job : *jobs) words.push_back({IdOf(job.name()), EnumText(job.state())});
  return words;
}

std::vector<CompletionWord> WorkerWords(Client& client) {
  std::vector<CompletionWord> words;
  const auto workers = client.ListWorkers();
  if (!workers.ok()) return words;
  words.reserve(workers->size());
  for (const auto& worker : *workers) {
    words.push_back({IdOf(worker.name()), EnumText(worker.state())});
  }
  return words;
}

// Of the jobs that there are.
std::vector<CompletionWord> QueueWords(Client& client) {
  std::set<std::string> names;
  const auto queues = client.ListQueues();
  if (queues.ok()) {
    for (const auto& queue : queues->queues()) names.insert(queue.spec().name());
  }
  // None are configured, or the coordinator is older than queues.
  if (names.empty()) {
    const auto jobs = client.ListJobs({}, kMaxNames);
    if (jobs.ok()) {
      for (const auto& job : *jobs) names.insert(job.spec().spec().queue());
    }
  }
  std::vector<CompletionWord> words;
  words.reserve(names.size());
  for (const auto& name : names) words.push_back({name, ""});
  return words;
}

std::vector<CompletionWord> ContextWords(const SettingFlags& flags,
                                         const EnvironmentFn& environment) {
  std::vector<CompletionWord> words;
  const ConfigLocation location = FindConfig(flags.config, environment);
  const auto text = ReadConfigText(location);
  if (!text.ok()) return words;
  const auto file = ParseConfig(location.path, *text);
  if (!file.ok()) return words;
  words.reserve(file->contexts.size());
  for (const auto& [name, values] : file->contexts) {
    const auto server = values.find(kServerKey.file_key);
    words.push_back({name, server == values.end() ? "" : server->second});
  }
  return words;
}

std::vector<CompletionWord> AskLive(const CompletionPlan& plan, const CliWorld& world) {
  if (plan.live == LiveNames::kContexts) {
    return ContextWords(plan.settings, world.environment);
  }
  const auto settings = LoadSettings(plan.settings, world.environment);
  if (!settings.ok()) return {};
  ClientOptions options = OptionsOf(*settings, world.interrupt);
  options.call_timeout = kAskTimeout;
  options.retry_window = kAskTimeout;
  const auto client = Client::Create(options);
  if (!client.ok()) return {};
  switch (plan.live) {
    case LiveNames::kJobs:
      return JobWords(**client);
    case LiveNames::kWorkers:
      return WorkerWords(**client);
    case LiveNames::kQueues:
      return QueueWords(**client);
    default:
      return {};
  }
}

}  // namespace

CompletionPlan PlanCompletion(const std::vector<std::string>& words) {
  CompletionPlan plan;
  if (words.empty()) return plan;
  plan.typed = words.back();
  if (words.size() == 1) {
    AddVerbs(&plan);
    AddWords({"--help", "--version"}, &plan);
    return plan;
  }
  const Command* command = FindCommand(words.front());
  if (command == nullptr) return plan;
  const std::vector<FlagSpec> flags = FlagsOf(*command);
  const Typed typed = ReadTyped(flags, words);
  plan.settings = SettingsOf(typed);
  plan.taken = typed.positional;
  const std::size_t equals = plan.typed.find('=');
  if (typed.after_dashes) {
    plan.files = command->takes_command;
  } else if (typed.open != nullptr) {
    CompleteValue(*typed.open, &plan);
  } else if (absl::StartsWith(plan.typed, "--") && equals != std::string::npos) {
    const FlagSpec* flag = FlagOf(flags, plan.typed);
    plan.prefix = plan.typed.substr(0, equals + 1);
    plan.typed.erase(0, equals + 1);
    if (flag != nullptr) CompleteValue(*flag, &plan);
  } else if (absl::StartsWith(plan.typed, "-")) {
    for (const auto& flag : flags) plan.words.push_back({"--" + flag.name, flag.help});
  } else {
    CompletePositional(*command, typed.positional.size(), &plan);
  }
  return plan;
}

int RunCompletion(const std::vector<std::string>& words, const CliWorld& world) {
  CompletionPlan plan = PlanCompletion(words);
  if (plan.files) {
    *world.out << ":files\n";
    return ToInt(ExitCode::kOk);
  }
  if (plan.live != LiveNames::kNone) plan.words = AskLive(plan, world);
  *world.out << ":words\n";
  for (const auto& [word, help] : plan.words) {
    const bool is_taken = std::find(plan.taken.begin(), plan.taken.end(), word) != plan.taken.end();
    if (is_taken || !absl::StartsWith(word, plan.typed)) continue;
    *world.out << plan.prefix << Printable(word) << (help.empty() ? "" : "\t") << Printable(help)
               << "\n";
  }
  return ToInt(ExitCode::kOk);
}

}  // namespace fsdp
