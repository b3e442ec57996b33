#include "worker/train/model_tools.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/checkpoint/catalog.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/plan/config_json.h"
#include "worker/train/model_files.h"
#include "worker/train/tool_flags.h"
#include "worker/train/tool_model.h"

namespace fsdp {
namespace {

constexpr int kDone = 0, kFailed = 1, kUsage = 2;

int Fail(const char* tool, const absl::Status& status) {
  std::fprintf(stderr, "fsdp-trainer %s: %s\n", tool, std::string(status.message()).c_str());
  const bool theirs = absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
                      absl::IsAlreadyExists(status) || absl::IsFailedPrecondition(status);
  return theirs ? kUsage : kFailed;
}

// A job's folder stands for its newest checkpoint.
absl::StatusOr<std::string> SourceOf(BlobStore& store, const std::string& path) {
  const absl::StatusOr<std::vector<CatalogEntry>> entries = ListCheckpoints(store, path);
  if (!entries.ok() || entries->empty()) return path;
  ASSIGN_OR_RETURN(const CatalogEntry newest, FindNewestCheckpoint(store, path));
  return newest.path;
}

// "5GB", "512MB", "1000000".
absl::StatusOr<std::int64_t> ParseSize(const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::int64_t value = 0;
  std::int64_t unit = 1;
  const std::string suffix = text.substr(digits);
  if (suffix == "KB") unit = 1'000;
  if (suffix == "MB") unit = 1'000'000;
  if (suffix == "GB") unit = 1'000'000'000;
  const bool known = suffix.empty() || unit > 1;
  if (!known || !absl::SimpleAtoi(text.substr(0, digits), &value) || value < 1 ||
      value > INT64_MAX / unit) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max-shard-size ", text, " is no size such as 5GB or 500MB"));
  }
  return value * unit;
}

absl::StatusOr<std::string> Required(const ToolFlags& flags, const char* name) {
  if (!flags.Has(name)) return absl::InvalidArgumentError(absl::StrCat("give --", name));
  return flags.Text(name, "");
}

absl::Status RunLogits(std::span<const std::string> arguments, const LocalBackend& backend) {
  ASSIGN_OR_RETURN(
      const ToolFlags flags,
      ToolFlags::Parse(arguments, {"model", "weights", "tokens", "output", "precision", "device"},
                       {}));
  ASSIGN_OR_RETURN(const std::string name, Required(flags, "model"));
  ASSIGN_OR_RETURN(const std::string tokens, Required(flags, "tokens"));
  ASSIGN_OR_RETURN(const std::string output, Required(flags, "output"));
  ASSIGN_OR_RETURN(const std::string precision,
                   flags.Choice("precision", "fp32", {"fp32", "bf16"}));
  BlobStore& store = BlobStore::Posix();
  ASSIGN_OR_RETURN(const ModelConfig model, NamedModel(name));
  ASSIGN_OR_RETURN(const std::string weights, SourceOf(store, flags.Text("weights", name)));
  ASSIGN_OR_RETURN(const TokenBatch batch, ReadTokens(tokens));
  ASSIGN_OR_RETURN(const auto device, backend.create_device(0, 1, /*deterministic=*/false));
  ASSIGN_OR_RETURN(const auto blob, store.Create(output));
  ASSIGN_OR_RETURN(
      const auto writer,
      SafetensorsWriter::Create(
          *blob, {{"logits", "F32", {batch.sequences, batch.sequence_length, model.vocab_size}}},
          {}));
  RETURN_IF_ERROR(ComputeLogits(model, weights, batch,
                                precision == "bf16" ? DType::kBf16 : DType::kF32, store, *device,
                                [&](std::int64_t, std::span<const float> logits) {
                                  return writer->Append(std::as_bytes(logits));
                                }));
  RETURN_IF_ERROR(writer->Finish());
  return blob->Publish();
}

absl::Status RunExport(std::span<const std::string> arguments, const LocalBackend& backend) {
  ASSIGN_OR_RETURN(const ToolFlags flags,
                   ToolFlags::Parse(arguments,
                                    {"model", "output", "format", "dtype", "max-shard-size",
                                     "tokenizer", "device"},
                                    {"verify"}));
  if (flags.positional().size() != 1) {
    return absl::InvalidArgumentError("export takes one CHECKPOINT (a folder)");
  }
  BlobStore& store = BlobStore::Posix();
  ModelExport request;
  ASSIGN_OR_RETURN(request.source, SourceOf(store, flags.positional()[0]));
  ASSIGN_OR_RETURN(request.directory, Required(flags, "output"));
  ASSIGN_OR_RETURN(const std::string format, flags.Choice("format", "hf", {"hf"}));
  ASSIGN_OR_RETURN(const std::string dtype,
                   flags.Choice("dtype", "fp32", {"fp32", "bf16", "fp16"}));
  request.weights.dtype = dtype == "bf16" ? "BF16" : dtype == "fp16" ? "F16" : "F32";
  ASSIGN_OR_RETURN(request.weights.max_shard_bytes, ParseSize(flags.Text("max-shard-size", "5GB")));
  request.tokenizer = flags.Text("tokenizer", "");
  request.verify = flags.Has("verify");
  const std::string config = absl::StrCat(request.source, "/", kConfigName);
  if (!flags.Has("model") && !std::filesystem::exists(config)) {
    return absl::NotFoundError(
        absl::StrCat(config, " does not exist: give --model PRESET or --model config.json"));
  }
  ASSIGN_OR_RETURN(request.model, NamedModel(flags.Text("model", request.source)));
  ASSIGN_OR_RETURN(const auto device, backend.create_device(0, 1, /*deterministic=*/false));
  ASSIGN_OR_RETURN(const ExportReport report, ExportModel(request, store, *device));
  for (const std::string& file : report.files) {
    std::printf("%s/%s\n", request.directory.c_str(), file.c_str());
  }
  if (report.logits_error >= 0) {
    std::printf("verified: logits differ by %.3g (norm-wise)\n", report.logits_error);
  }
  return absl::OkStatus();
}

}  // namespace

