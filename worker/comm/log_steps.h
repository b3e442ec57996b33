#ifndef FSDPCTL_WORKER_COMM_LOG_STEPS_H_
#define FSDPCTL_WORKER_COMM_LOG_STEPS_H_

// Collectives of small blocks among many ranks: Bruck's algorithms, which need log2(world) rounds
// of one message a rank where a direct exchange needs world - 1 messages. A gather moves no more
// bytes for it, an exchange log2(world) / 2 times as many.
//
// Thread rule: as their caller. Lifetime: nothing is kept.

#include <cstddef>
#include <functional>
#include <span>

#include "absl/status/status.h"

namespace fsdp {

// Sends `out` to rank `to` and fills `in` from rank `from`; both are done when it returns. `round`
// counts from 0.
using SwapMessages = std::function<absl::Status(int round, int to, std::span<const std::byte> out,
                                                int from, std::span<std::byte> in)>;

// all[r] = rank r's `mine`, for all r. all.size() = world_size * mine.size().
absl::Status GatherInLogSteps(int rank, int world_size, std::span<const std::byte> mine,
                              std::span<std::byte> all, const SwapMessages& swap);

// received[r] = what rank r has for this one, of blocks of one size; blocks[r] is for rank r. Both
// have world_size blocks and may not overlap.
absl::Status ExchangeInLogSteps(int rank, int world_size, std::span<const std::byte> blocks,
                                std::span<std::byte> received, const SwapMessages& swap);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_LOG_STEPS_H_
