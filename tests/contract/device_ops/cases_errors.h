#ifndef FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_ERRORS_H_
#define FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_ERRORS_H_

// Operands that do not fit: INVALID_ARGUMENT that names the operand.

#include "tests/contract/device_ops/device_ops_fixture.h"

namespace fsdp {

inline void ExpectInvalid(const absl::Status& status, const std::string& operand) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status << " for " << operand;
  // As a word of its own: names such as "a" are part of many words.
  EXPECT_THAT(std::string(status.message()),
              ::testing::ContainsRegex("(^|[^A-Za-z_])" + operand + "([^A-Za-z_]|$)"));
}

TEST_P(DeviceOpsContract, RefusesProductsThatDoNotFit) {
  Env env(*device_, DType::kF32);
  Ops& ops = env.ops();
  Stream& st = env.stream();
  const auto m = [&](std::int64_t rows, std::int64_t cols) { return env.Out(rows, cols); };
  const auto no = Transpose::kNo;
  const auto yes = Transpose::kYes;
  ExpectInvalid(ops.MatMul(st, m(2, 3), no, m(4, 5), no, {}, m(2, 5), false), "b");
  ExpectInvalid(ops.MatMul(st, m(2, 3), no, m(3, 5), no, {}, m(2, 4), false), "out");
  ExpectInvalid(ops.MatMul(st, m(2, 3), yes, m(3, 5), no, {}, m(3, 5), false), "b");
  ExpectInvalid(
      ops.MatMul(st, m(2, 3), no, m(3, 5), no, env.OutVec(DType::kF32, 4), m(2, 5), false), "bias");
  ExpectInvalid(ops.MatMul(st, m(2, 3), no, env.OutAs(DType::kBf16, 3, 5), no, {}, m(2, 5), false),
                "b");
  ExpectInvalid(ops.MatMul(st, m(2, 3), no, m(3, 5), no, {}, env.OutAs(DType::kBf16, 2, 5), false),
                "out");
  Matrix narrow = m(2, 3);
  narrow.stride = 2;
  ExpectInvalid(ops.MatMul(st, narrow, no, m(3, 5), no, {}, m(2, 5), false), "a");
  Matrix nowhere = m(3, 5);
  nowhere.data = nullptr;
  ExpectInvalid(ops.MatMul(st, m(2, 3), no, nowhere, no, {}, m(2, 5), false), "b");
}

TEST_P(DeviceOpsContract, RefusesRowsThatDoNotFit) {
  Env env(*device_, DType::kF32);
  Ops& ops = env.ops();
  Stream& st = env.stream();
  const auto m = [&](std::int64_t rows, std::int64_t cols) { return env.Out(rows, cols); };
  const auto v = [&](std::int64_t size) { return env.OutVec(DType::kF32, size); };
  ExpectInvalid(ops.RmsNormForward(st, m(2, 4), {}, v(3), 1e-5, {}, m(2, 4), v(2)), "weight");
  ExpectInvalid(ops.RmsNormForward(st, m(2, 4), {}, v(4), 1e-5, {}, m(2, 4), v(3)), "rstd");
  ExpectInvalid(ops.RmsNormForward(st, m(2, 4), m(2, 4), v(4), 1e-5, {}, m(2, 4), v(2)), "sum");
  ExpectInvalid(ops.RmsNormForward(st, m(2, 4), m(2, 5), v(4), 1e-5, m(2, 4), m(2, 4), v(2)),
                "delta");
  const auto scratch = env.Scratch(ops.NormBackwardScratchBytes(2, 4));
  ExpectInvalid(ops.RmsNormBackward(st, m(2, 4), m(2, 4), v(4), v(2), m(1, 4), m(2, 4), {}, v(4),
                                    false, scratch),
                "residual");
  ExpectInvalid(ops.RmsNormBackward(st, m(2, 4), m(2, 4), v(4), v(2), {}, m(2, 4), {},
                                    env.OutVec(DType::kBf16, 4), false, scratch),
                "d_weight");
  ExpectInvalid(ops.RmsNormBackward(st, m(2, 4), m(2, 4), v(4), v(2), {}, m(2, 4), m(2, 5), v(4),
                                    false, scratch),
                "y");
  ExpectInvalid(ops.LayerNormForward(st, m(2, 4), {}, v(4), v(5), 1e-5, {}, m(2, 4), v(2), v(2)),
                "bias");
  ExpectInvalid(ops.LayerNormBackward(st, m(2, 4), m(2, 4), v(4), {}, v(1), v(2), {}, m(2, 4), {},
                                      v(4), v(4), false, scratch),
                "mean");
  ExpectInvalid(ops.LayerNormBackward(st, m(2, 4), m(2, 4), v(4), {}, v(2), v(2), {}, m(2, 4),
                                      m(2, 4), v(4), v(4), false, scratch),
                "bias");
  ExpectInvalid(ops.SwiGluForward(st, m(2, 7), m(2, 4)), "gate_up");
  ExpectInvalid(ops.SwiGluBackward(st, m(2, 4), m(2, 8), m(2, 7), {}), "d_gate_up");
  ExpectInvalid(ops.SwiGluBackward(st, m(2, 4), m(2, 8), m(2, 8), m(1, 4)), "h");
  ExpectInvalid(ops.SiluForward(st, m(2, 4), m(2, 5)), "y");
  ExpectInvalid(ops.MatMulGelu(st, m(2, 3), m(4, 3), Transpose::kYes, {}, m(2, 4), m(2, 5)), "y");
  ExpectInvalid(ops.GeluBackward(st, m(2, 4), m(3, 4), m(2, 4), {}), "x");
  ExpectInvalid(ops.SiluBackward(st, m(2, 4), m(2, 4), m(2, 4), m(2, 3)), "y");
  ExpectInvalid(ops.Add(st, m(2, 4), m(2, 3), m(2, 4)), "b");
  ExpectInvalid(
      ops.ColumnSum(st, m(2, 4), v(3), false, env.Scratch(ops.ColumnSumScratchBytes(2, 4))), "out");
}

TEST_P(DeviceOpsContract, RefusesAttentionThatDoesNotFit) {
  Env env(*device_, DType::kF32);
  Ops& ops = env.ops();
  Stream& st = env.stream();
  const AttentionShape s = {.batch = 1, .seq = 4, .num_heads = 2, .num_kv_heads = 1, .head_dim = 6};
  const Matrix qkv = env.Out(4, 24);
  const Matrix out = env.Out(4, 12);
  const Vector lse = env.OutVec(DType::kF32, 8);
  const auto scratch = env.Scratch(ops.AttentionScratchBytes(s, DType::kF32, true));
  AttentionShape bad = s;
  bad.num_kv_heads = 3;
  ExpectInvalid(ops.AttentionForward(st, qkv, bad, {}, out, lse, scratch), "num_kv_heads");
  ExpectInvalid(ops.AttentionForward(st, env.Out(4, 23), s, {}, out, lse, scratch), "qkv");
  ExpectInvalid(ops.AttentionForward(st, qkv, s, {}, env.Out(4, 11), lse, scratch), "out");
  ExpectInvalid(ops.AttentionForward(st, qkv, s, {}, out, env.OutVec(DType::kF32, 7), scratch),
                "lse");
  if (ops.AttentionScratchBytes(s, DType::kF32, false) > 0) {
    ExpectInvalid(ops.AttentionForward(st, qkv, s, {}, out, lse, {}), "scratch");
  }
  ExpectInvalid(ops.AttentionBackward(st, out, qkv, out, lse, s, {}, env.Out(4, 25), scratch),
                "d_qkv");
  ExpectInvalid(ops.AttentionBackward(st, env.Out(3, 12), qkv, out, lse, s, {}, qkv, scratch),
                "d_out");
  const std::vector<std::int32_t> begins = {0, 0, 2, 2};
  ExpectInvalid(ops.AttentionForward(st, qkv, s, env.Ids(begins), out, lse, scratch),
                "document_begins");
  AttentionShape packed = s;
  packed.documents = true;
  ExpectInvalid(ops.AttentionForward(st, qkv, packed, {}, out, lse, scratch), "document_begins");
  ExpectInvalid(
      ops.AttentionBackward(st, out, qkv, out, lse, packed, env.Ids({0, 0, 2}), qkv,
                            env.Scratch(ops.AttentionScratchBytes(packed, DType::kF32, true))),
      "document_begins");
  packed.causal = false;
  ExpectInvalid(ops.AttentionForward(st, qkv, packed, env.Ids(begins), out, lse, scratch),
                "causal");
  AttentionShape odd = s;
  odd.head_dim = 3;
  const Matrix table = env.Out(4, 1);
  ExpectInvalid(ops.Rope(st, env.Out(4, 12), odd, table, table, false), "head_dim");
  ExpectInvalid(ops.Rope(st, qkv, s, env.Out(4, 2), env.Out(4, 3), false), "cos");
}

