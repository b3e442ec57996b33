#include "worker/train/trainer_exchange.h"

#include <algorithm>
#include <utility>

#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp {

absl::StatusOr<std::unique_ptr<RankExchange>> RankExchange::Create(Device& device,
                                                                   Communicator* communicator) {
  std::unique_ptr<RankExchange> exchange(new RankExchange(device, communicator));
  if (communicator == nullptr) return exchange;
  const std::size_t bytes =
      static_cast<std::size_t>(communicator->world_size() + 1) * kMaxValues * sizeof(double);
  ASSIGN_OR_RETURN(exchange->device_memory_, device.Allocate(bytes));
  ASSIGN_OR_RETURN(exchange->host_memory_, device.AllocateHost(bytes));
  return exchange;
}

absl::StatusOr<std::vector<std::vector<double>>> RankExchange::Gather(std::span<const double> mine,
                                                                      const char* label) {
  if (communicator_ == nullptr) {
    return std::vector<std::vector<double>>{{mine.begin(), mine.end()}};
  }
  FSDP_CHECK(mine.size() <= kMaxValues, mine.size());
  const auto world = static_cast<std::size_t>(communicator_->world_size());
  const std::size_t count = mine.size();
  auto* host = static_cast<double*>(host_memory_->data());
  auto* from = static_cast<double*>(device_memory_->data());
  double* all = from + kMaxValues;
  Stream& stream = device_.gather();
  std::copy(mine.begin(), mine.end(), host);
  RETURN_IF_ERROR(device_.Copy(from, host, count * sizeof(double), stream));
  communicator_->SetLabel(label);
  RETURN_IF_ERROR(communicator_->AllGather(
      {from, DType::kF64, static_cast<std::int64_t>(count)},
      {all, DType::kF64, static_cast<std::int64_t>(count * world)}, stream));
  double* host_all = host + kMaxValues;
  RETURN_IF_ERROR(device_.Copy(host_all, all, count * world * sizeof(double), stream));
  RETURN_IF_ERROR(device_.Synchronize(stream));
  RETURN_IF_ERROR(communicator_->Health());
  std::vector<std::vector<double>> values;
  for (std::size_t rank = 0; rank < world; ++rank) {
    values.emplace_back(host_all + rank * count, host_all + (rank + 1) * count);
  }
  return values;
}

}  // namespace fsdp
