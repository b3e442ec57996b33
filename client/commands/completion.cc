#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"

namespace fsdp {
namespace {

// Each script asks `fsdpctl __complete` (completion_plan.h), the fsdpctl that is being typed.

constexpr char kBash[] = R"(# bash completion of fsdpctl. Load: source <(fsdpctl completion bash)
_fsdpctl() {
  local line=${COMP_LINE:0:COMP_POINT} words lines cur
  # COMP_WORDS is cut at = and :, which are parts of words here.
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  mapfile -t lines < <("$1" __complete -- "${words[@]:1}" 2>/dev/null)
  COMPREPLY=()
  if [[ ${lines[0]} == ":files" ]]; then
    compopt -o default
    return
  fi
  COMPREPLY=("${lines[@]:1}")
  COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
  [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
  # What stands before the last cut stays.
  cur=${words[-1]}
  if [[ $COMP_WORDBREAKS == *=* && $cur == *[=:]* ]]; then
    COMPREPLY=("${COMPREPLY[@]#"${cur%"${cur##*[=:]}"}"}")
  fi
}
complete -F _fsdpctl fsdpctl
)";

constexpr char kZsh[] = R"(#compdef fsdpctl
# zsh completion of fsdpctl. Load: source <(fsdpctl completion zsh)
_fsdpctl() {
  local -a lines described
  local line word
  lines=("${(@f)$("${(Q)words[1]}" __complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ $lines[1] == ":files" ]]; then
    compset -P '--*='
    _files
    return
  fi
  for line in "${(@)lines[2,-1]}"; do
    word=${line%%$'\t'*}
    if [[ $word == *= ]]; then
      compadd -S '' -- "$word"
    elif [[ $line == *$'\t'* ]]; then
      described+=("${word//:/\\:}:${line#*$'\t'}")
    else
      described+=("${word//:/\\:}")
    fi
  done
  _describe -V fsdpctl described
}
compdef _fsdpctl fsdpctl
)";

constexpr char kFish[] = R"(# fish completion of fsdpctl. Load: fsdpctl completion fish | source
function __fsdpctl_complete
  set -l words (commandline -opc)
  set -l lines ($words[1] __complete -- $words[2..-1] (commandline -ct) 2>/dev/null)
  if test "$lines[1]" = ":files"
    __fish_complete_path (string replace -r '^--[^=]*=' '' -- (commandline -ct))
  else
    printf '%s\n' $lines[2..-1]
  end
end
complete -c fsdpctl -e
complete -c fsdpctl -f -a '(__fsdpctl_complete)'
)";

int Run(CommandRun& run) {
  const std::string& shell = run.flags().positional().front();
  if (shell == "bash") {
    run.out() << kBash;
  } else if (shell == "zsh") {
    run.out() << kZsh;
  } else if (shell == "fish") {
    run.out() << kFish;
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
      "Verbs and flags come from the same table that parses them; names of jobs, workers and\n"
      "queues are asked of the coordinator (of the --server or --context that is typed), names of\n"
      "contexts are read from the config file.";
  command.examples = {
      {"source <(fsdpctl completion bash)", "in ~/.bashrc"},
      {"fsdpctl completion fish > ~/.config/fish/completions/fsdpctl.fish", "for fish"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp
