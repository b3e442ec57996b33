// The backend of fsdp-trainer-cuda: CUDA devices, NCCL between processes.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/comm/nccl/cuda_stream_marker.h"
#include "worker/comm/nccl/nccl_communicator.h"
#include "worker/comm/nccl/nccl_environment.h"
#include "worker/comm/nccl/nccl_memory.h"
#include "worker/device/cuda/cuda_ceilings.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/cuda/cuda_memory.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/profile/counters/cupti_counters.h"
#include "worker/train/trainer_backend.h"
#include "worker/train/trainer_ceilings.h"

namespace fsdp {
namespace {

// As with gloo: the end of patience where no coordinator applies the hang rule.
constexpr absl::Duration kMinTimeout = absl::Seconds(300);
constexpr absl::Duration kLocalTimeout = absl::Seconds(120);

// Of this process's device; made with it, before its context.
std::unique_ptr<CudaMemoryMeter>& Meter() {
  static auto& meter = *new std::unique_ptr<CudaMemoryMeter>;
  return meter;
}

// Without any driver the runtime speaks of one that is too old.
absl::StatusOr<int> NumDevices() {
  int driver_version = 0;
  int count = 0;
  const cudaError_t asked = cudaDriverGetVersion(&driver_version);
  if (asked == cudaSuccess && driver_version == 0) {
    return absl::FailedPreconditionError(
        "fsdp-trainer-cuda needs a GPU, and there is no NVIDIA driver on this machine "
        "(libcuda.so.1): "
        "install the driver, in a container start it with the GPUs, or train with --device cpu and "
        "resources.device=cpu");
  }
  RETURN_IF_ERROR(Annotate(CudaToStatus(cudaGetDeviceCount(&count), "cudaGetDeviceCount"),
                           "fsdp-trainer-cuda needs a GPU and its driver"));
  if (count > 0) return count;
  return absl::FailedPreconditionError("no CUDA device: see CUDA_VISIBLE_DEVICES and nvidia-smi");
}

// As the XDG base directory specification has it; empty where there is no home.
std::string CacheDirectory() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return absl::StrCat(cache, "/fsdpctl");
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? absl::StrCat(home, "/.cache/fsdpctl") : "";
}

absl::StatusOr<std::unique_ptr<Device>> CreateDevice(int ordinal, bool deterministic) {
  Meter() = std::make_unique<CudaMemoryMeter>(ordinal);
  CudaDeviceOptions options;
  options.ordinal = ordinal;
  options.deterministic = deterministic;
  options.cache_directory = CacheDirectory();
  options.shareable = NcclMemory();
  return CreateCudaDevice(options);
}

// Ranks beyond the number of devices share them.
absl::StatusOr<std::unique_ptr<Device>> CreateLocalDevice(int rank, int world_size,
                                                          bool deterministic) {
  ASSIGN_OR_RETURN(const int count, NumDevices());
  PrepareLocalNccl();
  if (world_size > count) PrepareSharedDevice(rank);
  return CreateDevice(rank % count, deterministic);
}

absl::StatusOr<std::unique_ptr<Communicator>> CreateLocalNccl(const std::string& name, int rank,
                                                              const LocalRanksOptions& ranks,
                                                              Device& device,
                                                              RendezvousStore& store) {
  NcclOptions options;
  options.rank = rank;
  options.world_size = ranks.world_size;
  options.timeout = kLocalTimeout;
  options.registration = ranks.registration;
  ASSIGN_OR_RETURN(const int count, NumDevices());
  if (ranks.world_size > count && options.registration != BufferRegistration::kNone) {
    if (rank == 0) {
      LOG_WARNING("%d ranks share %d devices and talk over sockets: registration %s has no effect",
                  ranks.world_size, count, NameOf(options.registration));
    }
    options.registration = BufferRegistration::kNone;
  }
  const std::string key = absl::StrCat("nccl-", name);
  if (rank == 0) {
    ASSIGN_OR_RETURN(const std::string id, MakeNcclId());
    RETURN_IF_ERROR(store.Put(key, id));
  }
  ASSIGN_OR_RETURN(options.unique_id, store.Get(key, kLocalTimeout));
  return CreateNcclCommunicator(options, device);
}

int NumCommunicators(const v1::JobSpec& spec) {
  return spec.sharding().has_communicators() ? spec.sharding().communicators() : 2;
}

absl::StatusOr<RankCommunicators> ConnectNccl(const v1::TrainerStart& start,
                                              const v1::CommitEpoch& commit, Device& device) {
  const v1::StartRank& assignment = start.assignment();
  RankCommunicators communicators;
  if (assignment.world_size() == 1) return communicators;
  const v1::JobSpec& spec = assignment.job().spec();
  const int wanted = NumCommunicators(spec);
  if (commit.nccl_ids_size() < wanted) {
    return absl::InternalError(absl::StrCat("the epoch's commit holds ", commit.nccl_ids_size(),
                                            " NCCL ids, ", wanted, " are needed"));
  }
  NcclOptions options;
  options.rank = assignment.key().rank();
  options.world_size = assignment.world_size();
  options.timeout = std::max(kMinTimeout, absl::Seconds(4 * spec.limits().hang_timeout_seconds()));
  // They talk over sockets.
  if (start.share_device()) options.registration = BufferRegistration::kNone;
  options.unique_id = commit.nccl_ids(0);
  ASSIGN_OR_RETURN(communicators.gather, CreateNcclCommunicator(options, device));
  if (wanted == 1) return communicators;
  options.unique_id = commit.nccl_ids(1);
  ASSIGN_OR_RETURN(communicators.scatter, CreateNcclCommunicator(options, device));
  return communicators;
}

std::int64_t MemoryInUse(Device& device) {
  const std::int64_t added = Meter() == nullptr ? 0 : Meter()->AddedBytes();
  return added > 0 ? added : static_cast<std::int64_t>(device.allocated_bytes());
}

absl::StatusOr<v1::DeviceCeilings> Measure(Device& device) {
  ASSIGN_OR_RETURN(const DeviceCeilings measured, MeasureCudaCeilings(device));
  return CeilingsRecord(measured, device.name());
}

}  // namespace

