#include "worker/train/model_files.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/weight_reader.h"
#include "worker/plan/config_json.h"
#include "worker/train/engine.h"

namespace fsdp {
namespace {

constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer.model",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "chat_template.jinja",
                                           "chat_template.json"};
constexpr char kGenerationName[] = "generation_config.json";
// Tokens that the logits of an export are compared on.
constexpr std::int64_t kVerifyTokens = 32;

nlohmann::json ReadJson(BlobStore& store, const std::string& path) {
  const auto reader = store.Open(path);
  if (!reader.ok()) return {};
  std::string text((*reader)->size_bytes(), '\0');
  if (!(*reader)->ReadAt(0, std::as_writable_bytes(std::span(text))).ok()) return {};
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

absl::Status CopyFile(BlobStore& store, const std::string& from, const std::string& to) {
  ASSIGN_OR_RETURN(const auto reader, store.Open(from));
  std::string text(reader->size_bytes(), '\0');
  RETURN_IF_ERROR(reader->ReadAt(0, std::as_writable_bytes(std::span(text))));
  return WriteTextFile(store, to, text);
}

const char* TorchName(const std::string& dtype) {
  if (dtype == "BF16") return "bfloat16";
  return dtype == "F16" ? "float16" : "float32";
}

// What rounding every weight once may change in the logits, norm-wise: some ten layers' worth of
// it. In fp32 nothing is rounded.
double ToleranceOf(const std::string& dtype) {
  if (dtype == "BF16") return 2e-2;
  return dtype == "F16" ? 5e-3 : 1e-6;
}

class Export {
 public:
  Export(const ModelExport& request, BlobStore& store, Device& device)
      : request_(request), store_(store), device_(device) {}

  absl::StatusOr<ExportReport> Run() {
    const std::string& target = request_.directory;
    if (std::filesystem::exists(target)) {
      return absl::AlreadyExistsError(absl::StrCat(target, " exists: give another --output"));
    }
    temporary_ = absl::StrFormat("%s.tmp.%d", target, ::getpid());
    RETURN_IF_ERROR(store_.CreateDirectory(temporary_));
    absl::Status status = Write();
    if (status.ok() && request_.verify) status = Verify();
    if (status.ok()) status = Finish();
    if (!status.ok()) {
      store_.RemoveTree(temporary_).IgnoreError();
      return status;
    }
    return report_;
  }

 private:
  absl::Status Write() {
    const std::vector<ShardTensor> tensors = TensorsOf(request_.model);
    ASSIGN_OR_RETURN(const auto reader,
                     WeightReader::Open(store_, request_.source, tensors, device_));
    RETURN_IF_ERROR(WriteConfigs());
    RETURN_IF_ERROR(CopyTokenizer());
    RETURN_IF_ERROR(ExportWeights(store_, *reader, tensors, temporary_, request_.weights));
    return store_.SyncDirectory(temporary_);
  }

  [[nodiscard]] std::string Path(const char* name) const {
    return absl::StrCat(temporary_, "/", name);
  }

  absl::Status WriteConfigs() {
    ConfigJsonOptions options;
    options.dtype = TorchName(request_.weights.dtype);
    options.max_positions = request_.max_positions;
    ASSIGN_OR_RETURN(nlohmann::json config, ModelToConfigJson(request_.model, options));
    nlohmann::json generation = {{"_from_model_config", true}};
    if (!request_.tokenizer.empty()) {
      const nlohmann::json theirs =
          ReadJson(store_, absl::StrCat(request_.tokenizer, "/", kConfigName));
      for (const char* name : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
        if (!theirs.is_object() || !theirs.contains(name)) continue;
        config[name] = generation[name] = theirs[name];
      }
    }
    RETURN_IF_ERROR(WriteTextFile(store_, Path(kConfigName), config.dump(2) + "\n"));
    return WriteTextFile(store_, Path(kGenerationName), generation.dump(2) + "\n");
  }

  absl::Status CopyTokenizer() {
    if (request_.tokenizer.empty()) return absl::OkStatus();
    int copied = 0;
    for (const char* name : kTokenizerFiles) {
      const std::string from = absl::StrCat(request_.tokenizer, "/", name);
      if (!std::filesystem::exists(from)) continue;
      RETURN_IF_ERROR(CopyFile(store_, from, Path(name)));
      ++copied;
    }
    if (copied == 0) {
      return absl::NotFoundError(absl::StrCat(
          request_.tokenizer, " holds no tokenizer.json, tokenizer.model or the like"));
    }
    // Theirs says more than token ids.
    const std::string generation = absl::StrCat(request_.tokenizer, "/", kGenerationName);
    if (!std::filesystem::exists(generation)) return absl::OkStatus();
    return CopyFile(store_, generation, Path(kGenerationName));
  }

  absl::StatusOr<std::vector<float>> LogitsOf(const ModelConfig& model, const std::string& path,
                                              const TokenBatch& batch) {
    std::vector<float> logits;
    RETURN_IF_ERROR(ComputeLogits(model, path, batch, DType::kF32, store_, device_,
                                  [&](std::int64_t, std::span<const float> values) {
                                    logits.assign(values.begin(), values.end());
                                    return absl::OkStatus();
                                  }));
    return logits;
  }

  // From what was written alone: its own config.json, its own weights.
  absl::Status Verify() {
    ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(temporary_));
    TokenBatch batch;
    batch.sequences = 1;
    batch.sequence_length =
        model.max_positions > 0 ? std::min(kVerifyTokens, model.max_positions) : kVerifyTokens;
    for (std::int64_t i = 0; i < batch.sequence_length; ++i) {
      batch.tokens.push_back(static_cast<std::int32_t>((i * 7919 + 13) % model.vocab_size));
    }
    ASSIGN_OR_RETURN(const std::vector<float> wanted,
                     LogitsOf(request_.model, request_.source, batch));
    ASSIGN_OR_RETURN(const std::vector<float> got, LogitsOf(model, temporary_, batch));
    double difference = 0;
    double size = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      difference += std::pow(double{got[i]} - double{wanted[i]}, 2);
      size += std::pow(double{wanted[i]}, 2);
    }
    report_.logits_error = std::sqrt(difference / std::max(size, 1e-300));
    const double tolerance = ToleranceOf(request_.weights.dtype);
    if (report_.logits_error <= tolerance) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrFormat("the export's logits differ from the source's by %.3g (norm-wise), more "
                        "than the %.3g that %s explains",
                        report_.logits_error, tolerance, request_.weights.dtype));
  }

  absl::Status Finish() {
    ASSIGN_OR_RETURN(report_.files, store_.List(temporary_));
    std::error_code error;
    std::filesystem::rename(temporary_, request_.directory, error);
    if (error) {
      return ErrnoToStatus(error.value(), absl::StrCat("rename(", request_.directory, ")"));
    }
    const std::string parent = std::filesystem::path(request_.directory).parent_path().string();
    return store_.SyncDirectory(parent.empty() ? "." : parent);
  }

  const ModelExport& request_;
  BlobStore& store_;
  Device& device_;
  std::string temporary_;
  ExportReport report_;
};

}  // namespace

