// One training step, top to bottom: stage the batch, forward and backward of every micro-batch with
// gathers ahead and scatters behind, the sums over ranks, the update.

#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/train/engine_impl.h"

namespace fsdp {

absl::Status EngineImpl::CheckBatch(const HostBatch& batch, std::int64_t sequences) const {
  const auto& [tokens, targets, document_begins] = batch;
  const auto expected = static_cast<std::size_t>(sequences * plan_.input.sequence_length);
  if (tokens.size() != expected || targets.size() != expected) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", rank_, " must get ", sequences, " sequences of ", plan_.input.sequence_length,
        " tokens, got ", tokens.size(), " tokens and ", targets.size(), " targets"));
  }
  const std::int64_t vocab = plan_.input.model.vocab_size;
  for (std::size_t i = 0; i < expected; ++i) {
    const bool bad_target = targets[i] != kIgnoreTarget && (targets[i] < 0 || targets[i] >= vocab);
    if (tokens[i] >= 0 && tokens[i] < vocab && !bad_target) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        bad_target ? "target " : "token ", bad_target ? targets[i] : tokens[i], " at position ", i,
        " of rank ", rank_, "'s share is outside the vocabulary 0..", vocab - 1,
        ": the data is not for this model"));
  }
  return CheckDocuments(document_begins, plan_.input.reset_attention ? expected : 0);
}

absl::Status EngineImpl::CheckDocuments(std::span<const std::int32_t> begins,
                                        std::size_t expected) const {
  if (begins.size() != expected) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", rank_, " must get document_begins of ", expected, " tokens, got ", begins.size(),
        ": attention is ", expected > 0 ? "" : "not ", "reset at documents"));
  }
  const auto length = static_cast<std::size_t>(plan_.input.sequence_length);
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const auto at = static_cast<std::int32_t>(i % length);
    if (begins[i] == at || (at > 0 && begins[i] == begins[i - 1])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "document_begins ", begins[i], " at position ", i, " of rank ", rank_,
        "'s share: a token's document begins where that of the token before does, or with it"));
  }
  return absl::OkStatus();
}

std::int32_t* EngineImpl::Staged(int part) const {
  // Two staged batches, as two steps may be in flight.
  auto* base = static_cast<std::byte*>(host_memory_->data()) + 2 * sizeof(HostResult);
  const std::size_t share = (host_memory_->size_bytes() - 2 * sizeof(HostResult)) / 2;
  return reinterpret_cast<std::int32_t*>(base + slot_ * share) + part * ShareTokens(plan_);
}

absl::Status EngineImpl::StageBatch(const HostBatch& batch) {
  const std::size_t bytes = batch.tokens.size_bytes();
  if (bytes == 0) return absl::OkStatus();
  std::memcpy(Staged(0), batch.tokens.data(), bytes);
  std::memcpy(Staged(1), batch.targets.data(), bytes);
  if (plan_.document_begins != kNoBuffer) {
    std::memcpy(Staged(2), batch.document_begins.data(), bytes);
  }
  if (plan_.position_ids != kNoBuffer) {
    const std::int64_t length = plan_.input.sequence_length;
    for (std::size_t i = 0; i < batch.document_begins.size(); ++i) {
      const auto at = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % length);
      Staged(3)[i] = at - batch.document_begins[i];
    }
  }
  RETURN_IF_ERROR(device_.Copy(arena_.Address(plan_.tokens), Staged(0), bytes, device_.compute()));
  return device_.Copy(arena_.Address(plan_.targets), Staged(1), bytes, device_.compute());
}

absl::StatusOr<ModelBatch> EngineImpl::OpenBatch(std::int64_t first_sequence,
                                                 std::int64_t sequences) {
  const std::int64_t length = plan_.input.sequence_length;
  const auto count = static_cast<std::size_t>(sequences * length);
  const auto part = [&](BufferId id) {
    return std::span<const std::int32_t>(
        static_cast<const std::int32_t*>(arena_.Address(id)) + first_sequence * length, count);
  };
  ModelBatch batch{part(plan_.tokens), part(plan_.targets), sequences};
  const auto upload = [&](BufferId id, int staged, std::span<const std::int32_t>& out) {
    if (id == kNoBuffer || count == 0) return absl::OkStatus();
    auto* to = static_cast<std::int32_t*>(arena_.Address(id));
    out = {to, count};
    return device_.Copy(to, Staged(staged) + first_sequence * length, out.size_bytes(),
                        device_.compute());
  };
  RETURN_IF_ERROR(upload(plan_.document_begins, 2, batch.document_begins));
  RETURN_IF_ERROR(upload(plan_.position_ids, 3, batch.position_ids));
  return batch;
}

