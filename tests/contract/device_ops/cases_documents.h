#ifndef FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_DOCUMENTS_H_
#define FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_DOCUMENTS_H_

// Attention over sequences that are packed from documents: a query sees its own document only.

#include <algorithm>
#include <random>
#include <utility>

#include "tests/contract/device_ops/cases_attention.h"
#include "tests/contract/device_ops/device_ops_fixture.h"

namespace fsdp {

// Where each token's document begins, in a sequence whose documents begin at `starts` (and at 0).
inline Begins BeginsOf(const std::vector<std::int64_t>& starts, std::int64_t seq) {
  Begins begins(seq);
  for (std::int64_t i = 1; i < seq; ++i) {
    const bool first = std::find(starts.begin(), starts.end(), i) != starts.end();
    begins[i] = first ? static_cast<std::int32_t>(i) : begins[i - 1];
  }
  return begins;
}

// The same documents in each sequence of a batch.
inline Begins SameDocuments(const AttentionShape& s, const std::vector<std::int64_t>& starts) {
  Begins all;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const Begins begins = BeginsOf(starts, s.seq);
    all.insert(all.end(), begins.begin(), begins.end());
  }
  return all;
}

// Documents whose lengths are drawn from 1..longest, others in each sequence.
inline Begins RandomDocuments(const AttentionShape& s, std::int64_t longest, std::mt19937& random) {
  std::uniform_int_distribution<std::int64_t> length(1, longest);
  Begins all;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    std::vector<std::int64_t> starts;
    for (std::int64_t at = length(random); at < s.seq; at += length(random)) starts.push_back(at);
    const Begins begins = BeginsOf(starts, s.seq);
    all.insert(all.end(), begins.begin(), begins.end());
  }
  return all;
}

struct Packing {
  const char* name;
  Begins begins;  // of the whole batch
};

inline std::vector<Packing> Packings(const AttentionShape& s, std::mt19937& random) {
  std::vector<std::int64_t> every(s.seq);
  for (std::int64_t i = 0; i < s.seq; ++i) every[i] = i;
  return {
      {"one document", SameDocuments(s, {})},
      {"documents of one token", SameDocuments(s, every)},
      // Kernels work in tiles of 16, 32 or 64 tokens.
      {"documents that begin with tiles", SameDocuments(s, {16, 32, 64, 128, 192})},
      {"documents that begin before and behind the edges of tiles",
       SameDocuments(s, {1, 15, 17, 31, 33, 63, 65, 127, 129, 191, 193})},
      {"a document over several tiles", SameDocuments(s, {40, 180})},
      {"a last document of one token", SameDocuments(s, {s.seq - 1})},
      {"short documents", RandomDocuments(s, 12, random)},
      {"long documents", RandomDocuments(s, 150, random)},
  };
}

// Shapes of every kernel: head sizes that are odd, and that fill or do not fill a tile's columns;
// sequences of whole and of broken tiles.
inline std::vector<AttentionShape> DocumentShapes() {
  std::vector<AttentionShape> shapes = {
      {.batch = 1, .seq = 1, .num_heads = 1, .num_kv_heads = 1, .head_dim = 1},
      {.batch = 2, .seq = 37, .num_heads = 4, .num_kv_heads = 2, .head_dim = 8},
      {.batch = 1, .seq = 131, .num_heads = 3, .num_kv_heads = 1, .head_dim = 17},
      {.batch = 2, .seq = 201, .num_heads = 2, .num_kv_heads = 2, .head_dim = 24},
      {.batch = 1, .seq = 256, .num_heads = 2, .num_kv_heads = 1, .head_dim = 64},
      {.batch = 1, .seq = 199, .num_heads = 3, .num_kv_heads = 1, .head_dim = 72, .scale = 0.2F},
      {.batch = 1, .seq = 65, .num_heads = 1, .num_kv_heads = 1, .head_dim = 130},
      {.batch = 0, .seq = 16, .num_heads = 2, .num_kv_heads = 1, .head_dim = 8},
  };
  for (AttentionShape& s : shapes) s.documents = true;
  return shapes;
}

TEST_P(DeviceOpsContract, AttentionStaysWithinADocument) {
  std::vector<DType> dtypes = {DType::kF32, DType::kBf16};
  std::vector<bool> with_gaps = {true, false};  // packed rows are what tensor cores take
  const bool cpu = device_->kind() == DeviceKind::kCpu;
  if (cpu) {
    dtypes.push_back(DType::kF64);
    with_gaps = {true};
  }
  for (const AttentionShape& s : DocumentShapes()) {
    // The largest are for tiles that the CPU has not.
    if (cpu && s.seq * s.seq * s.num_heads * s.head_dim > 5'000'000) continue;
    for (const Packing& packing : Packings(s, random_)) {
      for (const DType dtype : dtypes) {
        for (const bool gaps : with_gaps) {
          SCOPED_TRACE(::testing::Message()
                       << NameOf(dtype) << " seq " << s.seq << " dim " << s.head_dim
                       << (gaps ? " with gaps, " : " packed, ") << packing.name);
          const std::int64_t tokens = s.batch * s.seq;
          const std::int64_t width = (s.num_heads + 2 * s.num_kv_heads) * s.head_dim;
          const Values qkv = Rounded(Random(tokens * width, 0.7), dtype);
          const Values d_out = Rounded(Random(tokens * s.num_heads * s.head_dim), dtype);
          Env env(*device_, dtype);
          const bool tensor_cores =
              dtype == DType::kBf16 && !gaps && device_->kind() == DeviceKind::kCuda;
          CheckAttention(env, s, qkv, d_out, packing.begins, gaps, tensor_cores ? kUnitBf16 : 0);
        }
      }
    }
  }
}

