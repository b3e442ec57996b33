#ifndef FSDPCTL_WORKER_TRAIN_TRAINER_EXCHANGE_H_
#define FSDPCTL_WORKER_TRAIN_TRAINER_EXCHANGE_H_

// A few numbers from every rank to every rank: what the trainer itself (not the engine) must agree
// on, such as a stop that reached one rank a step before the others.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/device/device.h"
#include "worker/plan/plan.h"
#include "worker/train/engine.h"

namespace fsdp {

class RankExchange {
 public:
  static constexpr std::size_t kMaxValues = kMaxExchangeValues;
  static constexpr std::size_t kMaxTextBytes = 2048;

  // `communicator` is null at world size 1; it and its stream (the device's gather stream) are
  // shared with the engine, so calls come between engine calls, from the step thread. The engine
  // outlives the exchange, which works in its exchange_memory().
  //   RESOURCE_EXHAUSTED  the host cannot give a few hundred bytes
  static absl::StatusOr<std::unique_ptr<RankExchange>> Create(Engine& engine, Device& device,
                                                              Communicator* communicator);

  // values[rank] = that rank's `mine`; at most kMaxValues, as many on every rank. Also a barrier.
  // `label` names it for flight recorders.
  absl::StatusOr<std::vector<std::vector<double>>> Gather(std::span<const double> mine,
                                                          const char* label);

  // texts[rank] = that rank's `mine`, cut to kMaxTextBytes. In several rounds: for rare moments.
  absl::StatusOr<std::vector<std::string>> GatherTexts(std::string_view mine, const char* label);

 private:
  RankExchange(Device& device, Communicator* communicator, std::span<std::byte> device_memory)
      : device_(device), communicator_(communicator), device_memory_(device_memory) {}

  Device& device_;
  Communicator* const communicator_;
  const std::span<std::byte> device_memory_;  // [kMaxValues], then [world, kMaxValues]
  std::unique_ptr<DeviceBuffer> host_memory_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TRAINER_EXCHANGE_H_
