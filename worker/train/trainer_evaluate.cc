#include "worker/train/trainer_evaluate.h"

#include <algorithm>
#include <cstdint>

#include "proto/support/status.h"
#include "worker/train/trainer_errors.h"

namespace fsdp {
namespace {

// Sequences that one round reads at a time on all ranks together.
constexpr std::int64_t kEvaluationChunk = 1024;

absl::StatusOr<EvaluationResult> Evaluate(const RankSetup& setup, Engine& engine,
                                          BatchSource& source) {
  const std::int64_t wanted = setup.spec().train().evaluate_sequences();
  const std::int64_t total =
      wanted > 0 ? std::min(wanted, source.num_sequences()) : source.num_sequences();
  EvaluationResult sum;
  for (std::int64_t first = 0; first < total; first += kEvaluationChunk) {
    const std::int64_t count = std::min(kEvaluationChunk, total - first);
    const auto share = BatchSplit(count, setup.world_size(), 0).Share(setup.rank());
    const auto elements = static_cast<std::size_t>(share.count * source.sequence_length());
    std::vector<std::int32_t> tokens(elements);
    std::vector<std::int32_t> targets(elements);
    std::vector<std::int32_t> begins(setup.plan.input.reset_attention ? elements : 0);
    RETURN_IF_ERROR(WithCause(source.Read(first + share.begin, tokens, targets, begins),
                              v1::FAILURE_CAUSE_DATA));
    ASSIGN_OR_RETURN(const EvaluationResult part,
                     engine.Evaluate(tokens, targets, begins, engine.EvaluationRounds(count)));
    sum.loss_sum += part.loss_sum;
    sum.valid_tokens += part.valid_tokens;
  }
  return sum;
}

double MeanLoss(const EvaluationResult& sum) {
  return sum.valid_tokens > 0 ? sum.loss_sum / static_cast<double>(sum.valid_tokens) : 0;
}

}  // namespace

bool CanEvaluate(const RankSetup& setup) {
  return setup.data.validation != nullptr || !setup.data.evaluation_sets.empty();
}

absl::StatusOr<Evaluations> EvaluateAll(RankSetup& setup, Engine& engine) {
  Evaluations made;
  if (setup.data.validation != nullptr) {
    ASSIGN_OR_RETURN(const EvaluationResult sum, Evaluate(setup, engine, *setup.data.validation));
    made.validation_loss = MeanLoss(sum);
  }
  for (const EvaluationSet& set : setup.data.evaluation_sets) {
    ASSIGN_OR_RETURN(const EvaluationResult sum, Evaluate(setup, engine, *set.source));
    v1::EvaluationLoss& told = made.sets.emplace_back();
    told.set_name(set.name);
    told.set_loss(MeanLoss(sum));
    told.set_tokens(sum.valid_tokens);
  }
  return made;
}

}  // namespace fsdp
