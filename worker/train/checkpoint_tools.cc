#include "worker/train/checkpoint_tools.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"
#include "worker/checkpoint/catalog.h"
#include "worker/checkpoint/checkpoint_loader.h"
#include "worker/checkpoint/checkpoint_transform.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/train/tool_flags.h"
#include "worker/train/trainer_errors.h"
#include "worker/train/trainer_report.h"

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDone = static_cast<int>(TrainerExit::kDone);
constexpr int kFailed = static_cast<int>(TrainerExit::kInternal);
constexpr int kUsage = static_cast<int>(TrainerExit::kUsage);
constexpr int kDamaged = static_cast<int>(TrainerExit::kCheckpoint);
constexpr int kDiffers = static_cast<int>(TrainerExit::kBeyondTolerance);

constexpr std::int64_t kMaxRanks = 65536;

Json LossJson(const std::optional<double>& loss) { return loss ? Json(*loss) : Json(); }

Json LossesJson(const std::map<std::string, std::optional<double>>& losses) {
  Json all = Json::object();
  for (const auto& [set, loss] : losses) all[set] = LossJson(loss);
  return all;
}

std::string LossText(const std::optional<double>& loss) { return loss ? FormatLoss(*loss) : "-"; }

std::string Gigabytes(std::uint64_t bytes) {
  return absl::StrFormat("%.3f GB", static_cast<double>(bytes) / 1e9);
}

// "DIR" is a job's folder, or a checkpoint: then that one.
absl::StatusOr<std::string> CheckpointAt(BlobStore& store, const std::string& directory) {
  if (ReadManifest(store, directory).status().code() != absl::StatusCode::kNotFound) {
    return directory;
  }
  absl::StatusOr<CatalogEntry> newest = FindNewestCheckpoint(store, directory);
  if (!newest.ok()) return newest.status();
  return newest->path;
}

absl::Status List(const ToolFlags& flags, const std::string& root) {
  ASSIGN_OR_RETURN(const std::vector<CatalogEntry> entries,
                   ListCheckpoints(BlobStore::Posix(), root));
  if (flags.Has("json")) {
    Json list = Json::array();
    for (const CatalogEntry& entry : entries) {
      Json& item = list.emplace_back();
      item = {{"path", entry.path}, {"step", entry.step}, {"epoch", entry.epoch}};
      if (!entry.manifest) {
        item["problem"] = entry.problem;
        continue;
      }
      item["world_size"] = entry.manifest->world_size;
      item["size_bytes"] = entry.manifest->size_bytes();
      item["created"] = entry.manifest->created;
      item["train_loss"] = LossJson(entry.manifest->train_loss);
      item["validation_loss"] = LossJson(entry.manifest->validation_loss);
      item["evaluation_losses"] = LossesJson(entry.manifest->evaluation_losses);
    }
    std::printf("%s\n", list.dump(1).c_str());
    return absl::OkStatus();
  }
  std::printf("%10s %6s %6s %14s %10s %10s  %-20s  %s\n", "STEP", "EPOCH", "RANKS", "SIZE", "LOSS",
              "VALIDATION", "CREATED", "PATH");
  for (const CatalogEntry& entry : entries) {
    if (!entry.manifest) {
      std::printf("%10ld %6ld  not a checkpoint: %s\n", static_cast<long>(entry.step),
                  static_cast<long>(entry.epoch), entry.problem.c_str());
      continue;
    }
    const Manifest& manifest = *entry.manifest;
    std::printf("%10ld %6ld %6d %14s %10s %10s  %-20s  %s\n", static_cast<long>(entry.step),
                static_cast<long>(entry.epoch), manifest.world_size,
                Gigabytes(manifest.size_bytes()).c_str(), LossText(manifest.train_loss).c_str(),
                LossText(manifest.validation_loss).c_str(), manifest.created.c_str(),
                entry.path.c_str());
  }
  return absl::OkStatus();
}

std::int64_t Elements(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : shape) elements *= dim;
  return elements;
}

