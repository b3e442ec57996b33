#ifndef FSDPCTL_WORKER_PROFILE_FAMILY_RECORDER_H_
#define FSDPCTL_WORKER_PROFILE_FAMILY_RECORDER_H_

// Counts what every launch does, by kernel family: launches, FLOPs and bytes counted from shapes,
// and seconds where the launch runs on the calling thread (CPU) or a profiler adds them (CUDA).
// From these and the ceilings measured at start comes the verdict: what bounds a family.
//
// Thread rule: one FamilyRecorder belongs to the step thread; Totals returns a copy.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "fsdp/v1/job_record.pb.h"
#include "worker/device/dtype.h"

namespace fsdp {

enum class KernelFamily : std::uint8_t {
  kEmbedding,
  kNorm,
  kMatMulQkv,
  kMatMulAttnOut,
  kMatMulMlp,
  kMatMulHead,
  kRope,
  kAttentionForward,
  kAttentionBackward,
  kActivation,
  kLoss,
  kOptimizer,
  kReduce,   // sums over rows, gradient norms
  kCopy,     // casts, additions, transfers
  kGather,   // collectives; bytes are those received
  kScatter,  // bytes are those sent
};
inline constexpr int kNumKernelFamilies = 16;

// "embedding", "matmul.qkv", "gather", ...: the metric label.
const char* NameOf(KernelFamily family);
constexpr bool IsCommunication(KernelFamily family) {
  return family == KernelFamily::kGather || family == KernelFamily::kScatter;
}
constexpr bool IsAttention(KernelFamily family) {
  return family == KernelFamily::kAttentionForward || family == KernelFamily::kAttentionBackward;
}

// One launch, as the operation that makes it knows it.
struct LaunchWork {
  KernelFamily family = KernelFamily::kCopy;
  const char* operation = "";  // "matmul", "rms_norm.bwd": constant text
  double flops = 0;            // both counted from shapes
  double bytes = 0;
  std::array<std::int64_t, 3> shape{};  // 0 where there are fewer sizes
  DType dtype = DType::kF32;
};

struct FamilyTotals {
  double seconds = 0;
  std::int64_t launches = 0;
  double flops = 0;
  double bytes = 0;
  double exposed_seconds = 0;  // of communication: what compute waited for it
};
using FamilyTable = std::array<FamilyTotals, kNumKernelFamilies>;
FamilyTable Difference(const FamilyTable& after, const FamilyTable& before);

// Marks around a launch that does not run on the calling thread; who reads them adds the seconds.
class LaunchTimer {
 public:
  virtual ~LaunchTimer() = default;
  virtual absl::Status Begin() = 0;
  virtual absl::Status End(const LaunchWork& work) = 0;
};

// Sees every launch whose time is known, once it is. Nanoseconds of CLOCK_MONOTONIC.
class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  virtual void OnLaunch(const LaunchWork& work, std::int64_t begin_ns, std::int64_t end_ns) = 0;
};

// Now, on the clock of LaunchObserver.
std::int64_t MonotonicNs();

class FamilyRecorder {
 public:
  // With `time_launches` each launch is timed on the calling thread: the CPU's compute stream runs
  // work there and then.
  explicit FamilyRecorder(bool time_launches) : time_launches_(time_launches) {}
  // Null: launches that run elsewhere are counted and not timed.
  void set_timer(LaunchTimer* timer) { timer_ = timer; }
  [[nodiscard]] LaunchTimer* timer() const { return timer_; }
  // Null: nobody looks.
  void set_observer(LaunchObserver* observer) { observer_ = observer; }
  [[nodiscard]] LaunchObserver* observer() const { return observer_; }
  // Only launches of these families run, none of the others: to time them alone.
  void Select(std::span<const KernelFamily> families);
  void SelectAll() { selected_ = ~0U; }
  [[nodiscard]] bool Selects(KernelFamily family) const {
    return (selected_ >> static_cast<unsigned>(family) & 1U) != 0;
  }

