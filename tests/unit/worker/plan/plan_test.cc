#include "worker/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "worker/plan/plan_ticks.h"

namespace fsdp {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

PlanInput Input(const std::string& preset, int world = 1) {
  v1::ModelSpec spec;
  spec.set_preset(preset);
  PlanInput input;
  input.model = *ResolveModel(spec);
  input.world_size = world;
  input.sequence_length = 128;
  input.global_batch = 8;
  return input;
}

Plan Built(const PlanInput& input) {
  auto plan = BuildPlan(input);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

std::int64_t RowBytes(const Plan& plan, const std::string& kind) {
  for (const MemoryRow& row : plan.memory) {
    if (row.kind == kind) return row.bytes;
  }
  return 0;
}

TEST(BatchSplit, SharesAndMicroBatchesCoverTheBatchOnce) {
  for (std::int64_t batch = 1; batch <= 13; ++batch) {
    for (int world = 1; world <= 9; ++world) {
      for (std::int64_t micro = 0; micro <= 4; ++micro) {
        const BatchSplit split(batch, world, micro);
        std::int64_t next = 0;
        for (int rank = 0; rank < world; ++rank) {
          const SequenceRange share = split.Share(rank);
          EXPECT_EQ(share.begin, next);
          next += share.count;
          std::int64_t inside = 0;
          for (std::int64_t i = 0; i < split.num_micro_batches(); ++i) {
            const SequenceRange part = split.MicroBatch(rank, i);
            EXPECT_EQ(part.begin, inside);
            inside += part.count;
            EXPECT_LE(part.count, split.max_micro_batch());
            EXPECT_LE(part.count, micro > 0 ? micro : share.count);
          }
          EXPECT_EQ(inside, share.count);
        }
        EXPECT_EQ(next, batch);
      }
    }
  }
}

TEST(Plan, DTypesFollowThePolicy) {
  PlanInput input = Input("llama-tiny", 2);
  input.parameter_dtype = DType::kBf16;
  const Plan bf16 = Built(input);
  EXPECT_EQ(bf16.master_dtype(), DType::kF32);
  EXPECT_EQ(bf16.stats_dtype(), DType::kF32);
  EXPECT_EQ(bf16.gradient_dtype(), DType::kF32);
  // Rows count whole 256-byte lines.
  EXPECT_NEAR(RowBytes(bf16, "master weights"), bf16.shard_elements * 2, 256);
  EXPECT_NEAR(RowBytes(bf16, "moments"), bf16.shard_elements * 8, 512);
  EXPECT_NEAR(RowBytes(bf16, "compute weights"), bf16.shard_elements * 2, 256);
  input.reduce_dtype = DType::kBf16;
  EXPECT_EQ(Built(input).gradient_dtype(), DType::kBf16);
  input.reduce_dtype = DType::kF32;
  input.parameter_dtype = DType::kF32;
  EXPECT_EQ(RowBytes(Built(input), "compute weights"), 0);
  EXPECT_EQ(ToProto(bf16).parameter_dtype(), v1::PRECISION_D_TYPE_BF16);
  EXPECT_EQ(ToProto(bf16).reduce_dtype(), v1::PRECISION_D_TYPE_FP32);
  // Activations are bf16: half of what fp32 takes for the same buffer.
  const auto size_of = [](const Plan& plan, BufferId id) {
    return plan.buffers[static_cast<std::size_t>(id)].size_bytes;
  };
  EXPECT_EQ(2 * size_of(bf16, bf16.blocks[0].forward.qkv),
            size_of(Built(input), Built(input).blocks[0].forward.qkv));
}

TEST(Plan, WorldOneHasNoUnitBuffers) {
  EXPECT_EQ(RowBytes(Built(Input("llama-tiny")), "unit buffers"), 0);
  EXPECT_GT(RowBytes(Built(Input("llama-tiny", 2)), "unit buffers"), 0);
}

TEST(Plan, BuffersThatLiveTogetherNeverShareMemory) {
  for (const auto policy : {v1::RECOMPUTE_POLICY_KEEP, v1::RECOMPUTE_POLICY_NONE,
                            v1::RECOMPUTE_POLICY_SELECTIVE, v1::RECOMPUTE_POLICY_FULL}) {
    PlanInput input = Input("gpt2-tiny", 3);
    input.sequence_length = 64;
    input.recompute = policy;
    input.micro_batch = 1;
    const Plan plan = Built(input);
    const int total = TickClock(input.model.num_layers).total();
    for (int tick = 0; tick < total; ++tick) {
      std::vector<const PlannedBuffer*> live;
      for (const PlannedBuffer& buffer : plan.buffers) {
        const bool now = buffer.first_tick == kAlways ||
                         (buffer.first_tick <= tick && tick <= buffer.last_tick) ||
                         tick <= buffer.last_tick - total;
        if (now) live.push_back(&buffer);
      }
      std::sort(live.begin(), live.end(), [](const PlannedBuffer* a, const PlannedBuffer* b) {
        return a->offset_bytes < b->offset_bytes;
      });
      for (std::size_t i = 1; i < live.size(); ++i) {
        ASSERT_LE(live[i - 1]->offset_bytes + live[i - 1]->size_bytes, live[i]->offset_bytes)
            << live[i - 1]->name << " and " << live[i]->name << " at tick " << tick;
      }
      for (const PlannedBuffer* buffer : live) {
        ASSERT_LE(buffer->offset_bytes + buffer->size_bytes, plan.arena_bytes);
      }
    }
  }
}

TEST(Plan, AtMostTwoUnitsAreGatheredAndTwoGradientsPending) {
  PlanInput input = Input("minillm", 4);
  input.micro_batch = 1;
  const Plan plan = Built(input);
  const TickClock clock(input.model.num_layers);
  for (int tick = 0; tick < clock.total(); ++tick) {
    int weights = 0, gradients = 0;
    for (const PlannedBuffer& buffer : plan.buffers) {
      const bool now = (buffer.first_tick <= tick && tick <= buffer.last_tick) ||
                       tick <= buffer.last_tick - clock.total();
      if (buffer.kind != MemoryKind::kUnitBuffers || !now) continue;
      ++(buffer.name.find(".weights.") != std::string::npos ? weights : gradients);
    }
    EXPECT_LE(weights, 3) << tick;  // the last block stays while the head and its input are there
    EXPECT_LE(gradients, 2) << tick;
  }
}

TEST(Plan, OverlayAndRecomputationSaveMemory) {
  PlanInput input = Input("minillm");
  input.sequence_length = 1024;
  input.recompute = v1::RECOMPUTE_POLICY_NONE;
  const std::int64_t none = Built(input).total_bytes;
  input.recompute = v1::RECOMPUTE_POLICY_SELECTIVE;
  const std::int64_t selective = Built(input).total_bytes;
  input.recompute = v1::RECOMPUTE_POLICY_FULL;
  const std::int64_t full = Built(input).total_bytes;
  EXPECT_LT(selective, none);
  EXPECT_LT(full, selective);
  input.overlay = false;
  EXPECT_GT(Built(input).total_bytes, full);
}

// 16 bytes a parameter, and gradients that grow where activations die: what a rank allocates for
// the cases that are laid beside PyTorch FSDP2 (docs/benchmarks.md). 12 bytes of weights and
// moments a parameter always live, all of it and the activations of the last micro-batch never do.
TEST(Plan, GradientsGrowWhereActivationsDie) {
  struct Case {
    const char* preset;
    int layers;
    std::int64_t batch, sequence;
    v1::RecomputePolicy recompute;
    double most_GB;
  };
  for (const Case& c : {
           Case{"minillm", 0, 8, 1024, v1::RECOMPUTE_POLICY_NONE, 14.5},
           Case{"minillm", 0, 8, 1024, v1::RECOMPUTE_POLICY_FULL, 12.9},
           Case{"llama1b", 0, 4, 4096, v1::RECOMPUTE_POLICY_NONE, 36},
           Case{"llama8b", 16, 2, 4096, v1::RECOMPUTE_POLICY_NONE, 78},
           Case{"llama8b", 0, 1, 4096, v1::RECOMPUTE_POLICY_NONE, 132},
       }) {
    PlanInput input = Input(c.preset);
    if (c.layers > 0) input.model.num_layers = c.layers;
    input.device = DeviceKind::kCuda;
    input.parameter_dtype = DType::kBf16;
    input.sequence_length = c.sequence;
    input.global_batch = c.batch;
    input.recompute = c.recompute;
    const Plan plan = Built(input);
    const std::int64_t gaps = RowBytes(plan, "gaps");
    EXPECT_LE(static_cast<double>(plan.arena_bytes), c.most_GB * 1e9)
        << c.preset << " " << c.layers << ", of that gaps " << gaps;
    EXPECT_GE(plan.arena_bytes, plan.parameters * 16) << c.preset;
    // Overlaid lifetimes leave little unused.
    EXPECT_LE(gaps * 25, plan.arena_bytes) << c.preset << " " << c.layers;
  }
}

// Seconds of a step on an NVIDIA H200 (docs/benchmarks.md, 2026-11-29), by policy: none, selective
// as far as the card's memory asks for, full.
TEST(Plan, PredictsTheMeasuredStepsWithinTenPercent) {
  struct Case {
    const char* preset;
    int layers;
    std::int64_t batch, sequence;
    std::array<double, 3> measured_ms;
  };
  constexpr std::array kPolicies = {v1::RECOMPUTE_POLICY_NONE, v1::RECOMPUTE_POLICY_SELECTIVE,
                                    v1::RECOMPUTE_POLICY_FULL};
  for (const Case& c : {Case{"minillm", 0, 8, 1024, {65.0, 65.3, 77.8}},
                        Case{"llama1b", 0, 4, 4096, {251.0, 250.9, 297.7}},
                        Case{"llama8b", 16, 2, 4096, {377.5, 380.9, 450.1}},
                        Case{"llama8b", 0, 1, 4096, {387.7, 389.1, 462.0}}}) {
    PlanInput input = Input(c.preset);
    if (c.layers > 0) input.model.num_layers = c.layers;
    input.device = DeviceKind::kCuda;
    input.device_memory_bytes = 150'000'000'000;
    input.parameter_dtype = DType::kBf16;
    input.sequence_length = c.sequence;
    input.global_batch = c.batch;
    for (std::size_t i = 0; i < kPolicies.size(); ++i) {
      input.recompute = kPolicies[i];
      const double predicted_ms = ToProto(Built(input)).predicted_step_seconds() * 1e3;
      EXPECT_NEAR(predicted_ms, c.measured_ms[i], 0.1 * c.measured_ms[i])
          << c.preset << " " << c.layers << " " << v1::RecomputePolicy_Name(kPolicies[i]);
    }
    input.recompute = v1::RECOMPUTE_POLICY_AUTO;
    EXPECT_EQ(Built(input).input.recompute, v1::RECOMPUTE_POLICY_KEEP) << c.preset;
  }
}

// Outputs are kept in as many blocks as the memory allows, and each takes its bytes.
TEST(Plan, KeepsOutputsInAsManyBlocksAsFit) {
  PlanInput input = Input("minillm");
  input.device = DeviceKind::kCuda;
  input.sequence_length = 1024;
  input.recompute = v1::RECOMPUTE_POLICY_NONE;
  const Plan none = Built(input);
  input.recompute = v1::RECOMPUTE_POLICY_KEEP;
  const Plan all = Built(input);
  EXPECT_EQ(all.num_kept_blocks, input.model.num_layers);
  EXPECT_EQ(all.num_recomputed_blocks, 0);
  const std::int64_t block_bytes =
      none.micro_batch_tokens * (2 * input.model.dim + input.model.mlp_dim) * 2;
  // A block's own outputs were there before, while it ran.
  EXPECT_NEAR(static_cast<double>(all.total_bytes - none.total_bytes),
              static_cast<double>(input.model.num_layers * block_bytes), 1.0 * block_bytes);
  input.device_memory_bytes = none.total_bytes + 3 * block_bytes;
  const Plan some = Built(input);
  EXPECT_GE(some.num_kept_blocks, 3);
  EXPECT_LE(some.num_kept_blocks, 4);
  EXPECT_EQ(some.blocks.back().keep, KeepPolicy::kAll);
  EXPECT_LE(some.total_bytes, input.device_memory_bytes);
  EXPECT_EQ(ToProto(some).kept_blocks(), some.num_kept_blocks);
  input.recompute = v1::RECOMPUTE_POLICY_AUTO;
  EXPECT_EQ(Built(input).input.recompute, v1::RECOMPUTE_POLICY_KEEP);
  EXPECT_LT(ToProto(all).predicted_step_seconds(), ToProto(none).predicted_step_seconds());
  input.device_memory_bytes = none.total_bytes;
  EXPECT_EQ(Built(input).input.recompute, v1::RECOMPUTE_POLICY_NONE);
}

TEST(Plan, AutoTakesTheFastestThatFits) {
  PlanInput input = Input("minillm");
  input.sequence_length = 1024;
  const Plan none = Built(input);
  EXPECT_EQ(none.input.recompute, v1::RECOMPUTE_POLICY_NONE);
  input.device_memory_bytes = none.total_bytes - 1;
  const Plan selective = Built(input);
  EXPECT_EQ(selective.input.recompute, v1::RECOMPUTE_POLICY_SELECTIVE);
  EXPECT_LE(selective.total_bytes, input.device_memory_bytes);
  // As few blocks as needed.
  EXPECT_EQ(selective.blocks.back().keep, KeepPolicy::kAll);
  EXPECT_GT(selective.num_recomputed_blocks, 0);
  EXPECT_LT(selective.num_recomputed_blocks, input.model.num_layers);
  EXPECT_EQ(none.num_recomputed_blocks, 0);
  PlanInput all = input;
  all.device_memory_bytes = 0;
  all.recompute = v1::RECOMPUTE_POLICY_SELECTIVE;
  input.device_memory_bytes = Built(all).total_bytes - 1;
  EXPECT_EQ(Built(input).input.recompute, v1::RECOMPUTE_POLICY_FULL);
  input.device_memory_bytes = 1 << 20;
  const auto refused = BuildPlan(input);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("per rank, the device has 1.0 MiB"), HasSubstr("moments"),
                    HasSubstr("remedies: no number of ranks up to 1024 is enough; ")));
}

