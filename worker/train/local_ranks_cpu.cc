// The backend of local ranks on the CPU; apart from local_ranks.cc so that the CUDA trainer links
// neither gloo nor the CPU's matmul library.
#include "worker/comm/gloo_communicator.h"
#include "worker/train/local_ranks.h"

namespace fsdp {

LocalBackend CpuBackend() {
  LocalBackend backend;
  // Every operation of the CPU's is deterministic.
  backend.create_device = [](int /*rank*/, int world_size, bool /*deterministic*/) {
    CpuDeviceOptions options;
    options.ranks_on_machine = world_size;
    return CreateCpuDevice(options);
  };
  backend.create_gloo = [](const std::string& name, int rank, const LocalRanksOptions& ranks,
                           Device& /*device*/, RendezvousStore& store) {
    GlooOptions options;
    options.rank = rank;
    options.world_size = ranks.world_size;
    options.name = name;
    return CreateGlooCommunicator(options, store);
  };
  return backend;
}

}  // namespace fsdp
