#ifndef FSDPCTL_WORKER_CHECKPOINT_MANIFEST_H_
#define FSDPCTL_WORKER_CHECKPOINT_MANIFEST_H_

// The file that makes a checkpoint exist: which step it is of, which files hold it, and which rows
// of which tensor lie where. JSON; docs/checkpoint_format.md shows one.
//
// A step's folder is "<root>/step-00000100.e00003": the epoch is in the name, so that a stale epoch
// never writes over a live one's files.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp {

inline constexpr int kManifestVersion = 1;
inline constexpr char kManifestName[] = "manifest.json";
inline constexpr std::uint64_t kMaxManifestBytes = 256 << 20;

struct ManifestFile {
  std::string name;  // in the step's folder; no slash
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32c = 0;  // of the whole file
};

// Rows [row_begin, row_end) of a tensor in files[file].
struct ManifestRange {
  int file = 0;
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
};

struct ManifestTensor {
  std::string name;
  std::vector<std::int64_t> shape;    // of the whole parameter
  std::vector<ManifestRange> ranges;  // tile the rows, in order, without holes
};

// Mean and variance over the last updates.
struct RunningFigure {
  double mean = 0;
  double variance = 0;
  bool operator==(const RunningFigure&) const = default;
};

// What the policies on non-finite figures and spikes go by (worker/train/numeric_guard.h).
struct NumericState {
  std::int64_t consecutive_skips = 0;  // updates left out one after another up to `step`
  std::int64_t rollbacks = 0;          // of the job
  std::int64_t num_updates = 0;  // that `loss` and `grad_norm` are of; 0: spikes are not looked for
  RunningFigure loss;
  RunningFigure grad_norm;  // before clipping
  bool operator==(const NumericState&) const = default;
};

struct Manifest {
  std::string job;
  std::int64_t epoch = 0;
  std::int64_t step = 0;      // optimizer updates done
  std::int64_t position = 0;  // the next sequence to train on
  std::int64_t tokens = 0;    // trained on so far
  int world_size = 0;         // of the writers
  std::uint64_t seed = 0;
  std::uint64_t model_hash = 0;        // of all names and shapes
  std::uint64_t data_fingerprint = 0;  // DataIdentity's
  std::string created;                 // RFC 3339, UTC
  std::optional<double> train_loss;    // of `step`
  std::optional<double> validation_loss;
  // Of each of data.evaluationSets, by name; absent: not finite.
  std::map<std::string, std::optional<double>> evaluation_losses;
  NumericState numerics;
  std::vector<ManifestFile> files;      // by rank
  std::vector<ManifestTensor> tensors;  // by name

  [[nodiscard]] std::uint64_t size_bytes() const;
};

std::string SerializeManifest(const Manifest& manifest);

// Strict: a wrong checksum (of all bytes before it), unknown or missing keys, wrong types, versions
// other than kManifestVersion, ranges that do not tile, files that do not exist in the list, names
// with slashes.
//   DATA_LOSS            names the key and the value
//   FAILED_PRECONDITION  a newer version wrote it
absl::StatusOr<Manifest> ParseManifest(std::string_view text);

// "step-00000100.e00003".
std::string StepDirectoryName(std::int64_t step, std::int64_t epoch);
// Of a name that StepDirectoryName made; nothing for others.
struct StepDirectory {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
};
std::optional<StepDirectory> ParseStepDirectoryName(std::string_view name);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_CHECKPOINT_MANIFEST_H_