// A row of the table of policies is the plan that a job with this policy gets.
TEST(PlanToProto, PoliciesAgreeWithThePlan) {
  PlanInput input = Input("minillm");
  input.sequence_length = 1024;
  input.device_memory_bytes = Built(input).total_bytes - 1;
  const v1::Plan plan = ToProto(Built(input));
  EXPECT_EQ(plan.blocks(), input.model.num_layers);
  ASSERT_EQ(plan.policies_size(), 4);
  EXPECT_EQ(plan.policies(0).recompute(), v1::RECOMPUTE_POLICY_KEEP);
  EXPECT_FALSE(plan.policies(0).fits());
  EXPECT_FALSE(plan.policies(1).fits());
  EXPECT_EQ(plan.policies(1).recomputed_blocks(), 0);
  const v1::PolicyEstimate& selective = plan.policies(2);
  EXPECT_EQ(plan.recompute(), selective.recompute());
  EXPECT_TRUE(selective.fits());
  EXPECT_EQ(plan.total_bytes(), selective.total_bytes());
  EXPECT_EQ(plan.recomputed_blocks(), selective.recomputed_blocks());
  EXPECT_LT(selective.recomputed_blocks(), plan.blocks());
  EXPECT_EQ(plan.policies(3).recomputed_blocks(), plan.blocks());
}