// Where the same kernels serve both, the same bits.
TEST_P(DeviceOpsContract, OneDocumentIsPlainCausalAttention) {
  const AttentionShape plain = {
      .batch = 2, .seq = 150, .num_heads = 4, .num_kv_heads = 2, .head_dim = 40};
  AttentionShape packed = plain;
  packed.documents = true;
  const std::int64_t tokens = plain.batch * plain.seq;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    Env env(*device_, dtype);
    const auto named = env.ops().ChosenAttention(plain, dtype);
    const auto named_packed = env.ops().ChosenAttention(packed, dtype);
    FSDP_ASSERT_OK(named.status());
    FSDP_ASSERT_OK(named_packed.status());
    EXPECT_EQ(named_packed->forward.find("cudnn"), std::string::npos);
    EXPECT_EQ(named_packed->backward.find("cudnn"), std::string::npos);
    if (named->forward != named_packed->forward || named->backward != named_packed->backward) {
      continue;
    }
    const Values qkv = Random(tokens * 8 * plain.head_dim);
    const Values d_out = Random(tokens * 4 * plain.head_dim);
    AttentionReference reference(plain, Rounded(qkv, dtype));
    reference.Forward();
    const auto run = [&](const AttentionShape& s, const Begins& begins) {
      return RunAttention(env, s, qkv, d_out, reference.out, reference.lse, begins,
                          /*gaps=*/false);
    };
    const AttentionResult want = run(plain, {});
    const AttentionResult got = run(packed, Begins(tokens));
    EXPECT_EQ(got.out, want.out) << NameOf(dtype);
    EXPECT_EQ(got.lse, want.lse) << NameOf(dtype);
    EXPECT_EQ(got.d_qkv, want.d_qkv) << NameOf(dtype);
  }
}

// Results of a document have the same bits whatever the others hold: backward for finite values,
// forward for NaN too, unless tensor cores multiply whole tiles.
TEST_P(DeviceOpsContract, OtherDocumentsChangeNoBit) {
  const AttentionShape s = {
      .batch = 2, .seq = 200, .num_heads = 4, .num_kv_heads = 2, .head_dim = 24, .documents = true};
  const std::int64_t tokens = s.batch * s.seq;
  const std::int64_t width = 8 * s.head_dim;
  const std::int64_t out_width = 4 * s.head_dim;
  const std::vector<std::int64_t> starts = {5, 60, 64, 70, 140};
  const Begins begins = SameDocuments(s, starts);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const Values qkv = Random(tokens * width);
    const Values d_out = Random(tokens * out_width);
    Env env(*device_, dtype);
    const auto run = [&](const Values& in, const Values& gradient) {
      const Matrix x = env.In(in, tokens, width);
      const Matrix out = env.Out(tokens, out_width);
      const Vector lse = env.OutVec(env.sums(), tokens * s.num_heads);
      const Matrix d_qkv = env.Out(tokens, width);
      Ops& ops = env.ops();
      FSDP_EXPECT_OK(ops.AttentionForward(env.stream(), x, s, env.Ids(begins), out, lse,
                                          env.Scratch(ops.AttentionScratchBytes(s, dtype, false))));
      FSDP_EXPECT_OK(ops.AttentionBackward(env.stream(), env.In(gradient, tokens, out_width), x,
                                           out, lse, s, env.Ids(begins), d_qkv,
                                           env.Scratch(ops.AttentionScratchBytes(s, dtype, true))));
      return AttentionResult{env.Get(out), env.Get(lse), env.Get(d_qkv)};
    };
    const AttentionResult base = run(qkv, d_out);
    for (const std::int64_t kept : {0, 5, 60, 64, 70, 140}) {
      for (const double poison : {1e3, std::nan("")}) {
        const bool finite = std::isfinite(poison);
        if (!finite && dtype == DType::kBf16 && GetParam().bf16_attention_spreads_nonfinite) {
          continue;
        }
        SCOPED_TRACE(::testing::Message()
                     << NameOf(dtype) << " document at " << kept << " beside " << poison);
        Values changed = qkv;
        Values changed_gradient = d_out;
        const auto other = [&](std::int64_t token) { return begins[token] != kept; };
        for (std::int64_t i = 0; i < tokens * width; ++i) {
          if (other(i / width)) changed[i] = poison - changed[i];
        }
        for (std::int64_t i = 0; i < tokens * out_width; ++i) {
          if (other(i / out_width)) changed_gradient[i] = poison - changed_gradient[i];
        }
        const AttentionResult got = run(changed, changed_gradient);
        for (std::int64_t i = 0; i < tokens * out_width; ++i) {
          if (other(i / out_width)) continue;
          ASSERT_EQ(std::memcmp(&base.out[i], &got.out[i], 8), 0) << "out[" << i << "]";
        }
        for (std::int64_t i = 0; i < tokens * s.num_heads; ++i) {
          const std::int64_t token = i / s.seq / s.num_heads * s.seq + i % s.seq;
          if (other(token)) continue;
          ASSERT_EQ(base.lse[i], got.lse[i]) << "lse[" << i << "]";
        }
        for (std::int64_t i = 0; finite && i < tokens * width; ++i) {
          if (other(i / width)) continue;
          ASSERT_EQ(base.d_qkv[i], got.d_qkv[i]) << "d_qkv[" << i << "]";
        }
      }
    }
  }
}

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_DOCUMENTS_H_
