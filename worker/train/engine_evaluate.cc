// Passes without gradients: validation loss, and logits for tests.

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/train/engine_impl.h"

namespace fsdp {
namespace {

float WidenBf16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

void ToFloats(const std::byte* from, DType dtype, std::span<float> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (dtype == DType::kBf16) {
      std::uint16_t bits;
      std::memcpy(&bits, from + i * 2, 2);
      to[i] = WidenBf16(bits);
    } else if (dtype == DType::kF64) {
      double value;
      std::memcpy(&value, from + i * 8, 8);
      to[i] = static_cast<float>(value);
    } else {
      std::memcpy(&to[i], from + i * 4, 4);
    }
  }
}

}  // namespace

std::int64_t EngineImpl::EvaluationRounds(std::int64_t total_sequences) const {
  const std::int64_t largest =
      BatchSplit(total_sequences, plan_.input.world_size, 0).Share(0).count;
  const std::int64_t capacity = plan_.split.max_micro_batch();
  return (largest + capacity - 1) / capacity;
}

absl::StatusOr<EvaluationResult> EngineImpl::Evaluate(std::span<const std::int32_t> tokens,
                                                      std::span<const std::int32_t> targets,
                                                      std::span<const std::int32_t> document_begins,
                                                      std::int64_t num_rounds) {
  RETURN_IF_ERROR(dead_);
  const std::int64_t length = plan_.input.sequence_length;
  const auto sequences = static_cast<std::int64_t>(tokens.size()) / length;
  RETURN_IF_ERROR(CheckBatch({tokens, targets, document_begins}, sequences));
  const std::int64_t capacity = plan_.split.max_micro_batch();
  if (sequences > num_rounds * capacity) {
    return absl::FailedPreconditionError(
        absl::StrCat(sequences, " sequences need more than ", num_rounds, " rounds of ", capacity));
  }
  EvaluationResult result;
  StepStats* sums = &scalars()->evaluation;
  dead_ = [&]() -> absl::Status {
    Stream& compute = device_.compute();
    evaluation_timeline_.Begin();
    exchange_.BeginStep(&evaluation_timeline_);
    RETURN_IF_ERROR(device_.Zero(sums, sizeof(StepStats), compute));
    for (std::int64_t round = 0; round < num_rounds; ++round) {
      const std::int64_t first = std::min(sequences, round * capacity);
      const std::int64_t count = std::min(capacity, sequences - first);
      const auto part = [&](std::span<const std::int32_t> all) {
        if (all.empty()) return all;
        return all.subspan(static_cast<std::size_t>(first * length),
                           static_cast<std::size_t>(count * length));
      };
      RETURN_IF_ERROR(StageBatch({part(tokens), part(targets), part(document_begins)}));
      ASSIGN_OR_RETURN(const ModelBatch batch, OpenBatch(0, count));
      RETURN_IF_ERROR(ForwardBlocks(batch, /*train=*/false));
      ASSIGN_OR_RETURN(const UnitView weights, exchange_.Acquire(head_stage(), Pass::kForward));
      if (count > 0) RETURN_IF_ERROR(model_.HeadLoss(batch, weights, sums));
      exchange_.Release(head_stage(), /*keep=*/!plan_.input.reshard_after_forward);
      // The staged batch is free for the next round.
      RETURN_IF_ERROR(device_.Synchronize(compute));
    }
    RETURN_IF_ERROR(exchange_.ReduceStats(sums));
    StepStats host{};
    RETURN_IF_ERROR(device_.Copy(&host, sums, sizeof(host), compute));
    RETURN_IF_ERROR(device_.Synchronize(compute));
    RETURN_IF_ERROR(CheckPeers());
    result = {host.loss_sum, static_cast<std::int64_t>(host.valid_tokens)};
    return absl::OkStatus();
  }();
  RETURN_IF_ERROR(dead_);
  return result;
}

absl::Status EngineImpl::Logits(std::span<const std::int32_t> tokens, std::span<float> logits) {
  RETURN_IF_ERROR(dead_);
  const std::int64_t vocab = plan_.input.model.vocab_size;
  if (exchange_.sharded()) return absl::FailedPreconditionError("logits need world size 1");
  const std::vector<std::int32_t> one_document(plan_.input.reset_attention ? tokens.size() : 0);
  const HostBatch sequence{tokens, tokens, one_document};
  RETURN_IF_ERROR(CheckBatch(sequence, 1));
  if (logits.size() != tokens.size() * static_cast<std::size_t>(vocab)) {
    return absl::FailedPreconditionError("logits must hold sequence x vocabulary elements");
  }
  evaluation_timeline_.Begin();
  exchange_.BeginStep(&evaluation_timeline_);
  RETURN_IF_ERROR(StageBatch(sequence));
  ASSIGN_OR_RETURN(const ModelBatch batch, OpenBatch(0, 1));
  RETURN_IF_ERROR(ForwardBlocks(batch, /*train=*/false));
  ASSIGN_OR_RETURN(const UnitView weights, exchange_.Acquire(head_stage(), Pass::kForward));
  std::vector<std::byte> host;
  return model_.HeadLogits(
      batch, weights, [&](std::int64_t first, const Matrix& chunk) -> absl::Status {
        const auto count = static_cast<std::size_t>(chunk.rows * vocab);
        host.resize(count * SizeOf(chunk.dtype));
        RETURN_IF_ERROR(device_.Copy(host.data(), chunk.data, host.size(), device_.compute()));
        RETURN_IF_ERROR(device_.Synchronize(device_.compute()));
        ToFloats(host.data(), chunk.dtype,
                 logits.subspan(static_cast<std::size_t>(first * vocab), count));
        return absl::OkStatus();
      });
}

}  // namespace fsdp
