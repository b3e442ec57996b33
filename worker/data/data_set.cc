#include "worker/data/data_set.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/data/byte_stream.h"
#include "worker/data/content_hash.h"
#include "worker/data/mixture_source.h"
#include "worker/data/permutation.h"
#include "worker/data/stream_source.h"
#include "worker/data/synthetic_source.h"

namespace fsdp {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::int64_t kByteVocabulary = 256;
// Changes when the meaning of a position does.
constexpr std::uint64_t kIndexingVersion = 1;
// What the proof takes for reset_attention; no separator is as large.
constexpr std::uint64_t kResetAttention = std::uint64_t{1} << 32;

absl::Status CheckOptions(const DataOptions& options) {
  if (options.sequence_length < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("data.sequenceLength is %d; give at least 1", options.sequence_length));
  }
  if (options.vocab_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("model.vocabSize is %d; give at least 1", options.vocab_size));
  }
  if (!(options.validation_fraction >= 0 && options.validation_fraction <= 0.5)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "data.validationFraction is %g; it lies in 0..0.5", options.validation_fraction));
  }
  if (!options.validation_path.empty() && options.validation_fraction > 0) {
    return absl::InvalidArgumentError(
        "data.validationPath and data.validationFraction exclude each other; give one");
  }
  if (options.source == SourceKind::kSynthetic) return absl::OkStatus();
  if (!options.path.empty() && !options.mixture.empty()) {
    return absl::InvalidArgumentError("data.path and data.mixture exclude each other; give one");
  }
  if (options.path.empty() && options.mixture.empty()) {
    return absl::InvalidArgumentError("data.path is empty; name the file to train on");
  }
  for (std::size_t i = 0; i < options.mixture.size(); ++i) {
    if (!options.mixture[i].path.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("data.mixture[%d].path is empty; name the file to train on", i));
  }
  if (options.targets == TargetRule::kIndependent) {
    return absl::InvalidArgumentError(
        "data.targets is independent; that is for synthetic data only: use next_token");
  }
  if (options.source == SourceKind::kTokens && options.token_bytes != 2 &&
      options.token_bytes != 4) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tokens of %d bytes; use uint16 or uint32", options.token_bytes));
  }
  if (options.source == SourceKind::kText && options.vocab_size < kByteVocabulary) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "model.vocabSize is %d; text by bytes needs at least 256", options.vocab_size));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<BatchSource>> MakeSplit(StreamSourceOptions options,
                                                       const char* which,
                                                       const std::string& field) {
  if (options.num_tokens < options.sequence_length + 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %s: the %s split has %d tokens; one sequence of data.sequenceLength %d needs %d: give "
        "more data, shorter sequences or another data.validationFraction",
        field, options.stream->path(), which, options.num_tokens, options.sequence_length,
        options.sequence_length + 1));
  }
  return std::make_unique<StreamSource>(std::move(options));
}

void SetPath(const DataOptions& options, std::string field, std::string path,
             CorpusOptions* corpus) {
  corpus->field = std::move(field);
  corpus->path = std::move(path);
  const auto tokens = options.tokens_of_text.find(corpus->path);
  if (tokens == options.tokens_of_text.end()) return;
  corpus->token_folder = tokens->second.folder;
  corpus->text_hash = tokens->second.text_hash;
}

// The paths that are trained on.
std::vector<CorpusOptions> TrainingPaths(const DataOptions& options) {
  CorpusOptions corpus;
  corpus.source = options.source;
  corpus.raw_token_bytes = options.token_bytes;
  corpus.vocab_size = options.vocab_size;
  if (options.mask_document_ends) corpus.documents_for = "data.maskDocumentEnds";
  if (options.reset_attention) corpus.documents_for = "data.resetAttention";
  corpus.separator = options.document_separator;
  SetPath(options, "data.path", options.path, &corpus);
  if (options.mixture.empty()) return {corpus};
  std::vector<CorpusOptions> paths;
  for (std::size_t i = 0; i < options.mixture.size(); ++i) {
    SetPath(options, absl::StrFormat("data.mixture[%d].path", i), options.mixture[i].path, &corpus);
    paths.push_back(corpus);
  }
  return paths;
}

