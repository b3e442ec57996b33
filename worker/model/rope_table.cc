#include "worker/model/rope_table.h"

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
  }
  return frequency;
}

}  // namespace

RopeTable MakeRopeTable(const ModelConfig& model, std::int64_t sequence_length) {
  const std::int64_t pairs = model.head_dim / 2;
  RopeTable table;
  table.cos.resize(static_cast<std::size_t>(sequence_length * pairs));
  table.sin.resize(table.cos.size());
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    const double frequency = Frequency(model, pair);
    for (std::int64_t position = 0; position < sequence_length; ++position) {
      const auto at = static_cast<std::size_t>(position * pairs + pair);
      const double angle = static_cast<double>(position) * frequency;
      table.cos[at] = std::cos(angle);
      table.sin[at] = std::sin(angle);
    }
  }
  return table;
}

}  // namespace fsdp