TEST(Plan, LogitsComeInChunks) {
  PlanInput input = Input("minillm");
  input.sequence_length = 4096;
  const Plan plan = Built(input);
  EXPECT_LE(plan.head.chunk_tokens * 32000 * 2, std::int64_t{32} << 20);
  EXPECT_EQ(plan.head.chunk_tokens % 16, 0);
  input.logits_chunk_bytes = 1;
  EXPECT_EQ(Built(input).head.chunk_tokens, 1);
}

TEST(Plan, AGpuTakesHalfOfItsLogitsAtATime) {
  PlanInput input = Input("qwen05b");
  input.device = DeviceKind::kCuda;
  input.parameter_dtype = DType::kBf16;
  input.sequence_length = 1024;
  const auto chunk = [&](std::int64_t batch) {
    input.global_batch = batch;
    input.micro_batch = batch;
    return Built(input).head.chunk_tokens;
  };
  EXPECT_EQ(chunk(1), 1024);        // 311 MB: all of it
  EXPECT_EQ(chunk(16), 16384 / 2);  // of 5.0 GB
  EXPECT_LE(chunk(32) * 151936 * 2, std::int64_t{4} << 30);
  EXPECT_GT(chunk(32), 32768 / 4);
}

TEST(Plan, HashSeesWhatRanksMustShare) {
  std::set<std::uint64_t> hashes;
  PlanInput input = Input("llama-tiny", 2);
  hashes.insert(Built(input).schedule_hash);
  EXPECT_EQ(Built(input).schedule_hash, *hashes.begin());
  const auto differs = [&](const PlanInput& other) {
    EXPECT_TRUE(hashes.insert(Built(other).schedule_hash).second);
  };
  PlanInput other = input;
  other.prefetch = 0;
  differs(other);
  other = input;
  other.micro_batch = 1;
  differs(other);
  other = input;
  other.model.mlp_dim += 16;
  differs(other);
  other = input;
  other.reduce_dtype = DType::kBf16;
  differs(other);
  other = input;
  other.recompute = v1::RECOMPUTE_POLICY_FULL;
  differs(other);
  other = input;
  other.sequence_length = 64;
  differs(other);
  other = input;
  other.reset_attention = true;
  differs(other);
}

