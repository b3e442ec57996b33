// Token files with their headers, Megatron's index, and the manifest that fsdp-tokenize writes.

#include <vector>

#include "tests/fuzz/fuzz_support.h"
#include "worker/data/content_hash.h"
#include "worker/data/megatron_index.h"
#include "worker/data/token_format.h"
#include "worker/data/token_manifest.h"

namespace fsdp {
namespace {

void ReadLayout(const std::string& path, std::int64_t size) {
  const auto stream = ByteStream::Open(path, {path});
  if (!stream.ok()) return;
  for (const int token_bytes : {2, 4}) {
    const auto layout = ReadTokenLayout(**stream, (*stream)->files()[0], token_bytes);
    if (!layout.ok()) continue;
    fuzz::Require(layout->header_bytes >= 0 && layout->header_bytes <= size,
                  "a header lies in its file");
    fuzz::Require(layout->token_bytes == 2 || layout->token_bytes == 4, "ids have 2 or 4 bytes");
  }
}

void ReadIndex(const std::string& path) {
  // Sizes that the corpus fits to, and one that nothing does.
  for (const std::int64_t bin_bytes : {16, 32, 0}) {
    ContentHash hash;
    const auto index = ReadMegatronIndex(path, bin_bytes, true, &hash);
    if (!index.ok()) continue;
    std::int64_t last = -1;
    for (const std::int64_t start : index->document_starts) {
      fuzz::Require(start > last && start * index->token_bytes < bin_bytes,
                    "documents begin one after the other, in the file");
      last = start;
    }
  }
}

}  // namespace
}  // namespace fsdp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto* const file = new fsdp::fuzz::InputFile;
  static auto* const folder = new fsdp::fuzz::InputFolder;
  const std::string_view bytes = fsdp::fuzz::Text(data, size);
  file->Write(bytes);
  fsdp::ReadLayout(file->path(), static_cast<std::int64_t>(size));
  fsdp::ReadIndex(file->path());
  folder->Write(fsdp::kTokenManifestName, bytes);
  fsdp::ReadTokenManifest(folder->path()).IgnoreError();
  return 0;
}
