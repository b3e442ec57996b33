#include "worker/train/trainer_data.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/data/text_files.h"
#include "worker/train/trainer_errors.h"

namespace fsdp {
namespace {

// A path of the job, and the field that names it.
struct NamedPath {
  std::string field;
  std::string path;
};

std::vector<NamedPath> AllPaths(const v1::DataSpec& data) {
  std::vector<NamedPath> paths;
  const auto add = [&paths](std::string field, const std::string& path) {
    if (!path.empty()) paths.push_back({std::move(field), path});
  };
  add("data.path", data.path());
  for (int i = 0; i < data.mixture_size(); ++i) {
    add(absl::StrFormat("data.mixture[%d].path", i), data.mixture(i).path());
  }
  add("data.validationPath", data.validation_path());
  for (int i = 0; i < data.evaluation_sets_size(); ++i) {
    add(absl::StrFormat("data.evaluationSets[%d].path", i), data.evaluation_sets(i).path());
  }
  return paths;
}

using TokensByPath = std::map<std::string, TokenizedText>;

absl::StatusOr<TokensByPath> TokenizeAll(const v1::DataSpec& data, std::int64_t vocab_size,
                                         const TokenCacheOptions& cache) {
  TokenCacheOptions options = cache;
  if (!data.cache_dir().empty()) options.directory = data.cache_dir();
  if (options.directory.empty()) {
    return absl::FailedPreconditionError(
        "data.cacheDir: there is no folder to keep the tokens in (no home): give one");
  }
  TextToTokens text;
  if (!data.tokenizer().empty()) text.tokenizer = data.tokenizer();
  if (!data.text_field().empty()) text.text_field = data.text_field();
  if (data.has_document_separator()) text.separator = data.document_separator();
  text.vocab_size = vocab_size;
  TokensByPath tokens;
  for (NamedPath& named : AllPaths(data)) {
    if (tokens.contains(named.path)) continue;
    text.field = std::move(named.field);
    text.path = named.path;
    ASSIGN_OR_RETURN(tokens[named.path], TokenizeOnce(text, options));
  }
  return tokens;
}

// The text's tokens take its place.
void ReadTokensOf(const TokensByPath& tokens, DataOptions* options) {
  options->source = SourceKind::kTokens;
  for (const auto& [path, made] : tokens) {
    options->tokens_of_text[path] = {made.folder, made.text_hash};
    // The same for all: of one tokenizer, or the job's.
    options->document_separator = made.separator;
  }
}

std::optional<double> BytesPerToken(const v1::DataSpec& data, const TokensByPath& tokens) {
  const std::string& path = data.validation_path().empty() ? data.path() : data.validation_path();
  const auto found = tokens.find(path);
  if (found == tokens.end() || found->second.tokens == 0 || found->second.text_bytes == 0) {
    return std::nullopt;
  }
  return static_cast<double>(found->second.text_bytes) / static_cast<double>(found->second.tokens);
}

}  // namespace

std::string TokenizeProgram() {
  char self[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", self, sizeof(self));
  const std::string path(self, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return absl::StrCat(path.substr(0, path.rfind('/') + 1), "fsdp-tokenize");
}

std::string TokenCacheDirectory(const std::string& cache_dir) {
  if (!cache_dir.empty()) return absl::StrCat(cache_dir, "/tokens");
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return absl::StrCat(cache, "/fsdpctl/tokens");
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? absl::StrCat(home, "/.cache/fsdpctl/tokens") : "";
}

bool NeedsTokenizer(const v1::DataSpec& data) {
  if (data.source() != v1::DATA_SOURCE_TEXT) return false;
  if (!data.tokenizer().empty()) return true;
  const std::vector<NamedPath> paths = AllPaths(data);
  return std::any_of(paths.begin(), paths.end(),
                     [](const NamedPath& named) { return NamesJsonl(named.path); });
}

absl::StatusOr<JobData> OpenJobData(const v1::JobSpec& spec, std::int64_t vocab_size,
                                    const DataAccess& access) {
  const v1::DataSpec& data = spec.data();
  DataOptions options = DataOptionsFromSpec(spec, vocab_size);
  JobData opened;
  TokensByPath tokens;
  if (NeedsTokenizer(data)) {
    absl::StatusOr<TokensByPath> made = TokenizeAll(data, vocab_size, access.cache);
    // Killed from outside, or for want of memory: infrastructure. It goes on when it is restarted.
    if (absl::IsAborted(made.status())) {
      return WithCause(made.status(), v1::FAILURE_CAUSE_RANK_DIED);
    }
    RETURN_IF_ERROR(made.status());
    tokens = *std::move(made);
    ReadTokensOf(tokens, &options);
    opened.bytes_per_token = BytesPerToken(data, tokens);
  } else if (data.source() == v1::DATA_SOURCE_TEXT) {
    opened.bytes_per_token = 1;
  }
  ASSIGN_OR_RETURN(opened.set, access.open ? access.open(options) : OpenData(options));
  return opened;
}

DataOptions DataOptionsFromSpec(const v1::JobSpec& spec, std::int64_t vocab_size) {
  const v1::DataSpec& data = spec.data();
  DataOptions options;
  options.source = data.source() == v1::DATA_SOURCE_TOKENS ? SourceKind::kTokens
                   : data.source() == v1::DATA_SOURCE_TEXT ? SourceKind::kText
                                                           : SourceKind::kSynthetic;
  options.path = data.path();
  for (const v1::DataMixture& part : data.mixture()) {
    options.mixture.push_back({part.name(), part.path(), part.weight()});
  }
  options.token_bytes = data.token_dtype() == v1::TOKEN_D_TYPE_UINT32 ? 4 : 2;
  options.sequence_length = data.sequence_length();
  options.validation_fraction = data.validation_fraction();
  options.validation_path = data.validation_path();
  for (const v1::DataMixture& set : data.evaluation_sets()) {
    options.evaluation_sets.push_back({set.name(), set.path(), 0});
  }
  options.shuffle = !data.has_shuffle() || data.shuffle();
  options.targets = data.targets() == v1::TARGET_KIND_INDEPENDENT ? TargetRule::kIndependent
                                                                  : TargetRule::kNextToken;
  options.mask_document_ends = data.mask_document_ends();
  options.reset_attention = data.reset_attention();
  if (data.has_document_separator()) options.document_separator = data.document_separator();
  options.vocab_size = vocab_size;
  options.seed = spec.train().seed();
  return options;
}

}  // namespace fsdp
