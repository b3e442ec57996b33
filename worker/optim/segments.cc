#include "worker/optim/segments.h"

#include <algorithm>

namespace fsdp {
namespace {

// Of one unit's slice, ascending, not merged; `decay` holds 1 for vectors, 0 for matrices.
std::vector<DecaySegment> Pieces(const UnitPlan& unit, int rank) {
  std::vector<DecaySegment> pieces;
  for (std::size_t i = 0; i < unit.spec.parameters.size(); ++i) {
    const ParameterSpec& parameter = unit.spec.parameters[i];
    const RowRange rows = unit.layout.RowsOf(rank, static_cast<int>(i), parameter);
    if (rows.empty()) continue;
    const std::int64_t size = (rows.end - rows.begin) * parameter.row_elements();
    pieces.push_back(
        {rows.shard_offset, rows.shard_offset + size, parameter.is_vector() ? 1.0F : 0.0F});
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const DecaySegment& a, const DecaySegment& b) { return a.begin < b.begin; });
  return pieces;
}

}  // namespace

std::vector<DecaySegment> DecaySegments(const UnitPlan& unit, int rank,
                                        const OptimizerConfig& config) {
  const auto decay = static_cast<float>(config.weight_decay);
  std::vector<DecaySegment> segments;
  for (DecaySegment piece : Pieces(unit, rank)) {
    const bool is_vector = piece.weight_decay != 0;
    piece.weight_decay = is_vector && !config.decay_vectors ? 0.0F : decay;
    const bool joins = !segments.empty() && segments.back().end == piece.begin &&
                       segments.back().weight_decay == piece.weight_decay;
    if (joins) {
      segments.back().end = piece.end;
    } else {
      segments.push_back(piece);
    }
  }
  return segments;
}

std::vector<ElementRun> ParameterRuns(const UnitPlan& unit, int rank) {
  std::vector<ElementRun> runs;
  for (const DecaySegment& piece : Pieces(unit, rank)) {
    if (!runs.empty() && runs.back().end == piece.begin) {
      runs.back().end = piece.end;
    } else {
      runs.push_back({piece.begin, piece.end});
    }
  }
  return runs;
}

}  // namespace fsdp
