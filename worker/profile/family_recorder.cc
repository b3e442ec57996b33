#include "worker/profile/family_recorder.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "absl/strings/str_join.h"

namespace fsdp {
namespace {

// Below this a launch costs about as much as starting it does.
constexpr double kLatencySeconds = 20e-6;

// Fewer bytes or more compute beside them, by spec fields that the job does not use yet.
std::string CommunicationRemedy(KernelFamily family, const JobSettings& settings) {
  std::vector<std::string> remedies;
  if (!settings.prefetches) remedies.emplace_back("sharding.prefetch 1");
  if (!settings.two_communicators) remedies.emplace_back("sharding.communicators 2");
  if (settings.accumulates) remedies.emplace_back("a larger train.microBatch");
  if (!settings.bf16_parameters) remedies.emplace_back("precision.parameters bf16");
  if (family == KernelFamily::kScatter && settings.bf16_parameters && !settings.bf16_reduce) {
    remedies.emplace_back("precision.reduce bf16");
  }
  if (family == KernelFamily::kGather && settings.reshards_after_forward) {
    remedies.emplace_back("sharding.reshardAfterForward false");
  }
  if (!settings.accumulates) remedies.emplace_back("a larger train.globalBatch or fewer ranks");
  return absl::StrJoin(remedies, ", ");
}

std::string RemedyFor(KernelFamily family, v1::Bound bound, const JobSettings& settings) {
  switch (bound) {
    case v1::BOUND_MEMORY:
      return "fuse with its neighbours, store in fewer bits, or raise the batch";
    case v1::BOUND_COMPUTE:
      return settings.bf16_parameters
                 ? "sizes that are multiples of 64 or 128"
                 : "precision.parameters bf16, and sizes that are multiples of 64 or 128";
    case v1::BOUND_COMMUNICATION:
      return CommunicationRemedy(family, settings);
    case v1::BOUND_LATENCY:
      return "batch more work into each launch, or capture the step in a graph";
    default:
      return "";
  }
}

double SavableSeconds(KernelFamily family, const FamilyTotals& totals, const Ceilings& ceilings) {
  // Waiting for the last scatters ends with a reduction of the step's sums that is none of them.
  if (IsCommunication(family)) return std::min(totals.exposed_seconds, totals.seconds);
  if (ceilings.flops_per_second <= 0 || ceilings.bytes_per_second <= 0) return 0;
  const double floor =
      std::max(totals.flops / ceilings.flops_per_second, totals.bytes / ceilings.bytes_per_second);
  return std::max(0.0, totals.seconds - floor);
}

v1::Bound BoundOf(const FamilyTotals& totals, double compute, double memory) {
  if (compute > 0.75 && memory < 0.50) return v1::BOUND_COMPUTE;
  if (memory > 0.75 && compute < 0.25) return v1::BOUND_MEMORY;
  const double each =
      totals.seconds / static_cast<double>(std::max<std::int64_t>(1, totals.launches));
  if (compute < 0.25 && memory < 0.25 && each < kLatencySeconds) return v1::BOUND_LATENCY;
  return v1::BOUND_BALANCED;
}

}  // namespace

std::int64_t MonotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

FamilyTable Difference(const FamilyTable& after, const FamilyTable& before) {
  FamilyTable result = after;
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i].seconds -= before[i].seconds;
    result[i].launches -= before[i].launches;
    result[i].flops -= before[i].flops;
    result[i].bytes -= before[i].bytes;
    result[i].exposed_seconds -= before[i].exposed_seconds;
  }
  return result;
}

void FamilyRecorder::Select(std::span<const KernelFamily> families) {
  selected_ = 0;
  for (const KernelFamily family : families) selected_ |= 1U << static_cast<unsigned>(family);
}

void FamilyRecorder::AddTable(const FamilyTable& work) {
  for (std::size_t i = 0; i < work.size(); ++i) {
    table_[i].seconds += work[i].seconds;
    table_[i].launches += work[i].launches;
    table_[i].flops += work[i].flops;
    table_[i].bytes += work[i].bytes;
    table_[i].exposed_seconds += work[i].exposed_seconds;
  }
}

