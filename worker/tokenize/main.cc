// fsdp-tokenize: text to token files, once, before training. `fsdpctl tokenize` runs it.

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"
#include "worker/tokenize/job_mode.h"
#include "worker/tokenize/progress_bar.h"
#include "worker/tokenize/token_shards.h"
#include "worker/tokenize/tokenize_run.h"
#include "worker/train/tool_flags.h"

namespace fsdp {
namespace {

// fsdpctl's codes.
constexpr int kInternal = 1;
constexpr int kUsageError = 2;
constexpr int kNotFound = 102;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

constexpr char kUsage[] =
    "fsdp-tokenize: text to token files in llm.c's format\n"
    "\n"
    "  fsdp-tokenize --tokenizer PATH --output DIR FILE|DIR|GLOB...\n"
    "  fsdp-tokenize encode --tokenizer PATH FILE...       prints the ids, a line for a document\n"
    "\n"
    "  --tokenizer PATH           tokenizer.json (byte-level BPE), a SentencePiece model, a "
    "folder\n"
    "                             with one of them, or bytes\n"
    "  --output DIR               shards, then manifest.json; a run that was killed goes on there\n"
    "  --shard-tokens N           tokens in a shard (default 100000000)\n"
    "  --threads N                default: all cores\n"
    "  --document-separator T     auto (the end-of-text token), none, a token or an id\n"
    "  --separator-position P     after (default) or before each document\n"
    "  --special-tokens S         parse (default): their names in the text are the tokens; or "
    "text\n"
    "  --format F                 auto (by name), text (a file is a document) or jsonl\n"
    "  --text-field NAME          of JSONL (default text)\n"
    "  --vocab-limit N            refuse a tokenizer with ids of N and more\n"
    "  --overwrite                remove what another run left in DIR\n"
    "  --for-job KEY              as fsdp-trainer runs it: sources from standard input, each with "
    "a\n"
    "                             NUL behind it, JSON lines out; KEY stands for their content\n"
    "  --version, --help\n"
    "\n"
    "  fsdp-tokenize --tokenizer qwen/tokenizer.json --output tokens corpus.jsonl\n"
    "  fsdp-tokenize --tokenizer bytes --output tokens '/usr/share/doc/**'\n";

int Fail(const absl::Status& status) {
  std::cerr << "fsdp-tokenize: " << status.message() << "\n";
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return kUsageError;
    case absl::StatusCode::kNotFound:
      return kNotFound;
    default:
      return kInternal;
  }
}

// A job gives an id; "10" may be a token too.
absl::StatusOr<std::optional<TokenId>> SeparatorOf(const std::string& text, bool for_job,
                                                   const Tokenizer& tokenizer) {
  if (text == "none") return std::optional<TokenId>();
  if (text == "auto") {
    if (tokenizer.takes_any_bytes() || tokenizer.end_of_text().has_value()) {
      return tokenizer.end_of_text();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the tokenizer does not say which token ends a text; ",
                     for_job ? "give its id as data.documentSeparator"
                             : "name it with --document-separator, or give none"));
  }
  if (const auto found = tokenizer.Find(text); found.has_value() && !for_job) return found;
  TokenId id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error == std::errc() && end == text.data() + text.size() && id < tokenizer.vocab_size()) {
    return std::optional(id);
  }
  return absl::InvalidArgumentError(
      for_job ? absl::StrCat("data.documentSeparator ", text, " is no id below the tokenizer's ",
                             tokenizer.vocab_size())
              : absl::StrCat("--document-separator ", text, " is neither a token nor an id below ",
                             tokenizer.vocab_size(), "; auto and none are also allowed"));
}

absl::Status CheckVocabulary(const ToolFlags& flags, const LoadedTokenizer& loaded) {
  ASSIGN_OR_RETURN(const std::int64_t limit, flags.Integer("vocab-limit", kNoLimit, 1, kNoLimit));
  if (loaded.tokenizer->vocab_size() <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      flags.Has("for-job")
          ? absl::StrCat(loaded.path, " has ids up to ", loaded.tokenizer->vocab_size() - 1,
                         ", and model.vocabSize is ", limit, "; it must be at least ",
                         loaded.tokenizer->vocab_size())
          : absl::StrCat(loaded.path, " has ids up to ", loaded.tokenizer->vocab_size() - 1,
                         ", and --vocab-limit is ", limit));
}

absl::StatusOr<TokenizeOptions> OptionsFrom(const ToolFlags& flags) {
  TokenizeOptions options;
  ASSIGN_OR_RETURN(const std::string special,
                   flags.Choice("special-tokens", "parse", {"parse", "text"}));
  ASSIGN_OR_RETURN(const std::string position,
                   flags.Choice("separator-position", "after", {"after", "before"}));
  ASSIGN_OR_RETURN(const std::string format,
                   flags.Choice("format", "auto", {"auto", "text", "jsonl"}));
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  ASSIGN_OR_RETURN(const std::int64_t threads,
                   flags.Integer("threads", std::max<std::int64_t>(cores, 1), 1, 1024));
  ASSIGN_OR_RETURN(options.shard_tokens,
                   flags.Integer("shard-tokens", options.shard_tokens, 1, kMaxTokensInFile));
  if (!flags.Has("tokenizer")) return absl::InvalidArgumentError("--tokenizer is missing");
  options.num_threads = static_cast<int>(threads);
  options.format = format == "text"    ? SourceFormat::kText
                   : format == "jsonl" ? SourceFormat::kJsonl
                                       : SourceFormat::kAuto;
  options.output = flags.Text("output", "");
  options.overwrite = flags.Has("overwrite");
  options.tokenizer_options.parse_special_tokens = special == "parse";
  options.documents.text_field = flags.Text("text-field", "text");
  options.documents.separator_first = position == "before";
  ASSIGN_OR_RETURN(options.tokenizer,
                   LoadTokenizer(flags.Text("tokenizer", ""), options.tokenizer_options));
  RETURN_IF_ERROR(CheckVocabulary(flags, options.tokenizer));
  const bool for_job = flags.Has("for-job");
  ASSIGN_OR_RETURN(
      options.documents.separator,
      SeparatorOf(flags.Text("document-separator", "auto"), for_job, *options.tokenizer.tokenizer));
  if (for_job) UseWordsOfJobs(&options.documents);
  options.content_key = flags.Text("for-job", "");
  return options;
}

