#include "worker/model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fsdp {
namespace {

// Llama 3's rule: long wavelengths are stretched by the factor, short ones stay, between them the
// two are blended.
double Llama3Frequency(const RopeScalingConfig& scaling, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const auto positions = static_cast<double>(scaling.original_max_positions);
  if (wavelength < positions / scaling.high_freq_factor) return frequency;
  if (wavelength > positions / scaling.low_freq_factor) return frequency / scaling.factor;
  const double smooth = (positions / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// The pair that turns `rotations` times over the original context (a fraction of a pair).
double YarnPair(const ModelConfig& model, double rotations) {
  const auto positions = static_cast<double>(model.rope_scaling.original_max_positions);
  return static_cast<double>(model.head_dim) *
         std::log(positions / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(model.rope_theta));
}

// YaRN's rule: pairs that turn often stay, those that turn seldom are stretched by the factor, and
// between the two (whole pairs) the frequency goes from one to the other in equal steps.
double YarnFrequency(const ModelConfig& model, std::int64_t pair, double frequency) {
  const RopeScalingConfig& scaling = model.rope_scaling;
  const double low = std::max(std::floor(YarnPair(model, scaling.beta_fast)), 0.0);
  double high = std::min(std::ceil(YarnPair(model, scaling.beta_slow)),
                         static_cast<double>(model.head_dim - 1));
  if (low == high) high += 0.001;
  const double ramp = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
  return frequency / scaling.factor * ramp + frequency * (1 - ramp);
}

double Frequency(const ModelConfig& model, std::int64_t pair) {
  const double exponent = 2.0 * static_cast<double>(pair) / static_cast<double>(model.head_dim);
  const double frequency = std::pow(model.rope_theta, -exponent);
  switch (model.rope_scaling.type) {
    case RopeScalingConfig::Type::kNone:
      break;
    case RopeScalingConfig::Type::kLinear:
      return frequency / model.rope_scaling.factor;
    case RopeScalingConfig::Type::kLlama3:
      return Llama3Frequency(model.rope_scaling, frequency);
    case RopeScalingConfig::Type::kYarn:
      return YarnFrequency(model, pair, frequency);
  }
  return frequency;
}

// Both q and k carry it, so that scores grow by its square.
double Magnitude(const RopeScalingConfig& scaling) {
  if (scaling.type != RopeScalingConfig::Type::kYarn) return 1;
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  return scaling.factor <= 1 ? 1 : 0.1 * std::log(scaling.factor) + 1;
}

}  // namespace

RopeTable MakeRopeTable(const ModelConfig& model, std::int64_t sequence_length) {
  const std::int64_t pairs = model.head_dim / 2;
  RopeTable table;
  table.cos.resize(static_cast<std::size_t>(sequence_length * pairs));
  table.sin.resize(table.cos.size());
  const double magnitude = Magnitude(model.rope_scaling);
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    const double frequency = Frequency(model, pair);
    for (std::int64_t position = 0; position < sequence_length; ++position) {
      const auto at = static_cast<std::size_t>(position * pairs + pair);
      const double angle = static_cast<double>(position) * frequency;
      table.cos[at] = magnitude * std::cos(angle);
      table.sin[at] = magnitude * std::sin(angle);
    }
  }
  return table;
}

}  // namespace fsdp
