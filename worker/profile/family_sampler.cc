#include "worker/profile/family_sampler.h"

#include <cstddef>

namespace fsdp {
namespace {

constexpr std::int64_t kEvery = 300;

}  // namespace

bool FamilySampler::IsDue(std::int64_t step) {
  return step == 3 || step == 10 || step == 30 || step == 100 || (step > 0 && step % kEvery == 0);
}

void FamilySampler::OnTimed(const FamilyTable& seconds, FamilyRecorder& recorder) {
  sample_ = seconds;
  if (!known_) Add(static_cast<double>(num_missed_), recorder);
  known_ = true;
}

double FamilySampler::OnUntimed(FamilyRecorder& recorder) {
  if (!known_) {
    ++num_missed_;
    return 0;
  }
  Add(1, recorder);
  double sum = 0;
  for (const FamilyTotals& family : sample_) sum += family.seconds;
  return sum;
}

void FamilySampler::Add(double steps, FamilyRecorder& recorder) const {
  for (std::size_t i = 0; i < sample_.size(); ++i) {
    recorder.AddSeconds(static_cast<KernelFamily>(i), steps * sample_[i].seconds);
  }
}

}  // namespace fsdp
