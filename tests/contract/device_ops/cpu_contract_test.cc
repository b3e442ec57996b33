// The device contract on the CPU backend: as this machine runs it, and on each older instruction
// set with bf16 products by conversion, so that every code path passes wherever the tests run.

#include "tests/contract/device_ops/device_ops_contract.h"
#include "worker/device/cpu/cpu_device.h"

namespace fsdp {
namespace {

Backend Cpu(const std::string& name, const cpu::CpuBackendOptions& options) {
  return {name, [options] { return cpu::CreateCpuBackend(options); }};
}

std::vector<Backend> CpuBackends() {
  std::vector<Backend> backends = {Cpu("best", {.device = {.num_threads = 2}}),
                                   Cpu("baseline", {.device = {.num_threads = 1},
                                                    .kernels = &cpu::baseline::GetKernelSet(),
                                                    .bf16_path = cpu::Bf16Path::kConvert})};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    backends.push_back(Cpu("avx2", {.device = {.num_threads = 3},
                                    .kernels = &cpu::avx2::GetKernelSet(),
                                    .bf16_path = cpu::Bf16Path::kConvert}));
  }
  return backends;
}

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceOpsContract, ::testing::ValuesIn(CpuBackends()), BackendName);

}  // namespace
}  // namespace fsdp