CorpusOptions EvaluationPath(const DataOptions& options, std::string field, std::string path) {
  CorpusOptions corpus = TrainingPaths(options).front();
  SetPath(options, std::move(field), std::move(path), &corpus);
  return corpus;
}

std::string EvaluationSetField(std::size_t index) {
  return absl::StrFormat("data.evaluationSets[%d].path", index);
}

// Are the two, as far as is known, of one tokenizer?
absl::Status CheckAlike(const CorpusOptions& path, const Corpus& corpus,
                        const CorpusOptions& other_path, const Corpus& other) {
  if (!corpus.tokenizer.empty() && !other.tokenizer.empty() &&
      corpus.tokenizer != other.tokenizer) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %s was made with the tokenizer %s, %s with %s: make them again with the same",
        path.field, path.path, corpus.tokenizer, other_path.path, other.tokenizer));
  }
  return absl::OkStatus();
}

absl::Status CheckAllAlike(const std::vector<CorpusOptions>& paths,
                           const std::vector<Corpus>& corpora) {
  for (std::size_t i = 1; i < corpora.size(); ++i) {
    RETURN_IF_ERROR(CheckAlike(paths[i], corpora[i], paths[0], corpora[0]));
    if (corpora[i].token_bytes == corpora[0].token_bytes) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %s has tokens of %d bytes, %s of %d: they are not of one tokenizer; make them again "
        "with the same",
        paths[i].field, paths[i].path, corpora[i].token_bytes, paths[0].path,
        corpora[0].token_bytes));
  }
  return absl::OkStatus();
}

// Training data, opened and read through, and the proof of all that decides what a position means.
struct ProvenData {
  std::vector<CorpusOptions> paths;
  std::vector<Corpus> corpora;
  std::vector<std::uint64_t> fingerprints;  // of the bytes of each, where there are several
  std::shared_ptr<const MixtureCycle> cycle;
  std::optional<Corpus> validation;
  std::vector<Corpus> evaluation_sets;
  std::uint64_t fingerprint = 0;
};

// One that is not trained on: is it of the same tokens, and which bytes are they?
absl::StatusOr<Corpus> OpenEvaluation(const CorpusOptions& path, const ProvenData& data,
                                      ContentHash* hash) {
  ASSIGN_OR_RETURN(Corpus corpus, OpenCorpus(path));
  RETURN_IF_ERROR(CheckAlike(path, corpus, data.paths.front(), data.corpora.front()));
  RETURN_IF_ERROR(ScanCorpus(path, &corpus, hash));
  return corpus;
}

absl::Status Prove(const DataOptions& options, ProvenData* data) {
  ContentHash hash;
  hash.AddNumber(kIndexingVersion);
  hash.AddNumber(static_cast<std::uint64_t>(data->corpora.front().token_bytes));
  hash.AddNumber(static_cast<std::uint64_t>(options.sequence_length));
  hash.AddNumber(std::bit_cast<std::uint64_t>(options.validation_fraction));
  hash.AddNumber(options.shuffle ? options.seed + 1 : 0);
  if (options.mask_document_ends) {
    hash.AddNumber(static_cast<std::uint64_t>(options.document_separator.value_or(-1)));
  }
  if (options.reset_attention) {
    hash.AddNumber(kResetAttention);
    hash.AddNumber(static_cast<std::uint64_t>(options.document_separator.value_or(-1)));
  }
  if (data->cycle == nullptr) {
    RETURN_IF_ERROR(ScanCorpus(data->paths.front(), &data->corpora.front(), &hash));
  } else {
    for (std::size_t i = 0; i < data->corpora.size(); ++i) {
      ContentHash own;
      RETURN_IF_ERROR(ScanCorpus(data->paths[i], &data->corpora[i], &own));
      data->fingerprints.push_back(own.Finish());
      hash.AddNumber(static_cast<std::uint64_t>(data->cycle->count(i)));
      hash.AddNumber(data->fingerprints.back());
    }
  }
  if (!options.validation_path.empty()) {
    const CorpusOptions path =
        EvaluationPath(options, "data.validationPath", options.validation_path);
    ASSIGN_OR_RETURN(data->validation, OpenEvaluation(path, *data, &hash));
  }
  for (std::size_t i = 0; i < options.evaluation_sets.size(); ++i) {
    const CorpusOptions path =
        EvaluationPath(options, EvaluationSetField(i), options.evaluation_sets[i].path);
    ASSIGN_OR_RETURN(Corpus corpus, OpenEvaluation(path, *data, &hash));
    data->evaluation_sets.push_back(std::move(corpus));
  }
  data->fingerprint = hash.Finish();
  return absl::OkStatus();
}

