#ifndef FSDPCTL_WORKER_PLAN_SHARD_LAYOUT_H_
#define FSDPCTL_WORKER_PLAN_SHARD_LAYOUT_H_

// Where the parameters of a unit lie in its flat buffer, and which rows each rank owns.
//
// Every parameter is whole and contiguous (fused groups back to back). Rank r owns the elements
// [r x shard_elements, (r + 1) x shard_elements). Slice edges fall on row boundaries of whatever
// parameter they fall in, so one collective moves the unit with no copy-in or copy-out and a
// checkpoint stores rows only. A rank may own no rows of a parameter, or padding only.
//
// Why padding can be needed: a parameter with two or more edges inside forces shard_elements to be
// a multiple of its row. Order (long rows together, vectors last) and few padding elements do the
// rest. Parameters start on multiples of 8 elements (16 bytes of bf16) wherever the rows allow it.

#include <cstdint>
#include <vector>

#include "worker/plan/model_config.h"

namespace fsdp {

struct RowRange {
  std::int64_t begin = 0;  // rows of the parameter
  std::int64_t end = 0;    // equal to begin when the rank holds none
  // Where row `begin` lies in the rank's slice, in elements.
  std::int64_t shard_offset = 0;

  [[nodiscard]] bool empty() const { return begin == end; }
};

struct ShardLayout {
  int world_size = 1;
  std::int64_t shard_elements = 0;  // of each rank, padding included; a multiple of 8
  std::int64_t used_elements = 0;   // parameters only
  // Start of each parameter in the unit, in UnitSpec's order.
  std::vector<std::int64_t> offsets;

  [[nodiscard]] std::int64_t unit_elements() const { return world_size * shard_elements; }
  [[nodiscard]] std::int64_t padding_elements() const { return unit_elements() - used_elements; }
  // What `rank` owns of parameter `index`, which is `parameter`.
  [[nodiscard]] RowRange RowsOf(int rank, int index, const ParameterSpec& parameter) const;
};

// World sizes from 1; deterministic: equal inputs give equal layouts on every rank.
ShardLayout MakeShardLayout(const UnitSpec& unit, int world_size);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PLAN_SHARD_LAYOUT_H_
