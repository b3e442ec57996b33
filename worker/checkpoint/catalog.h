#ifndef FSDPCTL_WORKER_CHECKPOINT_CATALOG_H_
#define FSDPCTL_WORKER_CHECKPOINT_CATALOG_H_

// The checkpoints of one job: listing, finding the newest, and which to keep.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/checkpoint/manifest.h"

namespace fsdp {

struct CatalogEntry {
  std::string path;  // the step's folder
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  // Absent: not published, or the manifest is damaged (`problem` says how).
  std::optional<Manifest> manifest;
  std::string problem;
};

// All step folders of `root`, oldest first (by step, then epoch). A root that does not exist is
// empty.
absl::StatusOr<std::vector<CatalogEntry>> ListCheckpoints(BlobStore& store,
                                                          const std::string& root);

// The newest whose manifest is sound and whose files are all there with their sizes. Contents are
// checked by loading.
//   NOT_FOUND  there is none; lists what was passed over and why
absl::StatusOr<CatalogEntry> FindNewestCheckpoint(BlobStore& store, const std::string& root);

struct RetentionPolicy {
  int keep_last = 2;  // the newest N; 0: all
  std::int64_t keep_every_steps = 0;
  bool keep_best = false;  // the one with the lowest loss of `best_by`
  std::string best_by;     // an evaluation set; empty: the validation data
};

// The epoch that retention acts for. What earlier ones saved after the step that it resumed from
// was given up by the coordinator (damaged, or never admitted), whatever its manifest says.
struct RetentionScope {
  std::int64_t epoch = 0;
  std::int64_t resume_step = 0;
};

// Paths to remove, decided from the list alone. The newest published one always stays, and so does
// the newest whose training loss was finite; unpublished folders of a step or epoch before the
// newest published one are left-overs and go. What was given up counts for nothing, so that it
// pushes out no checkpoint that the coordinator knows, and goes as soon as this epoch has published
// one. Nothing where a newer epoch has written.
std::vector<std::string> DecideRetention(const std::vector<CatalogEntry>& entries,
                                         const RetentionPolicy& policy,
                                         const RetentionScope& scope);

// Lists, decides, removes (manifest first: a half-removed checkpoint does not exist). Rank 0 of the
// live epoch only.
absl::Status ApplyRetention(BlobStore& store, const std::string& root,
                            const RetentionPolicy& policy, const RetentionScope& scope);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_CHECKPOINT_CATALOG_H_
