// cuda-ops-bench [bandwidth] [attention] [matmul] [epilogue]: what the operations of the CUDA
// backend reach on this machine's device 0. Without arguments, everything.

#include <cstdio>
#include <string>
#include <vector>

#include "tests/gpu/bench_support.h"
#include "worker/device/cuda/cuda_device.h"

int main(int argc, char** argv) {
  std::vector<std::string> parts(argv + 1, argv + argc);
  if (parts.empty()) parts = {"bandwidth", "matmul", "attention", "epilogue"};
  auto device = fsdp::CreateCudaDevice({});
  fsdp::bench::Must(device.status(), "create device");
  std::printf("device: %s\n", (*device)->name().c_str());
  for (const std::string& part : parts) {
    if (part == "bandwidth") {
      fsdp::bench::BenchBandwidth(**device);
    } else if (part == "matmul") {
      fsdp::bench::BenchMatMul(**device);
    } else if (part == "epilogue") {
      fsdp::bench::BenchEpilogue(**device);
    } else if (part == "attention") {
      fsdp::bench::BenchAttention(30);
    } else {
      std::fprintf(stderr, "unknown part '%s': bandwidth, matmul, epilogue, attention\n",
                   part.c_str());
      return 2;
    }
  }
  return 0;
}
