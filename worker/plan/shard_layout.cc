#include "worker/plan/shard_layout.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "proto/support/log.h"

namespace fsdp {
namespace {

constexpr std::int64_t kAlignElements = 8;
constexpr std::int64_t kImpossible = std::numeric_limits<std::int64_t>::max();

// Parameters that are placed as one: a fused group, or one parameter.
struct Piece {
  std::vector<int> members;  // indexes into UnitSpec::parameters
  std::int64_t row = 1;      // elements; equal in a fused group
  std::int64_t elements = 0;
};

std::int64_t RoundUp(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Long rows first, rows of one length together, vectors last: neighbours with the same row need no
// padding between them, and vectors may be cut anywhere.
std::vector<Piece> PiecesOf(const UnitSpec& unit) {
  std::vector<Piece> pieces;
  int last_group = 0;
  for (int i = 0; i < static_cast<int>(unit.parameters.size()); ++i) {
    const ParameterSpec& parameter = unit.parameters[static_cast<std::size_t>(i)];
    const bool joins = parameter.fused_group != 0 && parameter.fused_group == last_group;
    if (!joins) pieces.push_back({{}, parameter.row_elements(), 0});
    pieces.back().members.push_back(i);
    pieces.back().elements += parameter.elements();
    last_group = parameter.fused_group;
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.row > b.row; });
  return pieces;
}

// Whether slice edges inside [start, start + elements) all fall on row boundaries.
bool EdgesFit(const Piece& piece, std::int64_t start, std::int64_t shard) {
  const std::int64_t first = (start / shard + 1) * shard;
  const std::int64_t end = start + piece.elements;
  if (first >= end) return true;
  if ((first - start) % piece.row != 0) return false;
  return first + shard >= end || shard % piece.row == 0;
}

// The smallest start at or after `cursor` that fits, on a multiple of `align`.
std::int64_t StartWithAlignment(const Piece& piece, std::int64_t cursor, std::int64_t shard,
                                std::int64_t align) {
  const std::int64_t start = RoundUp(cursor, align);
  if (EdgesFit(piece, start, shard)) return start;
  // Shifted so that an edge after `start` meets a row boundary, or starting at that edge.
  std::int64_t edge = (start / shard + 1) * shard;
  for (int tries = 0; tries < 3; ++tries, edge += shard) {
    const std::int64_t rows_before = std::max<std::int64_t>(0, (edge - start) / piece.row);
    for (std::int64_t rows = rows_before; rows >= 0 && rows > rows_before - align; --rows) {
      const std::int64_t candidate = edge - rows * piece.row;
      if (candidate % align == 0 && EdgesFit(piece, candidate, shard)) return candidate;
    }
    if (EdgesFit(piece, edge, shard)) return edge;
  }
  return kImpossible;
}

std::int64_t StartOf(const Piece& piece, std::int64_t cursor, std::int64_t shard) {
  const std::int64_t aligned = StartWithAlignment(piece, cursor, shard, kAlignElements);
  const std::int64_t tight = StartWithAlignment(piece, cursor, shard, 1);
  if (aligned == kImpossible || tight == kImpossible) return std::min(aligned, tight);
  // Alignment is worth a few rows of padding, no more.
  return aligned - tight <= kAlignElements * piece.row ? aligned : tight;
}

// Start of every piece, or an empty list when `world` slices of `shard` elements do not hold them.
std::vector<std::int64_t> Place(const std::vector<Piece>& pieces, int world, std::int64_t shard) {
  std::vector<std::int64_t> starts;
  std::int64_t cursor = 0;
  for (const Piece& piece : pieces) {
    const std::int64_t start = StartOf(piece, cursor, shard);
    if (start == kImpossible || start + piece.elements > world * shard) return {};
    starts.push_back(start);
    cursor = start + piece.elements;
  }
  return starts;
}

// What slices of at least `shard` elements are made a multiple of: the rows of all pieces that are
// longer than `slices` slices. Beyond two slices a piece is sure to contain two edges; from one on
// it may, where it happens to lie.
std::int64_t UnitOfShard(const std::vector<Piece>& pieces, std::int64_t shard, int slices) {
  std::int64_t multiple = kAlignElements;
  for (const Piece& piece : pieces) {
    if (piece.elements <= slices * shard || piece.row == 1) continue;
    const std::int64_t step = piece.row / std::gcd(multiple, piece.row);
    if (multiple > (std::int64_t{1} << 50) / step) return std::int64_t{1} << 50;
    multiple *= step;
  }
  return multiple;
}

struct Choice {
  std::int64_t shard = kImpossible;
  std::vector<std::int64_t> starts;
};

// The smallest slice from `least` on (in this multiple's steps) that holds everything and beats
// `best`.
void TryFrom(const std::vector<Piece>& pieces, int world, std::int64_t least, int slices,
             Choice& best) {
  const std::int64_t multiple = UnitOfShard(pieces, least, slices);
  const std::int64_t step = RoundUp(std::max<std::int64_t>(1, least / 2048), multiple);
  for (std::int64_t shard = RoundUp(least, multiple); shard < best.shard; shard += step) {
    std::vector<std::int64_t> starts = Place(pieces, world, shard);
    if (starts.empty()) continue;
    best = {shard, std::move(starts)};
    return;
  }
}

}  // namespace

RowRange ShardLayout::RowsOf(int rank, int index, const ParameterSpec& parameter) const {
  const std::int64_t start = offsets[static_cast<std::size_t>(index)];
  const std::int64_t end = start + parameter.elements();
  const std::int64_t slice_begin = rank * shard_elements;
  const std::int64_t from = std::clamp(slice_begin, start, end);
  const std::int64_t to = std::clamp(slice_begin + shard_elements, start, end);
  const std::int64_t row = parameter.row_elements();
  if (from == to) {
    const std::int64_t none = (from - start) / row;
    return {none, none, 0};
  }
  return {(from - start) / row, (to - start) / row, from - slice_begin};
}

ShardLayout MakeShardLayout(const UnitSpec& unit, int world_size) {
  const std::vector<Piece> pieces = PiecesOf(unit);
  ShardLayout layout;
  layout.world_size = world_size;
  for (const Piece& piece : pieces) layout.used_elements += piece.elements;

  const std::int64_t least = (layout.used_elements + world_size - 1) / world_size;
  Choice best;
  // Larger slices free pieces of the rule that two edges force; the last candidate always fits.
  std::vector<std::int64_t> starts_from{least};
  for (const Piece& piece : pieces) {
    starts_from.push_back(std::max(least, (piece.elements + 1) / 2));
  }
  starts_from.push_back(RoundUp(layout.used_elements, kAlignElements) +
                        kAlignElements * static_cast<std::int64_t>(pieces.size()));
  for (const std::int64_t from : starts_from) {
    for (const int slices : {2, 1, 0}) TryFrom(pieces, world_size, from, slices, best);
  }
  FSDP_CHECK(best.shard != kImpossible, "no layout for unit ", unit.name);

  layout.shard_elements = best.shard;
  layout.offsets.resize(unit.parameters.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::int64_t offset = best.starts[i];
    for (const int member : pieces[i].members) {
      layout.offsets[static_cast<std::size_t>(member)] = offset;
      offset += unit.parameters[static_cast<std::size_t>(member)].elements();
    }
  }
  return layout;
}

}  // namespace fsdp
