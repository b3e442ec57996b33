#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"

namespace fsdp {
namespace {

// Names that a positional argument completes to, as a shell command; empty: files or nothing.
std::string NamesCommand(ArgumentKind kind) {
  switch (kind) {
    case ArgumentKind::kJob:
      return "fsdpctl list -o name --call-timeout 1s 2>/dev/null";
    case ArgumentKind::kWorker:
      return "fsdpctl workers -o name --call-timeout 1s 2>/dev/null";
    case ArgumentKind::kShell:
      return "echo bash zsh fish";
    case ArgumentKind::kVerb:
      return absl::StrCat(
          "echo ", absl::StrJoin(Commands(), " ", [](std::string* out, const Command& command) {
            out->append(command.name);
          }));
    default:
      return "";
  }
}

std::vector<FlagSpec> FlagsOf(const Command& command) {
  std::vector<FlagSpec> flags = command.flags;
  flags.insert(flags.end(), GlobalFlags().begin(), GlobalFlags().end());
  return flags;
}

std::vector<std::string> NamesOf(const Command& command) {
  std::vector<std::string> names = {command.name};
  names.insert(names.end(), command.aliases.begin(), command.aliases.end());
  return names;
}

// Inside single quotes.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string BashFlagWords(const Command& command) {
  std::string words;
  for (const auto& flag : FlagsOf(command)) {
    absl::StrAppend(&words, words.empty() ? "" : " ", "--", flag.name);
  }
  return words;
}

// The words after a flag that takes a value.
std::string BashValueCases(const Command& command) {
  std::string cases;
  for (const auto& flag : FlagsOf(command)) {
    if (flag.kind == FlagKind::kBool) continue;
    std::string pattern = absl::StrCat("--", flag.name);
    if (flag.short_name != 0) absl::StrAppend(&pattern, "|-", std::string(1, flag.short_name));
    std::string action = "return";
    if (flag.kind == FlagKind::kChoice) {
      action = absl::StrCat("COMPREPLY=($(compgen -W ", Quoted(absl::StrJoin(flag.choices, " ")),
                            " -- \"$cur\")); return");
    } else if (flag.kind == FlagKind::kFile) {
      action = "COMPREPLY=($(compgen -f -- \"$cur\")); return";
    }
    absl::StrAppend(&cases, "        ", pattern, ") ", action, " ;;\n");
  }
  return cases;
}

std::string BashScript() {
  std::string text =
      "# bash completion of fsdpctl. Load: source <(fsdpctl completion bash)\n"
      "_fsdpctl() {\n"
      "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W ";
  std::vector<std::string> verbs;
  for (const auto& command : Commands()) verbs.push_back(command.name);
  absl::StrAppend(&text, Quoted(absl::StrJoin(verbs, " ")),
                  " -- \"$cur\"))\n    return\n  fi\n  case \"${COMP_WORDS[1]}\" in\n");
  for (const auto& command : Commands()) {
    absl::StrAppend(&text, "    ", absl::StrJoin(NamesOf(command), "|"), ")\n",
                    "      case \"$prev\" in\n", BashValueCases(command), "      esac\n",
                    "      if [[ \"$cur\" == -* ]]; then\n        COMPREPLY=($(compgen -W ",
                    Quoted(BashFlagWords(command)), " -- \"$cur\"))\n        return\n      fi\n");
    const std::string names = NamesCommand(command.argument_kind);
    if (!names.empty()) {
      absl::StrAppend(&text, "      COMPREPLY=($(compgen -W \"$(", names, ")\" -- \"$cur\"))\n");
    } else if (command.argument_kind == ArgumentKind::kFile) {
      absl::StrAppend(&text, "      COMPREPLY=($(compgen -f -- \"$cur\"))\n");
    }
    absl::StrAppend(&text, "      ;;\n");
  }
  absl::StrAppend(&text, "  esac\n}\ncomplete -o filenames -F _fsdpctl fsdpctl\n");
  return text;
}

// Descriptions of _arguments and _describe must not hold their separators.
std::string ZshText(const std::string& text) {
  return absl::StrReplaceAll(text, {{":", "\\:"}, {"[", "\\["}, {"]", "\\]"}});
}

std::string ZshFlag(const FlagSpec& flag) {
  std::string value;
  if (flag.kind == FlagKind::kChoice) {
    value = absl::StrCat(":value:(", absl::StrJoin(flag.choices, " "), ")");
  } else if (flag.kind == FlagKind::kFile) {
    value = ":file:_files";
  } else if (flag.kind != FlagKind::kBool) {
    value = absl::StrCat(":", flag.value_name, ":");
  }
  const std::string repeat = flag.repeated ? "*" : "";
  std::string text = absl::StrCat(
      "        ",
      Quoted(absl::StrCat(repeat, "--", flag.name, flag.kind == FlagKind::kBool ? "" : "=", "[",
                          ZshText(flag.help), "]", value)),
      " \\\n");
  if (flag.short_name != 0) {
    absl::StrAppend(&text, "        ",
                    Quoted(absl::StrCat(repeat, "-", std::string(1, flag.short_name), "[",
                                        ZshText(flag.help), "]", value)),
                    " \\\n");
  }
  return text;
}

std::string ZshScript() {
  std::string text =
      "#compdef fsdpctl\n"
      "# zsh completion of fsdpctl. Load: source <(fsdpctl completion zsh)\n"
      "_fsdpctl() {\n"
      "  if (( CURRENT == 2 )); then\n    local -a verbs=(\n";
  for (const auto& command : Commands()) {
    absl::StrAppend(&text, "      ",
                    Quoted(absl::StrCat(command.name, ":", ZshText(command.summary))), "\n");
  }
  absl::StrAppend(&text,
                  "    )\n    _describe verb verbs\n    return\n  fi\n"
                  "  local verb=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $verb in\n");
  for (const auto& command : Commands()) {
    absl::StrAppend(&text, "    ", absl::StrJoin(NamesOf(command), "|"), ")\n",
                    "      _arguments \\\n");
    for (const auto& flag : FlagsOf(command)) absl::StrAppend(&text, ZshFlag(flag));
    const std::string names = NamesCommand(command.argument_kind);
    std::string rest = "*: :";
    if (!names.empty()) rest = absl::StrCat("*:name:($(", names, "))");
    if (command.argument_kind == ArgumentKind::kFile) rest = "*:file:_files";
    // In single quotes the names are looked up when the user asks, not when the script is read.
    absl::StrAppend(&text, "        ", Quoted(rest), "\n      ;;\n");
  }
  absl::StrAppend(&text, "  esac\n}\ncompdef _fsdpctl fsdpctl\n");
  return text;
}

std::string FishScript() {
  std::string text =
      "# fish completion of fsdpctl. Load: fsdpctl completion fish | source\n"
      "complete -c fsdpctl -f\n";
  for (const auto& command : Commands()) {
    absl::StrAppend(&text, "complete -c fsdpctl -n __fish_use_subcommand -a ", command.name, " -d ",
                    Quoted(command.summary), "\n");
    const std::string seen =
        Quoted(absl::StrCat("__fish_seen_subcommand_from ", absl::StrJoin(NamesOf(command), " ")));
    for (const auto& flag : FlagsOf(command)) {
      absl::StrAppend(&text, "complete -c fsdpctl -n ", seen, " -l ", flag.name);
      if (flag.short_name != 0) absl::StrAppend(&text, " -s ", std::string(1, flag.short_name));
      if (flag.kind != FlagKind::kBool) absl::StrAppend(&text, " -r");
      if (flag.kind == FlagKind::kFile) absl::StrAppend(&text, " -F");
      if (flag.kind == FlagKind::kChoice) {
        absl::StrAppend(&text, " -a ", Quoted(absl::StrJoin(flag.choices, " ")));
      }
      absl::StrAppend(&text, " -d ", Quoted(flag.help), "\n");
    }
    const std::string names = NamesCommand(command.argument_kind);
    if (!names.empty()) {
      // fish splits command output at newlines.
      const std::string lines =
          absl::StartsWith(names, "echo ") ? names.substr(5) : absl::StrCat("(", names, ")");
      absl::StrAppend(&text, "complete -c fsdpctl -n ", seen, " -a ", Quoted(lines), "\n");
    } else if (command.argument_kind == ArgumentKind::kFile) {
      absl::StrAppend(&text, "complete -c fsdpctl -n ", seen, " -F\n");
    }
  }
  return text;
}

int Run(CommandRun& run) {
  const std::string& shell = run.flags().positional().front();
  if (shell == "bash") {
    run.out() << BashScript();
  } else if (shell == "zsh") {
    run.out() << ZshScript();
  } else if (shell == "fish") {
    run.out() << FishScript();
  } else {
    return run.UsageError(absl::StrCat("shell \"", shell, "\" is not bash, zsh or fish"));
  }
  return ToInt(ExitCode::kOk);
}

}  // namespace

Command CompletionCommand() {
  Command command;
  command.name = "completion";
  command.summary = "Print a completion script for bash, zsh or fish";
  command.arguments = "SHELL";
  command.argument_kind = ArgumentKind::kShell;
  command.min_arguments = 1;
  command.max_arguments = 1;
  command.description =
      "Verbs and flags come from the same table that parses them; job and worker\n"
      "names are asked of the coordinator.";
  command.examples = {
      {"source <(fsdpctl completion bash)", "in ~/.bashrc"},
      {"fsdpctl completion fish > ~/.config/fish/completions/fsdpctl.fish", "for fish"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp
