// A safetensors file, read whole in every way that it has.

#include <algorithm>
#include <cstddef>
#include <memory>

#include "tests/fuzz/fuzz_support.h"
#include "worker/checkpoint/safetensors.h"

namespace fsdp {
namespace {

void ReadAll(const SafetensorsFile& file) {
  for (const SafetensorsTensor& tensor : file.tensors()) {
    fuzz::Require(file.Find(tensor.name) == &tensor, "a tensor is found by its name");
    fuzz::Require(tensor.end >= tensor.begin, "a tensor does not end before it begins");
    std::vector<std::byte> bytes(std::min<std::uint64_t>(tensor.size_bytes(), 4096));
    fuzz::Require(file.Read(tensor, 0, bytes).ok(), "what the header promises is there");
    file.Read(tensor, tensor.size_bytes(), std::span(bytes).first(bytes.empty() ? 0 : 1))
        .IgnoreError();
    file.ReadFloats(tensor).IgnoreError();
    file.ReadDoubles(tensor).IgnoreError();
    file.ReadIntegers(tensor).IgnoreError();
    file.ReadFloats(tensor, 1, 2).IgnoreError();
  }
}

}  // namespace
}  // namespace fsdp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto* const input = new fsdp::fuzz::InputFile;
  input->Write(fsdp::fuzz::Text(data, size));
  const auto file = fsdp::SafetensorsFile::Open(input->path());
  if (file.ok()) fsdp::ReadAll(**file);
  return 0;
}