std::vector<ShardTensor> TensorsOf(const ModelConfig& model) {
  std::vector<ShardTensor> tensors;
  for (const UnitSpec& unit : UnitsOf(model)) {
    for (const ParameterSpec& parameter : unit.parameters) {
      ShardTensor tensor;
      tensor.name = parameter.name;
      tensor.shape = parameter.shape;
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

absl::Status WriteModelConfig(BlobStore& store, const std::string& directory,
                              const ModelConfig& model, std::int64_t sequence_length) {
  ConfigJsonOptions options;
  options.max_positions = sequence_length;
  const absl::StatusOr<nlohmann::json> config = ModelToConfigJson(model, options);
  if (!config.ok()) {
    LOG_WARNING("%s gets no %s: %s", directory, kConfigName,
                std::string(config.status().message()));
    return absl::OkStatus();
  }
  return WriteTextFile(store, absl::StrCat(directory, "/", kConfigName), config->dump(2) + "\n");
}

absl::StatusOr<TokenBatch> ReadTokens(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(path));
  ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, file->Get("tokens"));
  const std::vector<std::int64_t>& shape = tensor->shape;
  if (shape.empty() || shape.size() > 2 || tensor->num_elements() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": tokens must be [sequence] or [batch, sequence], and not empty"));
  }
  ASSIGN_OR_RETURN(const std::vector<std::int64_t> wide, file->ReadIntegers(*tensor));
  TokenBatch batch;
  batch.sequences = shape.size() == 2 ? shape[0] : 1;
  batch.sequence_length = shape.back();
  for (const std::int64_t token : wide) {
    if (token < 0 || token > INT32_MAX) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", token, " is no token"));
    }
    batch.tokens.push_back(static_cast<std::int32_t>(token));
  }
  return batch;
}

absl::Status ComputeLogits(
    const ModelConfig& model, const std::string& path, const TokenBatch& batch, DType dtype,
    BlobStore& store, Device& device,
    const std::function<absl::Status(std::int64_t, std::span<const float>)>& take) {
  PlanInput input;
  input.model = model;
  input.sequence_length = batch.sequence_length;
  input.global_batch = 1;
  input.parameter_dtype = dtype;
  ASSIGN_OR_RETURN(const Plan plan, Engine::PlanFor(input, device));
  ASSIGN_OR_RETURN(const auto engine, Engine::Create(plan, {}, device, nullptr, nullptr));
  ASSIGN_OR_RETURN(const std::vector<ShardTensor> weights, engine->OpenWeights());
  RETURN_IF_ERROR(LoadWeights(store, path, weights, device));
  RETURN_IF_ERROR(engine->WeightsChanged());
  const auto length = static_cast<std::size_t>(batch.sequence_length);
  std::vector<float> logits(length * static_cast<std::size_t>(model.vocab_size));
  const std::span<const std::int32_t> tokens(batch.tokens);
  for (std::int64_t i = 0; i < batch.sequences; ++i) {
    RETURN_IF_ERROR(
        engine->Logits(tokens.subspan(static_cast<std::size_t>(i) * length, length), logits));
    RETURN_IF_ERROR(take(i, logits));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExportReport> ExportModel(const ModelExport& request, BlobStore& store,
                                         Device& device) {
  return Export(request, store, device).Run();
}

}  // namespace fsdp
