#include "client/render/man_page.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace fsdp {
namespace {

// Text as roff prints it: no escapes, no requests at a line's start, dashes that can be copied.
std::string Roff(const std::string& text) {
  std::string escaped = absl::StrReplaceAll(
      text, {{"\\", "\\e"}, {"-", "\\-"}, {"…", "..."}, {"×", "x"}, {"–", "\\(en"}});
  if (!escaped.empty() && (escaped[0] == '.' || escaped[0] == '\'')) escaped.insert(0, "\\&");
  return escaped;
}

std::string Bold(const std::string& text) { return absl::StrCat("\\fB", Roff(text), "\\fR"); }
std::string Italic(const std::string& text) { return absl::StrCat("\\fI", Roff(text), "\\fR"); }

std::string Header(const std::string& name, const std::string& section, const ManInfo& info) {
  return absl::StrCat(".TH ", absl::AsciiStrToUpper(name), " ", section, " \"", info.date,
                      "\" \"fsdpctl ", info.version, "\" \"fsdpctl manual\"\n");
}

std::string Name(const std::string& name, const std::string& summary) {
  return absl::StrCat(".SH NAME\n", Roff(name), " \\- ", Roff(summary), "\n");
}

// Lines that stand as they are.
std::string Literal(const std::vector<std::string>& lines) {
  std::string text = ".PP\n.nf\n.RS 2\n";
  for (const auto& line : lines) absl::StrAppend(&text, Roff(line), "\n");
  return text + ".RE\n.fi\n";
}

// Paragraphs; those that are indented or aligned stay as they are.
std::string Prose(const std::string& description) {
  std::string text;
  std::vector<std::string> literal;
  std::vector<std::string> prose;
  const auto flush = [&] {
    if (!prose.empty()) absl::StrAppend(&text, ".PP\n", absl::StrJoin(prose, "\n"), "\n");
    if (!literal.empty()) absl::StrAppend(&text, Literal(literal));
    prose.clear();
    literal.clear();
  };
  for (const auto& line : absl::StrSplit(description, '\n')) {
    const std::string one(line);
    if (absl::StripAsciiWhitespace(one).empty()) {
      flush();
    } else if (one[0] == ' ') {
      if (!prose.empty()) flush();
      literal.push_back(one);
    } else {
      if (!literal.empty()) flush();
      prose.push_back(Roff(one));
    }
  }
  flush();
  // Each use stands behind a title, which is a paragraph's start already.
  return text.substr(std::min<std::size_t>(text.size(), 4));
}

std::string FlagEntry(const FlagSpec& flag) {
  std::string text = ".TP\n";
  if (flag.short_name != 0) {
    absl::StrAppend(&text, Bold(absl::StrCat("-", std::string(1, flag.short_name))), ", ");
  }
  absl::StrAppend(&text, Bold("--" + flag.name));
  if (flag.kind == FlagKind::kChoice) {
    std::vector<std::string> choices;
    choices.reserve(flag.choices.size() + 1);
    for (const auto& choice : flag.choices) choices.push_back(Bold(choice));
    if (!flag.text_choice.first.empty()) {
      choices.push_back(
          absl::StrCat(Bold(flag.text_choice.first + "="), Italic(flag.text_choice.second)));
    }
    absl::StrAppend(&text, "=", absl::StrJoin(choices, "|"));
  } else if (flag.kind != FlagKind::kBool) {
    absl::StrAppend(&text, "=", Italic(flag.value_name.empty() ? "VALUE" : flag.value_name));
  }
  absl::StrAppend(&text, "\n", Roff(flag.help), ".");
  if (!flag.default_value.empty() && flag.kind != FlagKind::kBool) {
    absl::StrAppend(&text, " Default: ", Roff(flag.default_value), ".");
  }
  if (flag.repeated) absl::StrAppend(&text, " May be given several times.");
  return text + "\n";
}

std::string Flags(const std::string& title, const std::vector<FlagSpec>& flags) {
  if (flags.empty()) return "";
  std::string text = absl::StrCat(".SH ", title, "\n");
  for (const auto& flag : flags) absl::StrAppend(&text, FlagEntry(flag));
  return text;
}

std::string SeeAlso(const std::vector<std::pair<std::string, std::string>>& pages) {
  std::vector<std::string> names;
  names.reserve(pages.size());
  for (const auto& [name, section] : pages) {
    names.push_back(absl::StrCat(Bold(name), "(", section, ")"));
  }
  return absl::StrCat(".SH SEE ALSO\n", absl::StrJoin(names, ",\n"), "\n");
}

// "  --name (help); default: \"x\"" of a daemon's --help as an entry.
std::string ProgramFlag(const std::string& line) {
  const std::size_t blank = line.find(" (");
  const std::string flag = line.substr(0, blank);
  const std::size_t tail = line.rfind("; default: ");
  std::string help = line.substr(blank + 2, tail == std::string::npos ? tail : tail - blank - 2);
  if (!help.empty() && help.back() == ')') help.pop_back();
  std::string text = absl::StrCat(".TP\n", Bold(flag), "\n", Roff(help), ".");
  if (tail != std::string::npos && !absl::EndsWith(line, ": \"\"")) {
    absl::StrAppend(&text, " Default: ", Roff(line.substr(tail + 11)), ".");
  }
  return text + "\n";
}

}  // namespace

