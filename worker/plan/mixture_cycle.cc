#include "worker/plan/mixture_cycle.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>

#include "absl/strings/str_format.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr std::int64_t kMaxExact = std::numeric_limits<std::int64_t>::max() / 64;

// weight = digits x 10^exponent: the fewest digits that read back as the same double.
struct Decimal {
  std::int64_t digits = 0;
  int exponent = 0;
};

Decimal ToDecimal(double weight) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), weight, std::chars_format::scientific);
  Decimal decimal;
  const char* at = text.data();
  int fraction_digits = 0;
  for (bool in_fraction = false; *at != 'e'; ++at) {
    if (*at == '.') {
      in_fraction = true;
      continue;
    }
    decimal.digits = decimal.digits * 10 + (*at - '0');
    fraction_digits += in_fraction ? 1 : 0;
  }
  ++at;
  if (*at == '+') ++at;  // from_chars does not take it
  std::from_chars(at, end.ptr, decimal.exponent);
  decimal.exponent -= fraction_digits;
  return decimal;
}

// Whole numbers in the proportion of the weights, without a common divisor; empty: some exceed
// kMaxExact.
std::vector<std::int64_t> WholeNumbers(std::span<const double> weights) {
  std::vector<Decimal> decimals;
  for (const double weight : weights) decimals.push_back(ToDecimal(weight));
  const int lowest =
      std::min_element(decimals.begin(), decimals.end(), [](const Decimal& a, const Decimal& b) {
        return a.exponent < b.exponent;
      })->exponent;
  std::vector<std::int64_t> numbers;
  std::int64_t divisor = 0;
  for (const Decimal& decimal : decimals) {
    std::int64_t number = decimal.digits;
    for (int i = lowest; i < decimal.exponent; ++i) {
      if (number > kMaxExact / 10) return {};
      number *= 10;
    }
    if (number > kMaxExact) return {};
    divisor = std::gcd(divisor, number);
    numbers.push_back(number);
  }
  for (std::int64_t& number : numbers) number /= divisor;
  return numbers;
}

// Counts of a cycle of `length` by largest remainder; at least 1 each, since no weight is too
// small.
std::vector<std::int64_t> RoundedCounts(std::span<const double> weights, std::int64_t length) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> counts;
  std::vector<double> remainders;
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::int64_t left = length;
  for (const double weight : weights) {
    const double wanted = weight / sum * static_cast<double>(length);
    counts.push_back(std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(wanted))));
    remainders.push_back(wanted - static_cast<double>(counts.back()));
    left -= counts.back();
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  for (std::int64_t i = 0; i < left; ++i) ++counts[order[static_cast<std::size_t>(i)]];
  return counts;
}

}  // namespace

bool MixtureCycle::IsTooSmall(std::span<const double> weights, std::size_t source) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  return weights[source] / sum * static_cast<double>(kMaxLength) < 1;
}

absl::StatusOr<MixtureCycle> MixtureCycle::Create(std::span<const double> weights) {
  if (weights.empty() || weights.size() > kMaxSources) {
    return absl::InvalidArgumentError(
        absl::StrFormat("data.mixture has %d sources; give 1..%d", weights.size(), kMaxSources));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] <= 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "data.mixture[%d].weight is %g; give a number above 0, or leave the source out", i,
          weights[i]));
    }
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!IsTooSmall(weights, i)) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("data.mixture[%d].weight %g is less than 1 in %d of the sum; raise it, or "
                        "leave the source out",
                        i, weights[i], kMaxLength));
  }
  std::vector<std::int64_t> counts = WholeNumbers(weights);
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (counts.empty() || sum > kMaxLength) counts = RoundedCounts(weights, kMaxLength);
  return MixtureCycle(counts);
}

MixtureCycle::MixtureCycle(std::span<const std::int64_t> counts) : slots_(counts.size()) {
  const std::int64_t length = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  // Draw j of a source with count c is due in slots floor(j L / c) .. ceil((j + 1) L / c) - 1. Such
  // windows can all be met, and earliest deadline first meets them: then no source is ever a whole
  // draw ahead of its share or behind it.
  std::vector<std::int64_t> release(counts.size(), 0);
  std::vector<std::int64_t> deadline(counts.size());
  const auto set_deadline = [&](std::size_t i) {
    const auto next = static_cast<std::int64_t>(slots_[i].size()) + 1;
    deadline[i] = (next * length + counts[i] - 1) / counts[i];
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    slots_[i].reserve(static_cast<std::size_t>(counts[i]));
    set_deadline(i);
  }
  sources_.reserve(static_cast<std::size_t>(length));
  for (std::int64_t slot = 0; slot < length; ++slot) {
    std::size_t chosen = counts.size();
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (release[i] <= slot && (chosen == counts.size() || deadline[i] < deadline[chosen])) {
        chosen = i;
      }
    }
    sources_.push_back(static_cast<std::uint8_t>(chosen));
    slots_[chosen].push_back(static_cast<std::uint32_t>(slot));
    release[chosen] = static_cast<std::int64_t>(slots_[chosen].size()) * length / counts[chosen];
    set_deadline(chosen);
  }
}

MixtureCycle::Draw MixtureCycle::At(std::int64_t position) const {
  const std::size_t source = sources_[static_cast<std::size_t>(position % length())];
  return {source, CountBefore(source, position)};
}

std::int64_t MixtureCycle::CountBefore(std::size_t source, std::int64_t position) const {
  const std::vector<std::uint32_t>& slots = slots_[source];
  const auto in_cycle = std::lower_bound(slots.begin(), slots.end(),
                                         static_cast<std::uint32_t>(position % length())) -
                        slots.begin();
  return position / length() * count(source) + in_cycle;
}

std::int64_t MixtureCycle::PositionOf(Draw draw) const {
  const std::vector<std::uint32_t>& slots = slots_[draw.source];
  return draw.index / count(draw.source) * length() +
         slots[static_cast<std::size_t>(draw.index % count(draw.source))];
}

}  // namespace fsdp