absl::Status EngineImpl::ForwardStage(int stage, const ModelBatch& batch, const UnitView& weights) {
  const StageGraphs::Key key{.work = StageGraphs::Work::kForward,
                             .stage = stage,
                             .sequences = batch.sequences,
                             .input = stage == 0 ? batch.tokens.data() : nullptr};
  return graphs_.Run(key, [&] {
    return stage == 0 ? model_.EmbedForward(batch, weights)
                      : model_.BlockForward(stage - 1, batch, weights);
  });
}

absl::Status EngineImpl::HeadStage(const ModelBatch& batch, const UnitView& weights,
                                   const GradientTarget& gradients) {
  const StageGraphs::Key key{.work = StageGraphs::Work::kHead,
                             .stage = head_stage(),
                             .sequences = batch.sequences,
                             .accumulate = gradients.accumulate,
                             .input = batch.targets.data(),
                             .output = stats()};
  return graphs_.Run(
      key, [&] { return model_.HeadForwardBackward(batch, weights, gradients, stats()); });
}

absl::Status EngineImpl::BackwardStage(int stage, const ModelBatch& batch, const UnitView& weights,
                                       const GradientTarget& gradients) {
  const StageGraphs::Key key{.work = StageGraphs::Work::kBackward,
                             .stage = stage,
                             .sequences = batch.sequences,
                             .accumulate = gradients.accumulate,
                             .input = stage == 0 ? batch.tokens.data() : nullptr};
  return graphs_.Run(key, [&] {
    return stage == 0 ? model_.EmbedBackward(batch, gradients)
                      : model_.BlockBackward(stage - 1, batch, weights, gradients);
  });
}

absl::Status EngineImpl::ForwardBlocks(const ModelBatch& batch, bool train) {
  const bool reshard = plan_.input.reshard_after_forward;
  const bool ahead = plan_.input.prefetch > 0;
  RETURN_IF_ERROR(exchange_.WaitScatter(1, SpanKind::kScatterWait));
  RETURN_IF_ERROR(exchange_.Prefetch(0, Pass::kForward));
  for (int stage = 0; stage < head_stage(); ++stage) {
    if (stage == 1) RETURN_IF_ERROR(exchange_.WaitScatter(0, SpanKind::kScatterWait));
    if (ahead) RETURN_IF_ERROR(exchange_.Prefetch(stage + 1, Pass::kForward));
    ASSIGN_OR_RETURN(const UnitView weights, exchange_.Acquire(stage, Pass::kForward));
    if (batch.sequences > 0) {
      RETURN_IF_ERROR(ForwardStage(stage, batch, weights));
    }
    const bool last = stage == head_stage() - 1;
    exchange_.Release(stage, /*keep=*/!reshard || (train && last));
  }
  return absl::OkStatus();
}

absl::StatusOr<GradientTarget> EngineImpl::PrepareGradients(int stage, bool empty,
                                                            std::int64_t micro_batch) {
  const ModelConfig& model = plan_.input.model;
  const bool sharded = exchange_.sharded();
  // The embedding's unit is written in parts: by two stages when the head is tied, and only the
  // rows of used positions. So it starts from zero.
  const bool in_parts = plan_.stages[static_cast<std::size_t>(stage)].unit == 0 &&
                        (model.tie_embeddings || model.position == PositionKind::kLearned);
  const bool first_part = stage == (model.tie_embeddings ? head_stage() : 0);
  const bool clear = sharded ? in_parts || empty : in_parts && first_part && micro_batch == 0;
  if (clear) {
    const Vector buffer = exchange_.GradientBuffer(stage);
    RETURN_IF_ERROR(device_.Zero(buffer.data, static_cast<std::size_t>(buffer.size_bytes()),
                                 device_.compute()));
  }
  return GradientTarget{exchange_.Gradients(stage), in_parts || (!sharded && micro_batch > 0)};
}

absl::Status EngineImpl::ScatterStage(int stage, std::int64_t micro_batch) {
  const bool tied = plan_.input.model.tie_embeddings;
  const bool first = micro_batch == 0 && !(tied && stage == 0);
  const bool last =
      micro_batch == plan_.split.num_micro_batches() - 1 && !(tied && stage == head_stage());
  return exchange_.Scatter(stage, first, last, stats());
}

absl::Status EngineImpl::Head(const ModelBatch& batch, std::int64_t micro_batch) {
  const int stage = head_stage();
  ASSIGN_OR_RETURN(const UnitView weights, exchange_.Acquire(stage, Pass::kForward));
  const bool empty = batch.sequences == 0;
  ASSIGN_OR_RETURN(const GradientTarget gradients, PrepareGradients(stage, empty, micro_batch));
  if (!empty) {
    RETURN_IF_ERROR(HeadStage(batch, weights, gradients));
  }
  exchange_.Release(stage, /*keep=*/!plan_.input.reshard_after_forward);
  return ScatterStage(stage, micro_batch);
}

absl::Status EngineImpl::BackwardBlock(int stage, const ModelBatch& batch,
                                       std::int64_t micro_batch) {
  // Frees the gradient buffer that this stage's may share memory with.
  RETURN_IF_ERROR(exchange_.WaitScatter(stage + 2, SpanKind::kScatterWait));
  if (stage > 1 && plan_.input.prefetch > 0) {
    RETURN_IF_ERROR(exchange_.Prefetch(stage - 1, Pass::kBackward));
  }
  ASSIGN_OR_RETURN(const UnitView weights, exchange_.Acquire(stage, Pass::kBackward));
  const bool empty = batch.sequences == 0;
  ASSIGN_OR_RETURN(const GradientTarget gradients, PrepareGradients(stage, empty, micro_batch));
  if (!empty) RETURN_IF_ERROR(BackwardStage(stage, batch, weights, gradients));
  exchange_.Release(stage, /*keep=*/!plan_.input.reshard_after_forward);
  return ScatterStage(stage, micro_batch);
}

absl::Status EngineImpl::BackwardEmbed(const ModelBatch& batch, std::int64_t micro_batch) {
  RETURN_IF_ERROR(exchange_.WaitScatter(2, SpanKind::kScatterWait));
  const bool more = micro_batch + 1 < plan_.split.num_micro_batches();
  if (more && plan_.input.prefetch > 0) {
    RETURN_IF_ERROR(exchange_.Prefetch(0, Pass::kForward));
  }
  const bool empty = batch.sequences == 0;
  ASSIGN_OR_RETURN(const GradientTarget gradients, PrepareGradients(0, empty, micro_batch));
  if (!empty) RETURN_IF_ERROR(BackwardStage(0, batch, {}, gradients));
  return ScatterStage(0, micro_batch);
}

absl::Status EngineImpl::MicroBatch(std::int64_t index) {
  const SequenceRange range = plan_.split.MicroBatch(rank_, index);
  ASSIGN_OR_RETURN(const ModelBatch batch, OpenBatch(range.begin, range.count));
  RETURN_IF_ERROR(ForwardBlocks(batch, /*train=*/true));
  RETURN_IF_ERROR(Head(batch, index));
  for (int stage = head_stage() - 1; stage > 0; --stage) {
    RETURN_IF_ERROR(BackwardBlock(stage, batch, index));
  }
  return BackwardEmbed(batch, index);
}

