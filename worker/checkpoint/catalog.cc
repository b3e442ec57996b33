#include "worker/checkpoint/catalog.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"
#include "worker/checkpoint/checkpoint_loader.h"

namespace fsdp {
namespace {

// Empty: all files are there.
std::string MissingFile(BlobStore& store, const CatalogEntry& entry) {
  for (const ManifestFile& file : entry.manifest->files) {
    const auto reader = store.Open(absl::StrCat(entry.path, "/", file.name));
    if (!reader.ok()) return absl::StrCat(file.name, ": ", reader.status().message());
    if ((*reader)->size_bytes() != file.size_bytes) {
      return absl::StrCat(file.name, " has ", (*reader)->size_bytes(), " bytes, not ",
                          file.size_bytes);
    }
  }
  return "";
}

// Absent: it was not evaluated, or was not finite.
std::optional<double> LossOf(const Manifest& manifest, const std::string& set) {
  if (set.empty()) return manifest.validation_loss;
  const auto found = manifest.evaluation_losses.find(set);
  return found == manifest.evaluation_losses.end() ? std::nullopt : found->second;
}

}  // namespace

absl::StatusOr<std::vector<CatalogEntry>> ListCheckpoints(BlobStore& store,
                                                          const std::string& root) {
  std::vector<CatalogEntry> entries;
  const absl::StatusOr<std::vector<std::string>> names = store.List(root);
  if (absl::IsNotFound(names.status())) return entries;
  RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    const std::optional<StepDirectory> directory = ParseStepDirectoryName(name);
    if (!directory.has_value()) continue;
    CatalogEntry entry;
    entry.path = absl::StrCat(root, "/", name);
    entry.step = directory->step;
    entry.epoch = directory->epoch;
    absl::StatusOr<Manifest> manifest = ReadManifest(store, entry.path);
    if (!manifest.ok()) {
      entry.problem = std::string(manifest.status().message());
    } else if (manifest->step != entry.step || manifest->epoch != entry.epoch) {
      entry.problem = absl::StrCat(entry.path, ": its manifest is of step ", manifest->step,
                                   ", epoch ", manifest->epoch);
    } else {
      entry.manifest = std::move(*manifest);
    }
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.step, a.epoch) < std::tie(b.step, b.epoch);
  });
  return entries;
}

absl::StatusOr<CatalogEntry> FindNewestCheckpoint(BlobStore& store, const std::string& root) {
  ASSIGN_OR_RETURN(std::vector<CatalogEntry> entries, ListCheckpoints(store, root));
  std::vector<std::string> passed_over;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->manifest.has_value()) entry->problem = MissingFile(store, *entry);
    if (entry->problem.empty()) return std::move(*entry);
    passed_over.push_back(entry->problem);
  }
  return absl::NotFoundError(
      absl::StrCat(root, " holds no checkpoint",
                   passed_over.empty() ? "" : "; passed over: ", absl::StrJoin(passed_over, "; ")));
}

std::vector<std::string> DecideRetention(const std::vector<CatalogEntry>& entries,
                                         const RetentionPolicy& policy,
                                         const RetentionScope& scope) {
  const auto given_up = [&](const CatalogEntry& entry) {
    return entry.epoch < scope.epoch && entry.step > scope.resume_step;
  };
  std::vector<const CatalogEntry*> published;
  for (const CatalogEntry& entry : entries) {
    // This epoch is over: another one decides now.
    if (entry.epoch > scope.epoch) return {};
    if (entry.manifest.has_value() && !given_up(entry)) published.push_back(&entry);
  }
  if (published.empty()) return {};
  std::set<const CatalogEntry*> kept = {published.back()};
  const std::size_t last =
      policy.keep_last == 0 ? published.size() : static_cast<std::size_t>(policy.keep_last);
  for (std::size_t i = published.size() - std::min(last, published.size()); i < published.size();
       ++i) {
    kept.insert(published[i]);
  }
  const CatalogEntry* best = nullptr;
  const auto finite =
      std::find_if(published.rbegin(), published.rend(), [](const CatalogEntry* entry) {
        return entry->manifest->train_loss.has_value() &&
               std::isfinite(*entry->manifest->train_loss);
      });
  if (finite != published.rend()) kept.insert(*finite);
  for (const CatalogEntry* entry : published) {
    if (policy.keep_every_steps > 0 && entry->step % policy.keep_every_steps == 0) {
      kept.insert(entry);
    }
    const std::optional<double> loss = LossOf(*entry->manifest, policy.best_by);
    if (loss.has_value() && (best == nullptr || *loss < *LossOf(*best->manifest, policy.best_by))) {
      best = entry;
    }
  }
  if (policy.keep_best && best != nullptr) kept.insert(best);
  std::vector<std::string> removed;
  const CatalogEntry& newest = *published.back();
  const bool published_one = newest.epoch == scope.epoch;
  for (const CatalogEntry& entry : entries) {
    const bool left_over = !entry.manifest.has_value() &&
                           std::tie(entry.step, entry.epoch) < std::tie(newest.step, newest.epoch);
    const bool old = entry.manifest.has_value() && kept.count(&entry) == 0 && !given_up(entry);
    if (left_over || old || (published_one && given_up(entry))) removed.push_back(entry.path);
  }
  return removed;
}

absl::Status ApplyRetention(BlobStore& store, const std::string& root,
                            const RetentionPolicy& policy, const RetentionScope& scope) {
  ASSIGN_OR_RETURN(const std::vector<CatalogEntry> entries, ListCheckpoints(store, root));
  for (const std::string& path : DecideRetention(entries, policy, scope)) {
    const absl::Status removed = store.Remove(absl::StrCat(path, "/", kManifestName));
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
    if (removed.ok()) RETURN_IF_ERROR(store.SyncDirectory(path));
    RETURN_IF_ERROR(store.RemoveTree(path));
  }
  return absl::OkStatus();
}

}  // namespace fsdp
