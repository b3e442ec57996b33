#ifndef FSDPCTL_WORKER_MODEL_UNIT_VIEW_H_
#define FSDPCTL_WORKER_MODEL_UNIT_VIEW_H_

// The parameters (or gradients) of one unit inside a flat buffer, found by role. Copyable; owns
// nothing; valid while the unit is unsharded.

#include <array>

#include "worker/device/tensor.h"
#include "worker/plan/plan.h"

namespace fsdp {

class UnitView {
 public:
  UnitView() = default;
  UnitView(const UnitPlan& unit, void* base, DType dtype);

  // The matrix that starts with `role`; a fused group as one matrix. Shape as stored.
  [[nodiscard]] Matrix Weight(ParameterRole role) const;
  // The vector that starts with `role`, fused groups as one; empty when the unit has none.
  [[nodiscard]] Vector Values(ParameterRole role) const;
  [[nodiscard]] bool Has(ParameterRole role) const { return IndexOf(role) >= 0; }

 private:
  static constexpr std::size_t kNumRoles = static_cast<std::size_t>(ParameterRole::kHeadWeight) + 1;
  [[nodiscard]] int IndexOf(ParameterRole role) const {
    return indexes_[static_cast<std::size_t>(role)];
  }
  // Rows of the parameter and of those fused to it.
  [[nodiscard]] std::int64_t FusedRows(int index) const;
  [[nodiscard]] void* AddressOf(int index) const;

  const UnitPlan* unit_ = nullptr;
  std::byte* base_ = nullptr;
  DType dtype_ = DType::kF32;
  std::array<int, kNumRoles> indexes_{};
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_MODEL_UNIT_VIEW_H_