Json ManifestJson(const std::string& path, const Manifest& manifest) {
  std::int64_t parameters = 0;
  Json tensors = Json::array();
  for (const ManifestTensor& tensor : manifest.tensors) {
    parameters += Elements(tensor.shape);
    tensors.push_back({{"name", tensor.name},
                       {"shape", tensor.shape},
                       {"files", static_cast<std::int64_t>(tensor.ranges.size())}});
  }
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files) {
    files.push_back({{"name", file.name},
                     {"size_bytes", file.size_bytes},
                     {"crc32c", absl::StrFormat("0x%08x", file.crc32c)}});
  }
  return {{"path", path},
          {"job", manifest.job},
          {"step", manifest.step},
          {"epoch", manifest.epoch},
          {"position", manifest.position},
          {"tokens", manifest.tokens},
          {"created", manifest.created},
          {"train_loss", LossJson(manifest.train_loss)},
          {"validation_loss", LossJson(manifest.validation_loss)},
          {"evaluation_losses", LossesJson(manifest.evaluation_losses)},
          {"seed", manifest.seed},
          {"model_hash", absl::StrFormat("0x%016x", manifest.model_hash)},
          {"data_fingerprint", absl::StrFormat("0x%016x", manifest.data_fingerprint)},
          {"parameters", parameters},
          {"world_size", manifest.world_size},
          {"size_bytes", manifest.size_bytes()},
          {"files", files},
          {"tensors", tensors}};
}

// Every key on a line of its own, lists as tables.
void PrintText(const Json& json) {
  for (const auto& [key, value] : json.items()) {
    if (!value.is_array()) {
      std::printf("%-17s %s\n", key.c_str(),
                  value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
      continue;
    }
    std::printf("%s (%zu)\n", key.c_str(), value.size());
    for (const Json& item : value) {
      std::vector<std::string> cells;
      for (const auto& [name, cell] : item.items()) {
        cells.push_back(cell.is_string() ? cell.get<std::string>() : cell.dump());
      }
      std::printf("  %s\n", absl::StrJoin(cells, "  ").c_str());
    }
  }
}

absl::Status Inspect(const ToolFlags& flags, const std::string& directory) {
  ASSIGN_OR_RETURN(const std::string path, CheckpointAt(BlobStore::Posix(), directory));
  ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(BlobStore::Posix(), path));
  const Json json = ManifestJson(path, manifest);
  if (flags.Has("json")) {
    std::printf("%s\n", json.dump(1).c_str());
  } else {
    PrintText(json);
  }
  return absl::OkStatus();
}

// One checkpoint, or every one in a job's folder.
absl::Status Verify(const std::string& directory) {
  BlobStore& store = BlobStore::Posix();
  std::vector<std::string> paths;
  if (ReadManifest(store, directory).status().code() == absl::StatusCode::kNotFound) {
    ASSIGN_OR_RETURN(const std::vector<CatalogEntry> entries, ListCheckpoints(store, directory));
    for (const CatalogEntry& entry : entries) paths.push_back(entry.path);
  } else {
    paths.push_back(directory);
  }
  if (paths.empty()) {
    return absl::NotFoundError(absl::StrCat(directory, " holds no checkpoint"));
  }
  absl::Status first;
  for (const std::string& path : paths) {
    const absl::StatusOr<Manifest> manifest = ReadManifest(store, path);
    absl::Status status = manifest.status();
    for (std::size_t i = 0; status.ok() && i < manifest->files.size(); ++i) {
      status = VerifyFile(store, path, manifest->files[i]);
    }
    if (status.ok()) {
      std::printf("%s: ok, %zu files, %s\n", path.c_str(), manifest->files.size(),
                  Gigabytes(manifest->size_bytes()).c_str());
    } else if (first.ok()) {
      first = status;
    } else {
      std::fprintf(stderr, "checkpoint: %s\n", std::string(status.message()).c_str());
    }
  }
  return first;
}

Json TensorJson(const TensorDifference& tensor) {
  Json json = {{"name", tensor.name}};
  if (!tensor.comparable()) {
    json["shape_a"] = tensor.shape_a.empty() ? Json() : Json(tensor.shape_a);
    json["shape_b"] = tensor.shape_b.empty() ? Json() : Json(tensor.shape_b);
    return json;
  }
  for (std::size_t part = 0; part < tensor.parts.size(); ++part) {
    const PartDifference& difference = tensor.parts[part];
    if (difference.different == 0) continue;
    json[kTensorParts[part]] = {{"different", difference.different},
                                {"elements", difference.elements},
                                {"largest", difference.largest},
                                {"relative", difference.relative}};
  }
  return json;
}

void PrintTensor(const TensorDifference& tensor) {
  if (!tensor.comparable()) {
    const auto shape = [](const std::vector<std::int64_t>& dims) {
      return dims.empty() ? "absent" : absl::StrCat("[", absl::StrJoin(dims, ","), "]");
    };
    std::printf("%s: %s in the first, %s in the second\n", tensor.name.c_str(),
                shape(tensor.shape_a).c_str(), shape(tensor.shape_b).c_str());
    return;
  }
  for (std::size_t part = 0; part < tensor.parts.size(); ++part) {
    const PartDifference& difference = tensor.parts[part];
    if (difference.different == 0) continue;
    std::printf("%s %s: %ld of %ld elements differ, at most by %.3g, relative %.3g\n",
                tensor.name.c_str(), kTensorParts[part], static_cast<long>(difference.different),
                static_cast<long>(difference.elements), difference.largest, difference.relative);
  }
}

