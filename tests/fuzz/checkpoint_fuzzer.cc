// A checkpoint of one shard whose manifest is sound and whose shard is the input: its header may
// say anything.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "proto/support/crc32c.h"
#include "tests/fuzz/fuzz_support.h"
#include "worker/checkpoint/catalog.h"
#include "worker/checkpoint/part_reader.h"

namespace fsdp {
namespace {

constexpr char kStep[] = "step-00000001.e00001";

// Of the two tensors that the corpus has.
Manifest ManifestOf(std::string_view shard) {
  Manifest manifest;
  manifest.job = "jobs/fuzz";
  manifest.epoch = 1;
  manifest.step = 1;
  manifest.world_size = 1;
  manifest.created = "2026-01-01T00:00:00Z";
  manifest.files = {{.name = "rank-00000.safetensors",
                     .size_bytes = shard.size(),
                     .crc32c = Crc32c(std::as_bytes(std::span(shard)))}};
  manifest.tensors = {{.name = "a", .shape = {2, 3}, .ranges = {{0, 0, 2}}},
                      {.name = "b", .shape = {4}, .ranges = {{0, 0, 4}}}};
  return manifest;
}

void ReadAll(const std::string& root) {
  const auto newest = FindNewestCheckpoint(BlobStore::Posix(), root);
  fuzz::Require(newest.ok(), "a sound manifest whose files have their sizes is found");
  const auto reader = PartReader::Open(BlobStore::Posix(), newest->path);
  if (!reader.ok()) return;
  for (const ManifestTensor& tensor : (*reader)->manifest().tensors) {
    for (std::size_t part = 0; part < 3; ++part) {
      std::vector<std::byte> bytes(PartBytes(tensor));
      (*reader)->Read(tensor, part, 0, bytes).IgnoreError();
      (*reader)->Read(tensor, part, 4, std::span(bytes).first(4)).IgnoreError();
    }
  }
}

}  // namespace
}  // namespace fsdp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto* const folder = new fsdp::fuzz::InputFolder;
  const std::string_view shard = fsdp::fuzz::Text(data, size);
  const fsdp::Manifest manifest = fsdp::ManifestOf(shard);
  const std::string step = folder->path() + "/" + fsdp::kStep;
  if (!fsdp::BlobStore::Posix().CreateDirectory(step).ok()) return 0;
  folder->Write(std::string(fsdp::kStep) + "/" + manifest.files[0].name, shard);
  folder->Write(std::string(fsdp::kStep) + "/" + fsdp::kManifestName,
                fsdp::SerializeManifest(manifest));
  fsdp::ReadAll(folder->path());
  return 0;
}
