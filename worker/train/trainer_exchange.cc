#include "worker/train/trainer_exchange.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp {

absl::StatusOr<std::unique_ptr<RankExchange>> RankExchange::Create(Engine& engine, Device& device,
                                                                   Communicator* communicator) {
  std::unique_ptr<RankExchange> exchange(
      new RankExchange(device, communicator, engine.exchange_memory()));
  if (communicator == nullptr) return exchange;
  ASSIGN_OR_RETURN(exchange->host_memory_, device.AllocateHost(exchange->device_memory_.size()));
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
  auto* from = reinterpret_cast<double*>(device_memory_.data());
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
  values.reserve(world);
  for (std::size_t rank = 0; rank < world; ++rank) {
    values.emplace_back(host_all + rank * count, host_all + (rank + 1) * count);
  }
  return values;
}

absl::StatusOr<std::vector<std::string>> RankExchange::GatherTexts(std::string_view mine,
                                                                   const char* label) {
  // A double carries this many bytes as a whole number, exactly.
  constexpr std::size_t kBytesPerValue = 6;
  constexpr std::size_t kBytesPerRound = kMaxValues * kBytesPerValue;
  mine = mine.substr(0, kMaxTextBytes);
  const double size[] = {static_cast<double>(mine.size())};
  ASSIGN_OR_RETURN(const auto sizes, Gather(size, label));
  std::size_t longest = 0;
  for (const std::vector<double>& of_rank : sizes) {
    longest = std::max(longest, static_cast<std::size_t>(of_rank[0]));
  }
  std::vector<std::string> texts(sizes.size());
  for (std::size_t begin = 0; begin < longest; begin += kBytesPerRound) {
    std::array<double, kMaxValues> values{};
    for (std::size_t i = 0; i < kBytesPerRound && begin + i < mine.size(); ++i) {
      const auto byte = static_cast<unsigned char>(mine[begin + i]);
      values[i / kBytesPerValue] += std::ldexp(byte, static_cast<int>(8 * (i % kBytesPerValue)));
    }
    ASSIGN_OR_RETURN(const auto all, Gather(values, label));
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      for (const double value : all[rank]) {
        auto bytes = static_cast<std::uint64_t>(value);
        for (std::size_t i = 0; i < kBytesPerValue; ++i, bytes >>= 8) {
          texts[rank].push_back(static_cast<char>(bytes & 0xff));
        }
      }
    }
  }
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    texts[rank].resize(static_cast<std::size_t>(sizes[rank][0]));
  }
  return texts;
}

}  // namespace fsdp