absl::StatusOr<int> Diff(const ToolFlags& flags, const std::string& first,
                         const std::string& second) {
  BlobStore& store = BlobStore::Posix();
  ASSIGN_OR_RETURN(const std::string a, CheckpointAt(store, first));
  ASSIGN_OR_RETURN(const std::string b, CheckpointAt(store, second));
  ASSIGN_OR_RETURN(const CheckpointDifference difference, CompareCheckpoints(store, a, b));
  Json differing = Json::array();
  for (const TensorDifference& tensor : difference.tensors) {
    if (tensor.same()) continue;
    differing.push_back(TensorJson(tensor));
    if (!flags.Has("json")) PrintTensor(tensor);
  }
  if (flags.Has("json")) {
    const Json json = {{"a", a},
                       {"b", b},
                       {"steps", {difference.a.step, difference.b.step}},
                       {"world_sizes", {difference.a.world_size, difference.b.world_size}},
                       {"same", difference.same_tensors()},
                       {"tensors", difference.tensors.size()},
                       {"different", differing}};
    std::printf("%s\n", json.dump(1).c_str());
  } else {
    std::printf("steps %ld and %ld, written by %d and %d ranks: %zu of %zu tensors differ\n",
                static_cast<long>(difference.a.step), static_cast<long>(difference.b.step),
                difference.a.world_size, difference.b.world_size, differing.size(),
                difference.tensors.size());
  }
  return difference.same_tensors() ? kDone : kDiffers;
}

absl::Status Reshard(const ToolFlags& flags, const std::string& directory) {
  BlobStore& store = BlobStore::Posix();
  ASSIGN_OR_RETURN(const std::int64_t ranks, flags.Integer("world-size", 0, 1, kMaxRanks));
  const std::string output = flags.Text("output", "");
  if (ranks == 0 || output.empty()) {
    return absl::InvalidArgumentError("reshard needs --world-size N and --output DIR");
  }
  ASSIGN_OR_RETURN(const std::string source, CheckpointAt(store, directory));
  ASSIGN_OR_RETURN(const std::string path,
                   ReshardCheckpoint(store, source, output, static_cast<int>(ranks)));
  std::printf("%s\n", path.c_str());
  return absl::OkStatus();
}

absl::StatusOr<int> RunVerb(std::span<const std::string> arguments) {
  ASSIGN_OR_RETURN(const ToolFlags flags,
                   ToolFlags::Parse(arguments, {"world-size", "output", "device"}, {"json"}));
  const std::vector<std::string>& given = flags.positional();
  const std::string verb = given.empty() ? "" : given[0];
  const std::size_t wanted = verb == "diff" ? 2 : 1;
  if (given.size() != 1 + wanted) {
    return absl::InvalidArgumentError(
        "give list, inspect, verify or reshard and a DIR, or diff and two");
  }
  if (verb == "diff") return Diff(flags, given[1], given[2]);
  absl::Status status = absl::InvalidArgumentError(
      absl::StrCat("no verb ", verb, "; use list, inspect, verify, diff or reshard"));
  if (verb == "list") status = List(flags, given[1]);
  if (verb == "inspect") status = Inspect(flags, given[1]);
  if (verb == "verify") status = Verify(given[1]);
  if (verb == "reshard") status = Reshard(flags, given[1]);
  RETURN_IF_ERROR(status);
  return kDone;
}

}  // namespace

const char kCheckpointUsage[] =
    R"(Usage: fsdp-trainer checkpoint VERB DIR [FLAGS]

  list DIR [--json]           what a job's folder holds, and what is wrong with the rest
  inspect DIR [--json]        a checkpoint's manifest: DIR is it, or a job's folder (its newest)
  verify DIR                  reads every file and compares size and CRC-32C; of a job's folder all
  diff A B [--json]           the tensors whose bits differ, and by how much
  reshard DIR --world-size N --output ROOT   the same checkpoint in the files of N ranks, in ROOT

Exit codes: 0 done (diff: the same), 1 failed, 2 usage, 11 damaged or none, 20 diff: they differ.
)";

int CheckpointMain(std::span<const std::string> arguments) {
  const absl::StatusOr<int> code = RunVerb(arguments);
  if (code.ok()) return *code;
  std::fprintf(stderr, "checkpoint: %s\n", std::string(code.status().message()).c_str());
  if (absl::IsInvalidArgument(code.status())) return kUsage;
  const bool damaged = absl::IsDataLoss(code.status()) || absl::IsNotFound(code.status());
  return damaged ? kDamaged : kFailed;
}

}  // namespace fsdp