// Where documents begin takes 4 bytes a token of a micro-batch, however many of them a step has.
TEST(Plan, DocumentsTakeTheRoomOfAMicroBatch) {
  PlanInput input = Input("llama-tiny", 2);
  input.micro_batch = 1;
  const Plan whole = Built(input);
  EXPECT_EQ(whole.document_begins, kNoBuffer);
  input.reset_attention = true;
  const Plan reset = Built(input);
  ASSERT_NE(reset.document_begins, kNoBuffer);
  EXPECT_EQ(reset.buffers[static_cast<std::size_t>(reset.document_begins)].size_bytes, 128 * 4);
  EXPECT_EQ(reset.total_bytes, whole.total_bytes + 128 * 4);
  EXPECT_THAT(reset.schedule, Contains("upload document_begins"));
  // Of learned positions also which they are.
  input.reset_positions = true;
  EXPECT_EQ(Built(input).total_bytes, reset.total_bytes);
  PlanInput learned = Input("gpt2-tiny");
  learned.sequence_length = 64;
  learned.reset_attention = true;
  const std::int64_t begins_only = Built(learned).total_bytes;
  learned.reset_positions = true;
  EXPECT_EQ(Built(learned).total_bytes, begins_only + 8 * 64 * 4);
  EXPECT_THAT(Built(learned).schedule, Contains("upload position_ids"));
  // On a GPU our own kernels attend, whose backward keeps row sums alone.
  input.device = DeviceKind::kCuda;
  const std::int64_t rows = 128 * input.model.num_heads * 4;
  EXPECT_EQ(Built(input).input.scratch->attention_backward_bytes, rows);
  input.reset_positions = false;
  input.reset_attention = false;
  EXPECT_GT(Built(input).input.scratch->attention_backward_bytes, rows);
}