absl::Status EngineImpl::Update(const StepInput& input) {
  const OptimizerConfig& config = options_.optimizer;
  AdamWOptions options;
  options.beta1 = static_cast<float>(config.beta1);
  options.beta2 = static_cast<float>(config.beta2);
  options.eps = static_cast<float>(config.eps);
  StepScalars& staged = host_result(slot_)->step;
  ASSIGN_OR_RETURN(staged, StepScalarsOf(input.lr, input.step, options));
  staged.bounds = input.bounds;
  RETURN_IF_ERROR(
      device_.Copy(&scalars()->step[slot_], &staged, sizeof(staged), device_.compute()));
  const StageGraphs::Key key{.work = StageGraphs::Work::kUpdate, .output = stats()};
  if (snapshot_pending_) {
    // Its events lie in another stream and are of this step alone: no graph can hold the waits.
    RETURN_IF_ERROR(UpdateUnits(options));
    snapshot_pending_ = false;
  } else {
    RETURN_IF_ERROR(graphs_.Run(key, [&] { return UpdateUnits(options); }));
  }
  exchange_.InvalidateWeights();
  return absl::OkStatus();
}

absl::Status EngineImpl::UpdateUnits(const AdamWOptions& options) {
  const auto max_norm = static_cast<float>(options_.optimizer.max_grad_norm);
  RETURN_IF_ERROR(device_.ops().FinishStats(device_.compute(), stats(), max_norm,
                                            &scalars()->step[slot_], &scalars()->update[slot_]));
  for (std::size_t unit = 0; unit < plan_.units.size(); ++unit) {
    RETURN_IF_ERROR(WaitForSnapshot(unit));
    RETURN_IF_ERROR(UpdateUnit(unit, options));
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::UpdateUnit(std::size_t unit, const AdamWOptions& options) {
  const UnitPlan& entry = plan_.units[unit];
  const DType dtype = plan_.master_dtype();
  const Vector m = Slice(plan_.moment1, dtype, entry);
  const Vector v = Slice(plan_.moment2, dtype, entry);
  const Vector gradient = exchange_.GradientShard(static_cast<int>(unit));
  const StepScalars* step = &scalars()->step[slot_];
  const UpdateScalars* update = &scalars()->update[slot_];
  // Weight, m and v are read and written, the gradient is read.
  const double bytes = 7 * static_cast<double>(gradient.size_bytes());
  const double flops = 15 * static_cast<double>(gradient.size);
  const LaunchWork work{KernelFamily::kOptimizer, "adamw", flops, bytes,
                        {gradient.size, 0, 0},    dtype};
  return Launch(recorder_, work, [&] {
    Ops& ops = device_.ops();
    Stream& compute = device_.compute();
    if (!plan_.split_master()) {
      return ops.AdamW(compute, Slice(plan_.master, dtype, entry), m, v, gradient, segments_[unit],
                       options, step, update);
    }
    return ops.AdamWSplit(compute, Slice(plan_.compute_weights, DType::kBf16, entry),
                          Slice(plan_.remainder, DType::kU16, entry), m, v, gradient,
                          segments_[unit], options, step, update);
  });
}

// The step's sums and scalars to host memory; in the copy stream when the host does not wait.
absl::Status EngineImpl::ReadBack() {
  Stream& stream = options_.synchronous ? device_.compute() : device_.copy();
  if (!options_.synchronous) {
    ASSIGN_OR_RETURN(Event * done, timelines_[slot_].Mark(device_.compute()));
    RETURN_IF_ERROR(device_.Wait(stream, *done));
  }
  HostResult* result = host_result(slot_);
  RETURN_IF_ERROR(device_.Copy(&result->stats, stats(), sizeof(StepStats), stream));
  return device_.Copy(&result->update, &scalars()->update[slot_], sizeof(UpdateScalars), stream);
}

absl::Status EngineImpl::RunStep(const StepInput& input) {
  Stream& compute = device_.compute();
  StepTimeline& timeline = timelines_[slot_];
  timeline.Begin();
  exchange_.BeginStep(&timeline);
  pending_->timed = TimesNextStep();
  graphs_.Pause(pending_->timed);
  recorder_.set_timer(pending_->timed ? &launch_timers_[slot_] : nullptr);
  ASSIGN_OR_RETURN(Event * begin, timeline.Mark(compute));
  // Without a queue in front of it the mark is reached as soon as it is made.
  pending_->begin = {begin, MonotonicNs()};
  pending_->launch_seconds = LaunchSeconds();
  RETURN_IF_ERROR(StageBatch({input.tokens, input.targets, input.document_begins}));
  RETURN_IF_ERROR(device_.Zero(stats(), sizeof(StepStats), compute));
  ASSIGN_OR_RETURN(Event * staged, timeline.Mark(compute));
  for (std::int64_t i = 0; i < plan_.split.num_micro_batches(); ++i) {
    RETURN_IF_ERROR(MicroBatch(i));
  }
  ASSIGN_OR_RETURN(Event * computed, timeline.Mark(compute));
  RETURN_IF_ERROR(exchange_.ReduceStats(stats()));
  ASSIGN_OR_RETURN(Event * reduced, timeline.Mark(compute));
  RETURN_IF_ERROR(Update(input));
  ASSIGN_OR_RETURN(Event * updated, timeline.Mark(compute));
  if (options_.synchronous) RETURN_IF_ERROR(ReadBack());
  ASSIGN_OR_RETURN(Event * end, timeline.Mark(compute));
  timeline.AddSpan(SpanKind::kData, begin, staged);
  timeline.AddSpan(SpanKind::kForwardBackward, staged, computed);
  timeline.AddSpan(SpanKind::kOptimizer, reduced, updated);
  timeline.AddSpan(SpanKind::kOther, updated, end);
  timeline.AddSpan(SpanKind::kStep, begin, end);
  // What runs between steps, an evaluation say, is not this step's.
  recorder_.set_timer(nullptr);
  graphs_.Pause(false);
  return absl::OkStatus();
}

bool EngineImpl::TimesNextStep() const {
  if (recorder_.time_launches()) return false;
  return options_.time_families || spans_ != nullptr ||
         (options_.sample_families && FamilySampler::IsDue(num_steps_ + 1));
}

// Memory is given out while the trainer starts (and by the backend in its first step), never later.
absl::Status EngineImpl::CheckAllocations(std::int64_t before) {
  const std::int64_t made = device_.num_allocations() - before;
  const bool first = num_steps_++ == 0;
  if (first || made == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("device memory was allocated inside a step: ", made, " times"));
}

absl::StatusOr<StepResult> EngineImpl::Step(const StepInput& input) {
  RETURN_IF_ERROR(dead_);
  RETURN_IF_ERROR(CheckBatch({input.tokens, input.targets, input.document_begins},
                             plan_.split.Share(rank_).count));
  const auto begin = std::chrono::steady_clock::now();
  const std::int64_t allocations = device_.num_allocations();
  const std::optional<Pending> before = pending_;
  slot_ ^= 1;
  pending_ = Pending{.step = input.step};
  StepResult result;
  dead_ = [&]() -> absl::Status {
    RETURN_IF_ERROR(RunStep(input));
    if (options_.synchronous) {
      const std::int64_t idle_from = MonotonicNs();
      RETURN_IF_ERROR(device_.Synchronize(device_.compute()));
      pending_->host_idle_seconds = static_cast<double>(MonotonicNs() - idle_from) * 1e-9;
      RETURN_IF_ERROR(CheckPeers());
      const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
      pending_->wall_seconds = wall.count();
      ASSIGN_OR_RETURN(result, Collect(*pending_, slot_));
      pending_.reset();
    } else {
      // This step is on its way; now the last one's figures, which its own copy brings.
      if (before) {
        RETURN_IF_ERROR(device_.Synchronize(device_.copy()));
        RETURN_IF_ERROR(CheckPeers());
        ASSIGN_OR_RETURN(result, Collect(*before, slot_ ^ 1));
      }
      RETURN_IF_ERROR(ReadBack());
    }
    return CheckAllocations(allocations);
  }();
  RETURN_IF_ERROR(dead_);
  return result;
}

absl::StatusOr<StepResult> EngineImpl::Flush() {
  RETURN_IF_ERROR(dead_);
  if (!pending_) return StepResult{};
  StepResult result;
  dead_ = [&]() -> absl::Status {
    RETURN_IF_ERROR(device_.Synchronize(device_.copy()));
    RETURN_IF_ERROR(device_.Synchronize(device_.compute()));
    RETURN_IF_ERROR(CheckPeers());
    ASSIGN_OR_RETURN(result, Collect(*pending_, slot_));
    pending_.reset();
    return absl::OkStatus();
  }();
  RETURN_IF_ERROR(dead_);
  return result;
}

}  // namespace fsdp