const char* NameOf(KernelFamily family) {
  switch (family) {
    case KernelFamily::kEmbedding:
      return "embedding";
    case KernelFamily::kNorm:
      return "norm";
    case KernelFamily::kMatMulQkv:
      return "matmul.qkv";
    case KernelFamily::kMatMulAttnOut:
      return "matmul.attn_out";
    case KernelFamily::kMatMulMlp:
      return "matmul.mlp";
    case KernelFamily::kMatMulHead:
      return "matmul.head";
    case KernelFamily::kRope:
      return "rope";
    case KernelFamily::kAttentionForward:
      return "attention.fwd";
    case KernelFamily::kAttentionBackward:
      return "attention.bwd";
    case KernelFamily::kActivation:
      return "activation";
    case KernelFamily::kLoss:
      return "loss";
    case KernelFamily::kOptimizer:
      return "optimizer";
    case KernelFamily::kReduce:
      return "reduce";
    case KernelFamily::kCopy:
      return "copy";
    case KernelFamily::kGather:
      return "gather";
    case KernelFamily::kScatter:
      return "scatter";
  }
  return "unknown";
}

Verdict Judge(KernelFamily family, const FamilyTotals& totals, const Ceilings& ceilings,
              const JobSettings& settings, const MeasuredRatios& measured) {
  Verdict verdict;
  if (totals.seconds <= 0) return verdict;
  const auto ratio = [&](double amount, double ceiling) {
    return ceiling > 0 ? std::min(1.0, amount / totals.seconds / ceiling) : 0.0;
  };
  verdict.compute_ratio = ratio(totals.flops, ceilings.flops_per_second);
  verdict.memory_ratio = ratio(totals.bytes, ceilings.bytes_per_second);
  if (measured.samples > 0) {
    verdict.compute_ratio = measured.compute;
    verdict.memory_ratio = measured.memory;
  }
  const bool judged =
      measured.samples > 0 || (ceilings.flops_per_second > 0 && ceilings.bytes_per_second > 0);
  if (IsCommunication(family)) {
    verdict.bound = v1::BOUND_COMMUNICATION;
  } else if (judged) {
    verdict.bound = BoundOf(totals, verdict.compute_ratio, verdict.memory_ratio);
  }
  verdict.remedy = RemedyFor(family, verdict.bound, settings);
  verdict.savable_seconds = SavableSeconds(family, totals, ceilings);
  return verdict;
}

void AppendVerdicts(const FamilyTable& table, const Ceilings& ceilings, const JobSettings& settings,
                    const MeasuredTable& measured,
                    google::protobuf::RepeatedPtrField<v1::FamilyVerdict>* out) {
  std::vector<int> order;
  for (int i = 0; i < kNumKernelFamilies; ++i) {
    if (table[static_cast<std::size_t>(i)].launches > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&table](int a, int b) {
    return table[static_cast<std::size_t>(a)].seconds > table[static_cast<std::size_t>(b)].seconds;
  });
  for (const int i : order) {
    const FamilyTotals& totals = table[static_cast<std::size_t>(i)];
    const auto family = static_cast<KernelFamily>(i);
    const MeasuredRatios& ratios = measured[static_cast<std::size_t>(i)];
    const Verdict verdict = Judge(family, totals, ceilings, settings, ratios);
    v1::FamilyVerdict* to = out->Add();
    to->set_family(NameOf(family));
    to->set_bound(verdict.bound);
    to->set_source(ratios.samples > 0 ? v1::METRIC_SOURCE_PM_SAMPLING : v1::METRIC_SOURCE_ANALYTIC);
    to->set_samples(ratios.samples);
    to->set_tensor_ratio(ratios.tensor);
    to->set_seconds(totals.seconds);
    to->set_launches(totals.launches);
    to->set_flops(totals.flops);
    to->set_bytes(totals.bytes);
    to->set_compute_ratio(verdict.compute_ratio);
    to->set_memory_ratio(verdict.memory_ratio);
    to->set_remedy(verdict.remedy);
    to->set_savable_seconds(verdict.savable_seconds);
  }
}

}  // namespace fsdp