absl::StatusOr<ProvenData> OpenAndProve(const DataOptions& options) {
  ProvenData data;
  data.paths = TrainingPaths(options);
  if (!options.mixture.empty()) {
    std::vector<double> weights;
    weights.reserve(options.mixture.size());
    for (const MixturePart& part : options.mixture) weights.push_back(part.weight);
    ASSIGN_OR_RETURN(MixtureCycle cycle, MixtureCycle::Create(weights));
    data.cycle = std::make_shared<const MixtureCycle>(std::move(cycle));
  }
  for (const CorpusOptions& path : data.paths) {
    ASSIGN_OR_RETURN(Corpus corpus, OpenCorpus(path));
    data.corpora.push_back(std::move(corpus));
  }
  RETURN_IF_ERROR(CheckAllAlike(data.paths, data.corpora));
  RETURN_IF_ERROR(Prove(options, &data));
  return data;
}

// All of a path, in file order.
StreamSourceOptions WholePath(const DataOptions& options, const Corpus& corpus,
                              std::uint64_t fingerprint) {
  StreamSourceOptions whole;
  whole.stream = corpus.stream;
  whole.token_bytes = corpus.token_bytes;
  whole.num_tokens = corpus.num_tokens();
  whole.sequence_length = options.sequence_length;
  whole.vocab_size = options.source == SourceKind::kText ? kByteVocabulary : options.vocab_size;
  if (options.mask_document_ends || options.reset_attention) {
    whole.document_starts = corpus.document_starts;
  }
  whole.mask_document_starts = options.mask_document_ends;
  whole.identity = {corpus.stream->path(), corpus.stream->size_bytes(), fingerprint};
  return whole;
}

std::int64_t HeldBack(const DataOptions& options, const Corpus& corpus) {
  return static_cast<std::int64_t>(
      std::floor(static_cast<double>(corpus.num_tokens()) * options.validation_fraction));
}

absl::StatusOr<std::unique_ptr<BatchSource>> TrainingSplit(const DataOptions& options,
                                                           const ProvenData& data, std::size_t i) {
  StreamSourceOptions split = WholePath(options, data.corpora[i], data.fingerprint);
  split.num_tokens -= HeldBack(options, data.corpora[i]);
  split.shuffle = options.shuffle;
  // Sources of a mixture are not shuffled alike.
  split.seed =
      data.cycle == nullptr ? options.seed : PassKey(options.seed, static_cast<std::int64_t>(i));
  return MakeSplit(split, "training", data.paths[i].field);
}

absl::StatusOr<std::unique_ptr<BatchSource>> HeldBackSplit(const DataOptions& options,
                                                           const ProvenData& data, std::size_t i) {
  StreamSourceOptions split = WholePath(options, data.corpora[i], data.fingerprint);
  const std::int64_t held_back = HeldBack(options, data.corpora[i]);
  split.first_token = split.num_tokens - held_back;
  split.num_tokens = held_back;
  return MakeSplit(split, "validation", data.paths[i].field);
}

using Splits = std::vector<std::unique_ptr<BatchSource>>;

// The split that `make` makes of each path.
template <typename Make>
absl::StatusOr<Splits> EachSplit(const DataOptions& options, const ProvenData& data, Make make) {
  Splits splits;
  for (std::size_t i = 0; i < data.corpora.size(); ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<BatchSource> split, make(options, data, i));
    splits.push_back(std::move(split));
  }
  return splits;
}