void PrintResult(const TokenizeOptions& options, const TokenizeResult& result) {
  std::cout << absl::StrFormat(
      "%d tokens of %d documents (%.1f MB in %d files) in %d %s\n", result.tokens,
      result.counts.documents, static_cast<double>(result.counts.source_bytes) / 1e6,
      result.sources, result.shards, result.shards == 1 ? "shard" : "shards");
  if (result.counts.empty_documents > 0) {
    std::cout << "  " << result.counts.empty_documents << " empty documents left out\n";
  }
  if (result.counts.replaced > 0) {
    std::cout << "  " << result.counts.replaced
              << " sequences that are not UTF-8 replaced by U+FFFD\n";
  }
  if (result.was_complete) {
    std::cout << "  all of it was there already\n";
  } else {
    const double bytes = static_cast<double>(result.encoded_bytes) / 1e6;
    std::cout << absl::StrFormat("  %.1f s, %.1f MB/s, %.1f MB/s a core\n", result.wall_seconds,
                                 bytes / result.wall_seconds, bytes / result.cpu_seconds);
  }
  std::cout << "  vocabulary " << options.tokenizer.tokenizer->vocab_size()
            << "; data.path: " << options.output << "/tokens_*.bin\n";
}

int RunCommand(const ToolFlags& flags) {
  auto options = OptionsFrom(flags);
  if (options.ok() && options->output.empty()) {
    options = absl::InvalidArgumentError("--output is missing");
  }
  if (options.ok() && flags.positional().empty()) {
    options = absl::InvalidArgumentError("no files are named");
  }
  if (!options.ok()) return Fail(options.status());
  options->inputs = flags.positional();
  winsize size{};
  const int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0
                          ? static_cast<int>(size.ws_col)
                          : 80;
  ProgressBar bar(&std::cerr, isatty(STDERR_FILENO) == 1, columns, [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  });
  options->on_progress = [&bar](const TokenizeProgress& progress) { bar.Show(progress); };
  const auto result = RunTokenize(*options);
  bar.End();
  if (!result.ok()) return Fail(result.status());
  PrintResult(*options, *result);
  return 0;
}

// Under a trainer: docs of the protocol in job_mode.h.
int RunForJob(const ToolFlags& flags) {
  JobReporter reporter(&std::cout);
  auto options = OptionsFrom(flags);
  absl::Status status = options.status();
  if (!status.message().empty() && status.message().find("data.documentSeparator ") != 0) {
    status = Annotate(status, "data.tokenizer");
  }
  if (status.ok()) {
    auto names = ReadNames(std::cin);
    status = names.status();
    if (names.ok()) options->inputs = *std::move(names);
  }
  if (status.ok()) {
    options->on_progress = [&](const TokenizeProgress& progress) { reporter.Progress(progress); };
    status = RunTokenize(*options).status();
  }
  if (status.ok()) return 0;
  reporter.Failed(status);
  return kInternal;
}

int EncodeCommand(const ToolFlags& flags) {
  auto options = OptionsFrom(flags);
  if (!options.ok()) return Fail(options.status());
  options->documents.separator.reset();
  const std::vector<std::string> files(flags.positional().begin() + 1, flags.positional().end());
  const auto sources = FindSources(files, options->format);
  if (!sources.ok()) return Fail(sources.status());
  // A block for each document.
  const auto blocks = CutIntoBlocks(*sources, /*cuts_text=*/false, /*block_bytes=*/1);
  if (!blocks.ok()) return Fail(blocks.status());
  DocumentEncoder encoder(options->tokenizer.tokenizer, options->documents);
  for (const Block& block : *blocks) {
    std::vector<TokenId> ids;
    DocumentCounts counts;
    const absl::Status status = encoder.EncodeBlock((*sources)[block.file], block, &ids, &counts);
    if (!status.ok()) return Fail(status);
    std::cout << absl::StrJoin(ids, " ") << "\n";
  }
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  const auto flags = ToolFlags::Parse(
      arguments,
      {"tokenizer", "output", "shard-tokens", "threads", "document-separator", "separator-position",
       "special-tokens", "format", "text-field", "vocab-limit", "for-job"},
      {"overwrite", "version", "help"});
  if (!flags.ok()) return Fail(flags.status());
  if (flags->Has("help") || arguments.empty()) {
    (arguments.empty() ? std::cerr : std::cout) << kUsage;
    return arguments.empty() ? kUsageError : 0;
  }
  if (flags->Has("version")) {
    std::cout << "fsdp-tokenize " << FSDP_VERSION << "\n";
    return 0;
  }
  const bool encode = !flags->positional().empty() && flags->positional()[0] == "encode";
  const int exit_code = encode                  ? EncodeCommand(*flags)
                        : flags->Has("for-job") ? RunForJob(*flags)
                                                : RunCommand(*flags);
  std::cout.flush();
  // A full disk or a closed pipe must not look like success.
  return exit_code == 0 && std::cout.fail() ? kInternal : exit_code;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  return fsdp::Main({argv + 1, argv + argc});
}