const char kLogitsUsage[] =
    R"(Usage: fsdp-trainer logits --model DIR --tokens FILE --output FILE [FLAGS]

  --model NAME|FILE|DIR  a preset, a config.json, or a folder with config.json and weights
  --weights PATH         safetensors, their folder, a checkpoint or a job's folder (default: --model)
  --tokens FILE          a safetensors file with integers "tokens" [batch, sequence]
  --output FILE          gets "logits" F32 [batch, sequence, vocabulary] as safetensors
  --precision fp32|bf16  of the forward pass (fp32)
  --device cpu|cuda
)";

const char kExportUsage[] =
    R"(Usage: fsdp-trainer export CHECKPOINT --output DIR [FLAGS]

Writes a checkpoint, or a job's newest one, as transformers reads it: config.json,
generation_config.json, model.safetensors or several with an index.

  --format hf            the only one
  --dtype fp32|bf16|fp16 of the weights (fp32)
  --max-shard-size SIZE  of a file: 5GB, 500MB (5GB)
  --tokenizer DIR        whose tokenizer files, generation settings and token ids go along
  --model NAME|FILE      a preset or a config.json, where the checkpoint has none
  --verify               loads what was written and compares logits
  --device cpu|cuda      of the comparison
)";

int LogitsMain(std::span<const std::string> arguments, const LocalBackend& backend) {
  const absl::Status status = RunLogits(arguments, backend);
  return status.ok() ? kDone : Fail("logits", status);
}

int ExportMain(std::span<const std::string> arguments, const LocalBackend& backend) {
  const absl::Status status = RunExport(arguments, backend);
  return status.ok() ? kDone : Fail("export", status);
}

}  // namespace fsdp
