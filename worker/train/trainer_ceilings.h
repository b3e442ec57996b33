#ifndef FSDPCTL_WORKER_TRAIN_TRAINER_CEILINGS_H_
#define FSDPCTL_WORKER_TRAIN_TRAINER_CEILINGS_H_

// The device's ceilings, measured once per host and kept in the cache folder: measuring takes up to
// some seconds, and ranks that measure at the same time measure each other. The rate of collectives
// is measured in every epoch, by all ranks together.

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/v1/trainer.pb.h"
#include "worker/comm/communicator.h"
#include "worker/device/ceilings.h"
#include "worker/device/device.h"
#include "worker/train/trainer_link.h"

namespace fsdp {

// Step thread only.
class CeilingsCache {
 public:
  explicit CeilingsCache(const v1::TrainerStart& start);

  // The first rank of the host takes them from the cache or measures them; the others only look,
  // now and in Get, until the first has written them. Known ones are sent over `link`. A failure to
  // measure is a log line: training goes on without verdicts.
  //   UNAVAILABLE  the link
  absl::Status Prepare(const std::function<absl::StatusOr<v1::DeviceCeilings>(Device&)>& measure,
                       Device& device, TrainerLink& link);
  // Of the collectives of this epoch: bytes of the bus a second.
  absl::Status AddCollective(double bytes_per_second);
  // All zero while unknown.
  const v1::DeviceCeilings& Get();

 private:
  bool Load();
  void Store() const;
  absl::Status Announce();

  TrainerLink* link_ = nullptr;
  const bool first_of_host_;
  std::string path_;  // empty: no cache
  std::string device_;
  bool known_ = false;
  int looks_ = 0;
  v1::DeviceCeilings ceilings_;
};

v1::DeviceCeilings CeilingsRecord(const DeviceCeilings& measured, const std::string& device);

// Of the bus as nccl-tests counts it (bytes x (n-1)/n a second): the best of a few gathers of
// `total_bytes` over all ranks, each of which calls it. The memory for it is freed again. Two ranks
// at least.
absl::StatusOr<double> MeasureCollective(Communicator& communicator, Device& device,
                                         std::int64_t total_bytes);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TRAINER_CEILINGS_H_