TEST(Plan, BadInputIsNamed) {
  const auto message = [](const PlanInput& input) {
    const auto plan = BuildPlan(input);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(plan.status().message());
  };
  PlanInput input = Input("gpt2-tiny");
  EXPECT_THAT(message(input), HasSubstr("spec.data.sequenceLength: 128 is longer"));
  input = Input("llama-tiny");
  input.global_batch = 0;
  EXPECT_THAT(message(input), HasSubstr("spec.train.globalBatch: 0"));
  input = Input("llama-tiny");
  input.prefetch = 2;
  EXPECT_THAT(message(input), HasSubstr("spec.sharding.prefetch: 2"));
  input = Input("minillm-tiny");
  input.reset_attention = true;
  EXPECT_THAT(message(input), HasSubstr("spec.data.resetAttention: true needs a causal model"));
  input = Input("llama-tiny");
  input.reset_positions = true;
  EXPECT_THAT(message(input), HasSubstr("needs spec.data.resetAttention: true"));
  input = Input("llama-tiny", 0);
  EXPECT_THAT(message(input), HasSubstr("world size: 0"));
  input = Input("llama-tiny");
  input.parameter_dtype = DType::kF32;
  input.reduce_dtype = DType::kBf16;
  EXPECT_THAT(message(input), HasSubstr("spec.precision.reduce"));
}