// One split is what it is; several are drawn by weight.
std::unique_ptr<BatchSource> Join(const ProvenData& data, Splits splits,
                                  std::int64_t num_sequences) {
  if (data.cycle == nullptr) return std::move(splits.front());
  DataIdentity identity{"data.mixture", 0, data.fingerprint};
  for (const Corpus& corpus : data.corpora) identity.size_bytes += corpus.stream->size_bytes();
  return std::make_unique<MixtureSource>(data.cycle, std::move(splits), num_sequences,
                                         std::move(identity));
}

// Of a mixture's sources together.
std::int64_t SequencesOfAll(const Splits& splits) {
  std::int64_t sum = 0;
  for (const auto& split : splits) sum += split->num_sequences();
  return sum;
}

// Draws before the first of a mixture's sources comes round again.
std::int64_t SequencesUntilOneEnds(const ProvenData& data, const Splits& splits) {
  if (data.cycle == nullptr) return 0;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < splits.size(); ++i) {
    least = std::min(least, data.cycle->PositionOf({i, splits[i]->num_sequences()}));
  }
  return least;
}

std::vector<DataPart> DescribeParts(const DataOptions& options, const ProvenData& data,
                                    const Splits& training) {
  std::vector<DataPart> parts;
  for (std::size_t i = 0; i < options.mixture.size(); ++i) {
    const MixturePart& part = options.mixture[i];
    parts.push_back({part.name.empty() ? part.path : part.name,
                     {part.path, data.corpora[i].stream->size_bytes(), data.fingerprints[i]},
                     data.corpora[i].num_tokens(),
                     training[i]->num_sequences()});
  }
  return parts;
}

absl::StatusOr<DataSet> OpenFiles(const DataOptions& options) {
  ASSIGN_OR_RETURN(const ProvenData proven, OpenAndProve(options));
  DataSet data;
  data.cycle = proven.cycle;
  ASSIGN_OR_RETURN(Splits training, EachSplit(options, proven, TrainingSplit));
  data.parts = DescribeParts(options, proven, training);
  const std::int64_t pass = SequencesOfAll(training);
  data.train = Join(proven, std::move(training), pass);
  if (proven.validation.has_value()) {
    ASSIGN_OR_RETURN(data.validation,
                     MakeSplit(WholePath(options, *proven.validation, proven.fingerprint),
                               "validation", "data.validationPath"));
  } else if (options.validation_fraction > 0) {
    ASSIGN_OR_RETURN(Splits held_back, EachSplit(options, proven, HeldBackSplit));
    const std::int64_t all = SequencesUntilOneEnds(proven, held_back);
    data.validation = Join(proven, std::move(held_back), all);
  }
  for (std::size_t i = 0; i < proven.evaluation_sets.size(); ++i) {
    const MixturePart& set = options.evaluation_sets[i];
    ASSIGN_OR_RETURN(auto source,
                     MakeSplit(WholePath(options, proven.evaluation_sets[i], proven.fingerprint),
                               "evaluation", EvaluationSetField(i)));
    data.evaluation_sets.push_back({set.name.empty() ? set.path : set.name, std::move(source)});
  }
  return data;
}

}  // namespace

absl::StatusOr<DataSet> OpenData(const DataOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  if (options.source != SourceKind::kSynthetic) return OpenFiles(options);
  DataSet data;
  data.train = std::make_unique<SyntheticSource>(options);
  return data;
}

std::vector<PartUse> UseBefore(const DataSet& data, std::int64_t position) {
  std::vector<PartUse> uses;
  for (std::size_t i = 0; i < data.parts.size(); ++i) {
    const std::int64_t sequences = data.cycle->CountBefore(i, position);
    uses.push_back(
        {sequences, sequences * data.train->sequence_length(),
         static_cast<double>(sequences) / static_cast<double>(data.parts[i].num_sequences)});
  }
  return uses;
}

absl::StatusOr<std::optional<EntropyStats>> SplitEntropy(const BatchSource& split) {
  const auto* stream = dynamic_cast<const StreamSource*>(&split);
  if (stream == nullptr || stream->num_tokens() > kMaxEntropyTokens) {
    return std::optional<EntropyStats>();
  }
  ASSIGN_OR_RETURN(const std::vector<std::uint32_t> tokens, stream->ReadAll());
  return std::optional<EntropyStats>(ComputeEntropy(tokens));
}

}  // namespace fsdp
