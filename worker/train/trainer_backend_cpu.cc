// The backend of fsdp-trainer: CPU devices, gloo between processes.
#include <algorithm>

#include "proto/support/status.h"
#include "worker/comm/gloo_communicator.h"
#include "worker/device/cpu/cpu_ceilings.h"
#include "worker/train/trainer_backend.h"
#include "worker/train/trainer_ceilings.h"

namespace fsdp {
namespace {

// A peer that is silent for longer than the hang rule allows has been dealt with by the
// coordinator; this is the end of patience where there is none.
constexpr absl::Duration kMinTimeout = absl::Seconds(300);

absl::StatusOr<RankCommunicators> ConnectGloo(const v1::TrainerStart& start,
                                              const v1::CommitEpoch& /*commit*/, TrainerLink& link,
                                              Device& /*device*/) {
  const v1::StartRank& assignment = start.assignment();
  RankCommunicators communicators;
  if (assignment.world_size() == 1) return communicators;
  const v1::JobSpec& spec = assignment.job().spec();
  GlooOptions options;
  options.rank = assignment.key().rank();
  options.world_size = assignment.world_size();
  options.bind_address = start.bind_address();
  options.timeout = std::max(kMinTimeout, absl::Seconds(4 * spec.limits().hang_timeout_seconds()));
  options.name = "gather";
  ASSIGN_OR_RETURN(communicators.gather, CreateGlooCommunicator(options, link.rendezvous()));
  if (spec.sharding().has_communicators() && spec.sharding().communicators() == 1) {
    return communicators;
  }
  options.name = "scatter";
  ASSIGN_OR_RETURN(communicators.scatter, CreateGlooCommunicator(options, link.rendezvous()));
  return communicators;
}

}  // namespace

TrainerBackend MakeTrainerBackend() {
  TrainerBackend backend;
  backend.name = "cpu";
  backend.local = CpuBackend();
  backend.create_device = [](const v1::TrainerStart& start) {
    CpuDeviceOptions options;
    options.num_threads = start.cpu_threads();
    return CreateCpuDevice(options);
  };
  backend.measure_ceilings = [](Device& device) -> absl::StatusOr<v1::DeviceCeilings> {
    ASSIGN_OR_RETURN(const DeviceCeilings measured, MeasureCeilings(device));
    return CeilingsRecord(measured, device.name());
  };
  backend.connect = ConnectGloo;
  backend.marker = CpuStreamMarker();
  return backend;
}

}  // namespace fsdp
