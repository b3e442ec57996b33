#include "worker/comm/log_steps.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "proto/support/status.h"

namespace fsdp {
namespace {

// Block `index` of a row of them.
template <typename Byte>
Byte* At(std::span<Byte> blocks, std::size_t index, std::size_t block_bytes) {
  return blocks.data() + index * block_bytes;
}

}  // namespace

absl::Status GatherInLogSteps(int rank, int world_size, std::span<const std::byte> mine,
                              std::span<std::byte> all, const SwapMessages& swap) {
  const std::size_t bytes = mine.size();
  const auto world = static_cast<std::size_t>(world_size);
  // have[i] is of rank + i: each round doubles what a rank has.
  std::vector<std::byte> have(all.size());
  const std::span<std::byte> row(have);
  std::memcpy(have.data(), mine.data(), bytes);
  int round = 0;
  for (int count = 1; count < world_size; count *= 2, ++round) {
    const auto size = static_cast<std::size_t>(std::min(count, world_size - count)) * bytes;
    RETURN_IF_ERROR(swap(round, (rank - count + world_size) % world_size, row.first(size),
                         (rank + count) % world_size,
                         row.subspan(static_cast<std::size_t>(count) * bytes, size)));
  }
  for (std::size_t i = 0; i < world; ++i) {
    std::memcpy(At(all, (static_cast<std::size_t>(rank) + i) % world, bytes), At(row, i, bytes),
                bytes);
  }
  return absl::OkStatus();
}

absl::Status ExchangeInLogSteps(int rank, int world_size, std::span<const std::byte> blocks,
                                std::span<std::byte> received, const SwapMessages& swap) {
  const auto world = static_cast<std::size_t>(world_size);
  const auto me = static_cast<std::size_t>(rank);
  const std::size_t bytes = blocks.size() / world;
  // row[i] has i ranks to go upwards, and goes the powers of two that i is made of.
  std::vector<std::byte> row_memory(blocks.size());
  std::vector<std::byte> out_memory(blocks.size());
  std::vector<std::byte> in_memory(blocks.size());
  const std::span<std::byte> row(row_memory), out(out_memory), in(in_memory);
  for (std::size_t i = 0; i < world; ++i) {
    std::memcpy(At(row, i, bytes), At(blocks, (me + i) % world, bytes), bytes);
  }
  int round = 0;
  for (std::size_t hop = 1; hop < world; hop *= 2, ++round) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < world; ++i) {
      if ((i & hop) != 0) std::memcpy(At(out, count++, bytes), At(row, i, bytes), bytes);
    }
    RETURN_IF_ERROR(swap(round, static_cast<int>((me + hop) % world), out.first(count * bytes),
                         static_cast<int>((me + world - hop) % world), in.first(count * bytes)));
    count = 0;
    for (std::size_t i = 0; i < world; ++i) {
      if ((i & hop) != 0) std::memcpy(At(row, i, bytes), At(in, count++, bytes), bytes);
    }
  }
  for (std::size_t i = 0; i < world; ++i) {
    std::memcpy(At(received, (me + world - i) % world, bytes), At(row, i, bytes), bytes);
  }
  return absl::OkStatus();
}

}  // namespace fsdp
