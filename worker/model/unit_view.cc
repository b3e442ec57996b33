#include "worker/model/unit_view.h"

namespace fsdp {

UnitView::UnitView(const UnitPlan& unit, void* base, DType dtype)
    : unit_(&unit), base_(static_cast<std::byte*>(base)), dtype_(dtype) {
  indexes_.fill(-1);
  for (std::size_t i = 0; i < unit.spec.parameters.size(); ++i) {
    indexes_[static_cast<std::size_t>(unit.spec.parameters[i].role)] = static_cast<int>(i);
  }
}

std::int64_t UnitView::FusedRows(int index) const {
  const auto& parameters = unit_->spec.parameters;
  auto i = static_cast<std::size_t>(index);
  const int group = parameters[i].fused_group;
  std::int64_t rows = parameters[i].rows();
  if (group == 0) return rows;
  for (++i; i < parameters.size() && parameters[i].fused_group == group; ++i) {
    rows += parameters[i].rows();
  }
  return rows;
}

void* UnitView::AddressOf(int index) const {
  return base_ + unit_->layout.offsets[static_cast<std::size_t>(index)] *
                     static_cast<std::int64_t>(SizeOf(dtype_));
}

Matrix UnitView::Weight(ParameterRole role) const {
  const int index = IndexOf(role);
  if (index < 0) return {};
  const std::int64_t columns =
      unit_->spec.parameters[static_cast<std::size_t>(index)].row_elements();
  return Matrix::Packed(AddressOf(index), dtype_, FusedRows(index), columns);
}

Vector UnitView::Values(ParameterRole role) const {
  const int index = IndexOf(role);
  if (index < 0) return {};
  return {AddressOf(index), dtype_, FusedRows(index)};
}

}  // namespace fsdp
