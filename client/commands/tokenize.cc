#include "absl/strings/str_cat.h"
#include "client/commands/beside.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"

namespace fsdp {
namespace {

// The flags that are given, spelled for fsdp-tokenize, which checks their values.
std::vector<std::string> Arguments(const ParsedFlags& flags) {
  std::vector<std::string> arguments;
  for (const char* name : {"tokenizer", "output", "document-separator", "separator-position",
                           "special-tokens", "format", "text-field"}) {
    if (flags.Has(name)) arguments.push_back(absl::StrCat("--", name, "=", flags.GetString(name)));
  }
  for (const char* name : {"shard-tokens", "threads"}) {
    if (flags.Has(name)) arguments.push_back(absl::StrCat("--", name, "=", flags.GetInt(name)));
  }
  if (flags.GetBool("overwrite")) arguments.emplace_back("--overwrite");
  arguments.insert(arguments.end(), flags.positional().begin(), flags.positional().end());
  return arguments;
}

int Run(CommandRun& run) {
  for (const char* name : {"tokenizer", "output"}) {
    if (!run.flags().Has(name)) return run.UsageError(absl::StrCat("--", name, " is missing"));
  }
  return RunBeside(run, "fsdp-tokenize", Arguments(run.flags()), "tokenize");
}

}  // namespace

Command TokenizeCommand() {
  Command command;
  command.name = "tokenize";
  command.summary = "Turn text into token files to train on; needs no cluster";
  command.arguments = "FILE|DIR|GLOB...";
  command.argument_kind = ArgumentKind::kFile;
  command.min_arguments = 1;
  command.max_arguments = -1;
  command.description =
      "Runs fsdp-tokenize from beside fsdpctl. A text file is a document, and so is a line of\n"
      "JSONL. The shards have llm.c's header: uint16 ids for a vocabulary of up to 65536, else\n"
      "uint32. A run that was interrupted, or killed, goes on where it was when it is started\n"
      "again; finished shards are not written again.";
  command.flags = {
      {.name = "tokenizer",
       .kind = FlagKind::kFile,
       .value_name = "PATH",
       .help =
           "tokenizer.json (byte-level BPE), a SentencePiece model, a folder with one, or bytes"},
      {.name = "output",
       .kind = FlagKind::kFile,
       .value_name = "DIR",
       .help = "Where the shards and manifest.json go"},
      {.name = "shard-tokens",
       .kind = FlagKind::kInt,
       .value_name = "N",
       .help = "Tokens in a shard (default 100000000); one shard is held in memory",
       .min_value = 1},
      {.name = "threads",
       .kind = FlagKind::kInt,
       .value_name = "N",
       .help = "Threads (default all cores)",
       .min_value = 1,
       .max_value = FlagSpec::kMaxInt},
      {.name = "document-separator",
       .kind = FlagKind::kString,
       .value_name = "TOKEN",
       .help = "auto (the end-of-text token), none, a token or an id (default auto)"},
      {.name = "separator-position",
       .kind = FlagKind::kChoice,
       .help = "Where a document's separator stands",
       .default_value = "after",
       .choices = {"after", "before"}},
      {.name = "special-tokens",
       .kind = FlagKind::kChoice,
       .help = "Names of special tokens in the text are those tokens, or ordinary text",
       .default_value = "parse",
       .choices = {"parse", "text"}},
      {.name = "format",
       .kind = FlagKind::kChoice,
       .help = "auto: JSONL by its name, else text",
       .default_value = "auto",
       .choices = {"auto", "text", "jsonl"}},
      {.name = "text-field",
       .kind = FlagKind::kString,
       .value_name = "NAME",
       .help = "Of JSONL (default text)"},
      {.name = "overwrite", .help = "Remove what another run left in the output first"}};
  command.examples = {
      {"fsdpctl tokenize --tokenizer qwen/ --output tokens corpus.jsonl",
       "then data.path: tokens/tokens_*.bin"},
      {"fsdpctl tokenize --tokenizer tokenizer.model --output tokens books/ 'more/*.txt'",
       "files, folders and globs"},
      {"fsdpctl tokenize --tokenizer llama3/ --output tokens --document-separator "
       "'<|begin_of_text|>' --separator-position before corpus.jsonl",
       "documents as llm.c's data has them"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp
