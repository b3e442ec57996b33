#include "worker/profile/device_peaks.h"

namespace fsdp {
namespace {

struct Peak {
  const char* name;  // part of the driver's
  double bf16;
  double fp32;
};

// More special names first.
constexpr Peak kPeaks[] = {
    {"H200", 989.4e12, 66.9e12},   {"GH200", 989.4e12, 66.9e12}, {"H100 PCIe", 756e12, 51e12},
    {"H100 NVL", 835.5e12, 60e12}, {"H100", 989.4e12, 66.9e12},  {"H800", 989.4e12, 66.9e12},
    {"A100", 312e12, 19.5e12},     {"A800", 312e12, 19.5e12},    {"L40S", 362e12, 91.6e12},
    {"L4", 121e12, 30.3e12},       {"A10", 125e12, 31.2e12},
};

}  // namespace

double PeakFlops(const std::string& device, bool bf16, double measured) {
  if (device.rfind("NVIDIA ", 0) != 0) return measured;
  for (const Peak& peak : kPeaks) {
    const std::size_t at = device.find(peak.name);
    if (at == std::string::npos) continue;
    // "L4" is not the beginning of "L40".
    const std::size_t end = at + std::string(peak.name).size();
    if (end < device.size() && device[end] >= '0' && device[end] <= '9') continue;
    return bf16 ? peak.bf16 : peak.fp32;
  }
  return measured;
}

}  // namespace fsdp
