// The promises of the layout, over presets, odd shapes and worlds 1 to 9 and beyond.

#include "worker/plan/shard_layout.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"

namespace fsdp {
namespace {

void ExpectSound(const UnitSpec& unit, const ShardLayout& layout) {
  const std::int64_t total = layout.unit_elements();
  ASSERT_EQ(layout.offsets.size(), unit.parameters.size());
  EXPECT_EQ(layout.shard_elements % 8, 0);
  std::vector<int> owner(static_cast<std::size_t>(total), -1);
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const ParameterSpec& parameter = unit.parameters[i];
    const std::int64_t start = layout.offsets[i];
    ASSERT_GE(start, 0) << parameter.name;
    ASSERT_LE(start + parameter.elements(), total) << parameter.name;
    for (std::int64_t at = start; at < start + parameter.elements(); ++at) {
      ASSERT_EQ(owner[static_cast<std::size_t>(at)], -1) << parameter.name << " overlaps";
      owner[static_cast<std::size_t>(at)] = static_cast<int>(i);
    }
    // Fused groups lie back to back.
    if (parameter.fused_group != 0 && i > 0 &&
        unit.parameters[i - 1].fused_group == parameter.fused_group) {
      EXPECT_EQ(start, layout.offsets[i - 1] + unit.parameters[i - 1].elements());
    }
    // Ranks own whole rows, each row once, where the slice says.
    std::int64_t next = 0;
    for (int rank = 0; rank < layout.world_size; ++rank) {
      const RowRange rows = layout.RowsOf(rank, static_cast<int>(i), parameter);
      if (rows.empty()) continue;
      EXPECT_EQ(rows.begin, next) << parameter.name << " rank " << rank;
      next = rows.end;
      const std::int64_t in_unit = rank * layout.shard_elements + rows.shard_offset;
      EXPECT_EQ(in_unit, start + rows.begin * parameter.row_elements());
      EXPECT_LE(rows.shard_offset + (rows.end - rows.begin) * parameter.row_elements(),
                layout.shard_elements);
    }
    EXPECT_EQ(next, parameter.rows()) << parameter.name;
  }
}

TEST(ShardLayout, PresetsAreSoundOnEveryWorld) {
  for (const char* name : {"minillm-tiny", "llama-tiny", "gpt2-tiny", "llama-bytes"}) {
    v1::ModelSpec spec;
    spec.set_preset(name);
    for (const UnitSpec& unit : UnitsOf(*ResolveModel(spec))) {
      for (int world = 1; world <= 9; ++world) {
        SCOPED_TRACE(absl::StrCat(name, " ", unit.name, " world ", world));
        ExpectSound(unit, MakeShardLayout(unit, world));
      }
    }
  }
}

TEST(ShardLayout, LargePresetsNeedLittlePadding) {
  for (const std::string& name : PresetNames()) {
    v1::ModelSpec spec;
    spec.set_preset(name);
    const ModelConfig model = *ResolveModel(spec);
    if (NumParameters(model) < 100'000'000) continue;
    for (const UnitSpec& unit : UnitsOf(model)) {
      if (unit.name != "embed" && unit.name != "head" && unit.name != "layers.0") continue;
      for (const int world : {1, 2, 3, 4, 6, 7, 8, 16, 64}) {
        const ShardLayout layout = MakeShardLayout(unit, world);
        // Many ranks leave slices of a few common multiples of the rows.
        EXPECT_LE(layout.padding_elements(), layout.used_elements / (world <= 8 ? 50 : 10))
            << name << " " << unit.name << " world " << world;
        for (const std::int64_t offset : layout.offsets) EXPECT_EQ(offset % 8, 0);
      }
    }
  }
}

TEST(ShardLayout, WorldOneHasAtMostAlignmentPadding) {
  v1::ModelSpec spec;
  spec.set_preset("llama-tiny");
  for (const UnitSpec& unit : UnitsOf(*ResolveModel(spec))) {
    EXPECT_EQ(MakeShardLayout(unit, 1).padding_elements(), 0) << unit.name;
  }
}

TEST(ShardLayout, RandomShapesAreSound) {
  std::mt19937 random(20240607);
  const auto upto = [&](int most) { return static_cast<std::int64_t>(random() % most + 1); };
  for (int round = 0; round < 300; ++round) {
    UnitSpec unit{"unit", {}};
    const std::int64_t shared_row = upto(40);
    const int count = static_cast<int>(upto(7));
    for (int i = 0; i < count; ++i) {
      ParameterSpec parameter;
      parameter.name = absl::StrCat("p", i);
      const int kind = static_cast<int>(random() % 4);
      if (kind == 0) parameter.shape = {upto(60)};
      if (kind == 1) parameter.shape = {upto(60), upto(37)};
      if (kind >= 2) parameter.shape = {upto(60), shared_row};
      if (kind == 3) parameter.fused_group = 1 + i / 3;
      unit.parameters.push_back(parameter);
    }
    for (const int world : {1, 2, 3, 5, 8, 9, 31}) {
      SCOPED_TRACE(absl::StrCat("round ", round, " world ", world));
      const ShardLayout layout = MakeShardLayout(unit, world);
      ExpectSound(unit, layout);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// More ranks than rows: some own nothing.
TEST(ShardLayout, ManyRanksFewRows) {
  UnitSpec unit{"unit", {{"w", ParameterRole::kHeadWeight, {2, 8}, {}, 0}}};
  const ShardLayout layout = MakeShardLayout(unit, 9);
  ExpectSound(unit, layout);
  int owners = 0;
  for (int rank = 0; rank < 9; ++rank) {
    if (!layout.RowsOf(rank, 0, unit.parameters[0]).empty()) ++owners;
  }
  EXPECT_EQ(owners, 2);
}

}  // namespace
}  // namespace fsdp