TrainerBackend MakeTrainerBackend() {
  TrainerBackend backend;
  backend.name = "cuda";
  backend.local.create_device = CreateLocalDevice;
  backend.local.create_nccl = CreateLocalNccl;
  backend.local.memory_bytes = [](Device&) {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) return std::int64_t{0};
    return static_cast<std::int64_t>(total_bytes);
  };
  backend.local.used_bytes = MemoryInUse;
  // The daemon shows this process one device only.
  backend.create_device =
      [](const v1::TrainerStart& start) -> absl::StatusOr<std::unique_ptr<Device>> {
    RETURN_IF_ERROR(NumDevices().status());
    PrepareNccl();
    RETURN_IF_ERROR(PrepareNcclInterface(start.bind_address()));
    if (start.share_device()) PrepareSharedDevice(start.assignment().key().rank());
    return CreateDevice(0, start.assignment().job().spec().train().deterministic());
  };
  backend.measure_ceilings = Measure;
  backend.add_unique_ids = [](v1::RankJoined* joined) -> absl::Status {
    // One for each communicator that a job can ask for; an unused one costs a socket.
    for (int i = 0; i < 2; ++i) {
      ASSIGN_OR_RETURN(const std::string id, MakeNcclId());
      joined->add_nccl_ids(id);
    }
    return absl::OkStatus();
  };
  backend.connect = [](const v1::TrainerStart& start, const v1::CommitEpoch& commit,
                       TrainerLink& /*link*/,
                       Device& device) { return ConnectNccl(start, commit, device); };
  backend.memory_in_use_bytes = MemoryInUse;
  backend.counters = [](Device&) {
    CuptiCountersOptions options;
    // The context is this thread's, and its device the rank's.
    if (cudaGetDevice(&options.device) != cudaSuccess) return CounterSource();
    return CounterSource{CreateCuptiCounters(options),
                         [](Stream& stream) { return CuptiStreamId(CudaStreamOf(stream)); }};
  };
  backend.marker = CudaStreamMarker();
  return backend;
}

}  // namespace fsdp