TEST_P(DeviceOpsContract, RefusesTrainingOperandsThatDoNotFit) {
  Env env(*device_, DType::kF32);
  Ops& ops = env.ops();
  Stream& st = env.stream();
  const auto v = [&](std::int64_t size) { return env.OutVec(DType::kF32, size); };
  StepStats* stats = env.UploadRaw<StepStats>({{}});
  UpdateScalars* scalars = env.UploadRaw<UpdateScalars>({{}});
  const auto ids = env.Ids({0, 1});
  const auto scratch = env.Scratch(1 << 16);
  ExpectInvalid(ops.CrossEntropy(st, env.Out(3, 4), ids, stats, false, scratch), "logits");
  ExpectInvalid(ops.CrossEntropy(st, env.Out(2, 4), ids, nullptr, false, scratch), "stats");
  ExpectInvalid(ops.EmbeddingForward(st, ids, env.Out(5, 4), {}, 2, {}, env.Out(2, 3)), "out");
  ExpectInvalid(ops.EmbeddingForward(st, ids, env.Out(5, 4), env.Out(2, 3), 2, {}, env.Out(2, 4)),
                "positions");
  ExpectInvalid(ops.EmbeddingForward(st, ids, env.Out(5, 4), {}, 2, ids, env.Out(2, 4)),
                "position_ids");
  ExpectInvalid(ops.EmbeddingForward(st, ids, env.Out(5, 4), env.Out(2, 4), 3, {}, env.Out(2, 4)),
                "positions has 2 rows");
  ExpectInvalid(ops.EmbeddingBackward(st, ids, env.Out(2, 4), 2, {}, env.Out(5, 3), {}, false),
                "d_table");
  ExpectInvalid(ops.EmbeddingBackward(st, ids, env.Out(2, 4), 2, ids.first(1), env.Out(5, 4),
                                      env.Out(2, 4), false),
                "position_ids");
  ExpectInvalid(ops.Cast(st, v(3), v(4)), "to");
  ExpectInvalid(ops.FillInitial(st, {}, 0, env.OutVec(DType::kBf16, 3)), "out");
  ExpectInvalid(ops.FillInitial(st, {}, -1, v(3)), "first");
  ExpectInvalid(ops.Accumulate(st, v(3), env.OutVec(DType::kBf16, 3)), "to");
  const std::vector<DecaySegment> segments = {{0, 9, 0}};
  const AdamWOptions options;
  const StepScalars* step = env.UploadRaw<StepScalars>({{}});
  ExpectInvalid(ops.FinishStats(st, nullptr, 0, step, scalars), "stats");
  ExpectInvalid(ops.FinishStats(st, stats, 0, nullptr, scalars), "step");
  const Vector bf16 = env.OutVec(DType::kBf16, 9);
  ExpectInvalid(ops.AdamW(st, v(8), v(8), v(8), v(8), segments, options, step, scalars),
                "segments");
  ExpectInvalid(ops.AdamW(st, v(9), v(8), v(9), v(9), segments, options, step, scalars), "m");
  ExpectInvalid(ops.AdamW(st, v(9), v(9), v(9), v(7), segments, options, step, scalars), "grad");
  ExpectInvalid(ops.AdamW(st, v(9), v(9), v(9), v(9), segments, options, nullptr, scalars), "step");
  ExpectInvalid(ops.AdamWSplit(st, bf16, v(9), v(9), v(9), v(9), segments, options, step, scalars),
                "remainder");
  ExpectInvalid(StepScalarsOf(0.1, 0, options).status(), "step");
  ExpectInvalid(ops.SplitMaster(st, v(4), env.OutVec(DType::kBf16, 3), {scalars, DType::kU16, 4}),
                "compute");
}

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_ERRORS_H_