std::string GeneralManPage(const ManInfo& info) {
  std::string text =
      absl::StrCat(Header("fsdpctl", "1", info),
                   Name("fsdpctl", "submit and follow trainings of sharded transformers"),
                   ".SH SYNOPSIS\n.B fsdpctl\n", Italic("VERB"), "\n[", Italic("ARGUMENTS"), "] [",
                   Italic("FLAGS"), "]\n.SH DESCRIPTION\n", "Talks to ", Bold("fsdp-coordinator"),
                   "(8), which queues training jobs and ", "places them on the devices of\n",
                   Bold("fsdp-worker"), "(8) daemons.\n", "Start with\n", Bold("fsdpctl local"),
                   "\nin one terminal and\n", Bold("fsdpctl submit job.yaml --wait"),
                   "\nin another.\n.SH VERBS\n");
  std::vector<std::pair<std::string, std::string>> pages;
  for (const auto& command : Commands()) {
    absl::StrAppend(&text, ".TP\n", Bold(command.name), " ", Roff(command.arguments), "\n",
                    Roff(command.summary), ".\nSee ", Bold("fsdpctl-" + command.name), "(1).\n");
    pages.emplace_back("fsdpctl-" + command.name, "1");
  }
  absl::StrAppend(&text, Flags("FLAGS OF EVERY VERB", GlobalFlags()), ".SH ENVIRONMENT\n");
  absl::StrAppend(&text, "A flag goes before the environment, that before the context in use, ",
                  "that before the top of the\nconfig file.\n");
  absl::StrAppend(&text, ".TP\n", Bold("FSDPCTL_CONFIG"), ", ", Bold("FSDPCTL_CONTEXT"),
                  "\nThe config file, and which of its contexts is in use.\n");
  for (const auto& key : SettingKeys()) {
    absl::StrAppend(&text, ".TP\n", Bold(key.variable), "\nAs ", Bold(key.file_key),
                    " of the config file.\n");
  }
  absl::StrAppend(&text, ".TP\n", Bold("NO_COLOR"), "\nNo colours, whatever its value.\n");
  absl::StrAppend(&text, ".SH FILES\n.TP\n", Italic("~/.config/fsdpctl/config.yaml"),
                  "\nSettings and contexts: see ", Bold("fsdpctl-context"), "(1).\n",
                  ".SH EXIT STATUS\n", Prose(ExitCodesHelp()));
  pages.insert(pages.begin(),
               {{"fsdp-coordinator", "8"}, {"fsdp-worker", "8"}, {"fsdp-trainer", "1"}});
  return text + SeeAlso(pages);
}

std::string CommandManPage(const Command& command, const ManInfo& info) {
  const std::string name = "fsdpctl-" + command.name;
  std::string text = absl::StrCat(Header(name, "1", info), Name(name, command.summary),
                                  ".SH SYNOPSIS\n.B fsdpctl ", Roff(command.name), "\n");
  if (!command.arguments.empty()) absl::StrAppend(&text, Italic(command.arguments), "\n");
  absl::StrAppend(&text, "[", Italic("FLAGS"), "]", command.takes_command ? " [\\-\\- " : "");
  if (command.takes_command) absl::StrAppend(&text, Italic("COMMAND..."), "]");
  absl::StrAppend(&text, "\n");
  if (!command.description.empty() || !command.aliases.empty()) {
    absl::StrAppend(&text, ".SH DESCRIPTION\n");
    if (!command.description.empty()) {
      absl::StrAppend(&text, Prose(command.description));
      if (!command.aliases.empty()) absl::StrAppend(&text, ".PP\n");
    }
    if (!command.aliases.empty()) {
      absl::StrAppend(&text, "Also: ", Bold(absl::StrJoin(command.aliases, ", ")), "\n");
    }
  }
  absl::StrAppend(&text, Flags("OPTIONS", command.flags),
                  Flags("FLAGS OF EVERY VERB", GlobalFlags()), ".SH EXAMPLES\n");
  for (const auto& example : command.examples) {
    absl::StrAppend(&text, ".TP\n", Roff(example.comment), "\n", Bold(example.command), "\n");
  }
  absl::StrAppend(&text, ".SH EXIT STATUS\n", Prose(ExitCodesHelp()));
  return text + SeeAlso({{"fsdpctl", "1"}});
}

std::string ProgramManPage(const std::string& name, const std::string& section,
                           const std::string& summary, const std::string& help,
                           const ManInfo& info) {
  std::string before;
  std::string options;
  for (const auto& piece : absl::StrSplit(help, '\n')) {
    const std::string line(piece);
    const bool is_flag = absl::StartsWith(line, "  --") && absl::StrContains(line, " (") &&
                         (line.back() == ')' || absl::StrContains(line, "); default: "));
    if (is_flag) {
      absl::StrAppend(&options, ProgramFlag(line.substr(2)));
    } else if (line != "Flags:") {
      absl::StrAppend(&before, line, "\n");
    }
  }
  std::string text =
      absl::StrCat(Header(name, section, info), Name(name, summary), ".SH SYNOPSIS\n.B ",
                   Roff(name), "\n[", Italic("ARGUMENTS"), "]\n.SH DESCRIPTION\n", Prose(before));
  if (!options.empty()) absl::StrAppend(&text, ".SH OPTIONS\n", options);
  return text + SeeAlso({{"fsdpctl", "1"}});
}

}  // namespace fsdp
