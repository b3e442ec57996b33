// A checkpoint's manifest. Its checksum is made right first, or nothing else would ever be read.

#include <span>
#include <string>

#include "absl/strings/str_format.h"
#include "proto/support/crc32c.h"
#include "tests/fuzz/fuzz_support.h"
#include "worker/checkpoint/manifest.h"

namespace fsdp {
namespace {

constexpr std::string_view kBeforeChecksum = ",\n \"checksum\": \"0x";

std::string WithChecksum(std::string text) {
  text = text.substr(0, text.rfind(kBeforeChecksum));
  const std::uint32_t checksum = Crc32c(std::as_bytes(std::span(text)));
  text += kBeforeChecksum;
  return text + absl::StrFormat("%08x\"\n}\n", checksum);
}

void RoundTrip(const Manifest& manifest) {
  const absl::StatusOr<Manifest> again = ParseManifest(SerializeManifest(manifest));
  fuzz::Require(again.ok(), "a manifest that was read is read as it is written");
  fuzz::Require(SerializeManifest(*again) == SerializeManifest(manifest),
                "writing and reading change nothing");
}

}  // namespace
}  // namespace fsdp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fsdp::fuzz::Text(data, size));
  fsdp::ParseManifest(text).IgnoreError();
  fsdp::ParseStepDirectoryName(text);
  const auto manifest = fsdp::ParseManifest(fsdp::WithChecksum(text));
  if (manifest.ok()) fsdp::RoundTrip(*manifest);
  return 0;
}