TEST(Plan, WarnsOfIdleRanksAndOfPadding) {
  PlanInput input = Input("llama-tiny", 2);
  EXPECT_THAT(Built(input).warnings, testing::IsEmpty());
  input.global_batch = 1;
  EXPECT_THAT(Built(input).warnings, Contains(HasSubstr("1 of 2 ranks get no sequence")));
  input = Input("llama-tiny", 60);
  input.global_batch = 60;
  EXPECT_THAT(Built(input).warnings, Contains(HasSubstr("padding")));
}

TEST(Plan, CountsWhatNcclTakes) {
  const auto nccl = [](int world, int communicators, DeviceKind device) {
    PlanInput input = Input("llama-tiny", world);
    input.device = device;
    input.num_communicators = communicators;
    const Plan plan = Built(input);
    std::int64_t sum = 0;
    for (const MemoryRow& row : plan.memory) sum += row.bytes;
    EXPECT_EQ(sum, plan.total_bytes);
    return RowBytes(plan, "NCCL");
  };
  EXPECT_EQ(nccl(1, 2, DeviceKind::kCuda), 0) << "a rank alone has no communicator";
  EXPECT_EQ(nccl(2, 2, DeviceKind::kCpu), 0);
  const std::int64_t one = nccl(2, 1, DeviceKind::kCuda);
  const std::int64_t two = nccl(2, 2, DeviceKind::kCuda);
  EXPECT_EQ(two - one, std::int64_t{24} * 12 << 20) << "the channels of one communicator";
  EXPECT_GT(one, two - one) << "its kernels come on top";
  EXPECT_EQ(nccl(4, 2, DeviceKind::kCuda), two) << "a ring has two neighbours at any size";
}

// Weights as they are kept and both moments: 12 bytes an element in both precisions, on the host.
TEST(Plan, CountsTheSnapshotOfAnAsynchronousCheckpoint) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    PlanInput input = Input("llama-tiny", 3);
    input.parameter_dtype = dtype;
    const Plan without = Built(input);
    EXPECT_EQ(without.snapshot_bytes, 0);
    EXPECT_TRUE(without.host_memory.empty());
    input.async_checkpoint = true;
    const Plan plan = Built(input);
    EXPECT_EQ(plan.snapshot_bytes, 12 * plan.shard_elements);
    EXPECT_EQ(plan.total_bytes, without.total_bytes);
    const v1::Plan proto = ToProto(plan);
    ASSERT_EQ(proto.host_memory_size(), 1);
    EXPECT_EQ(proto.host_memory(0).bytes(), plan.snapshot_bytes);
    EXPECT_EQ(proto.host_memory(0).kind(), "host memory");
    input.device = DeviceKind::kCuda;
    EXPECT_EQ(Built(input).host_memory[0].kind, "pinned host memory");
  }
}

TEST(PlanFromJob, TakesTheSpecsFieldsAndDefaults) {
  v1::TrainingJob job;
  v1::JobSpec& spec = *job.mutable_spec();
  spec.mutable_model()->set_preset("minillm-tiny");
  spec.mutable_data()->set_sequence_length(100);
  spec.mutable_train()->set_global_batch_tokens(1001);
  spec.mutable_resources()->set_nodes(2);
  spec.mutable_resources()->set_devices_per_node(2);
  EXPECT_EQ(WorldSizeOf(job), 4);
  EXPECT_EQ(GlobalBatchOf(job), 11);
  const auto plan = PlanFromJob(job, WorldSizeOf(job), 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const v1::Plan proto = ToProto(*plan);
  EXPECT_EQ(proto.world_size(), 4);
  EXPECT_EQ(proto.tokens_per_step(), 1100);
  EXPECT_EQ(proto.total_bytes_by_rank_size(), 4);
  EXPECT_EQ(proto.policies_size(), 4);
  EXPECT_EQ(proto.parameter_dtype(), v1::PRECISION_D_TYPE_BF16);
  std::int64_t sum = 0;
  for (const v1::MemoryRow& row : proto.memory()) sum += row.bytes();
  EXPECT_EQ(sum, proto.total_bytes());
  EXPECT_THAT(proto.schedule(), AllOf(Contains("gather layers.1"), Contains("scatter embed")));
}

}  // namespace
}  // namespace fsdp