  void Add(KernelFamily family, double seconds, double flops, double bytes) {
    FamilyTotals& totals = table_[static_cast<std::size_t>(family)];
    totals.seconds += seconds;
    totals.flops += flops;
    totals.bytes += bytes;
    ++totals.launches;
  }
  // Seconds that were measured elsewhere (events, a profiler), without a launch.
  void AddSeconds(KernelFamily family, double seconds) {
    table_[static_cast<std::size_t>(family)].seconds += seconds;
  }
  // Of its seconds, those that compute waited for.
  void AddExposed(KernelFamily family, double seconds) {
    table_[static_cast<std::size_t>(family)].exposed_seconds += seconds;
  }
  // Launches that were counted once before and are replayed.
  void AddTable(const FamilyTable& work);
  [[nodiscard]] bool time_launches() const { return time_launches_; }
  // Since creation.
  [[nodiscard]] const FamilyTable& totals() const { return table_; }

 private:
  bool time_launches_;
  LaunchTimer* timer_ = nullptr;
  LaunchObserver* observer_ = nullptr;
  std::uint32_t selected_ = ~0U;
  FamilyTable table_{};
};

// Runs one launch and credits it. `fn` returns absl::Status.
template <typename Fn>
absl::Status Launch(FamilyRecorder& recorder, const LaunchWork& work, Fn&& fn) {
  if (!recorder.Selects(work.family)) return absl::OkStatus();
  if (!recorder.time_launches()) {
    recorder.Add(work.family, 0, work.flops, work.bytes);
    LaunchTimer* timer = recorder.timer();
    absl::Status status = timer == nullptr ? absl::OkStatus() : timer->Begin();
    if (status.ok()) status = std::forward<Fn>(fn)();
    if (status.ok() && timer != nullptr) status = timer->End(work);
    return status;
  }
  const std::int64_t begin = MonotonicNs();
  absl::Status status = std::forward<Fn>(fn)();
  const std::int64_t end = MonotonicNs();
  recorder.Add(work.family, static_cast<double>(end - begin) * 1e-9, work.flops, work.bytes);
  if (recorder.observer() != nullptr) recorder.observer()->OnLaunch(work, begin, end);
  return status;
}

// What the device sustains, measured when the trainer starts.
struct Ceilings {
  double flops_per_second = 0;  // of matmuls in the job's dtype
  double bytes_per_second = 0;  // of memory, read plus written
};

// What the job runs with: a remedy names only what it does not do already.
struct JobSettings {
  bool bf16_parameters = false;
  bool bf16_reduce = false;
  bool reshards_after_forward = true;
  bool prefetches = true;
  bool two_communicators = true;
  // The rank's share of the global batch goes through in several micro-batches.
  bool accumulates = false;
};

// What hardware counters say of a family, 0..1; without samples nothing.
struct MeasuredRatios {
  std::int64_t samples = 0;
  double compute = 0;  // of the multiprocessors' throughput
  double memory = 0;
  double tensor = 0;
};
using MeasuredTable = std::array<MeasuredRatios, kNumKernelFamilies>;

struct Verdict {
  v1::Bound bound = v1::BOUND_UNSPECIFIED;
  double compute_ratio = 0;  // of the ceilings, 0..1
  double memory_ratio = 0;
  std::string remedy;
  double savable_seconds = 0;  // of the totals' seconds, what is above the nearer of the roofs
};

// Memory-bound: compute < 25 % and memory > 75 % of the ceilings; compute-bound: > 75 % and < 50 %.
// Communication families are communication-bound; launches below ~20 us on average with both ratios
// under 25 % are latency-bound; the rest is balanced. Without seconds, or without ceilings and
// counters, the bound is unspecified.
// Where counters have measured the ratios, theirs are judged.
// Of communication the exposed seconds can be saved, of the rest what the work would not take at
// the ceilings; nothing is claimed without ceilings.
Verdict Judge(KernelFamily family, const FamilyTotals& totals, const Ceilings& ceilings,
              const JobSettings& settings = {}, const MeasuredRatios& measured = {});

// The table as the protocol's records, families that never ran left out, largest time first.
void AppendVerdicts(const FamilyTable& table, const Ceilings& ceilings, const JobSettings& settings,
                    const MeasuredTable& measured,
                    google::protobuf::RepeatedPtrField<v1::FamilyVerdict>* out);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_FAMILY_RECORDER_H_
