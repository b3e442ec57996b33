#include "worker/daemon/nvml_health.h"

#include <dlfcn.h>

#include <array>
#include <optional>

namespace fsdp::daemon {
namespace {

constexpr int kNvmlSuccess = 0;
constexpr int kSensorGpu = 0;  // NVML_TEMPERATURE_GPU
constexpr int kClockSm = 1;    // NVML_CLOCK_SM
constexpr int kVolatileEcc = 0;

// nvmlValueType_t.
constexpr int kDouble = 0;
constexpr int kUnsignedInt = 1;
constexpr int kUnsignedLong = 2;
constexpr int kUnsignedLongLong = 3;
constexpr int kSignedLongLong = 4;

struct LinkField {
  const char* kind;
  unsigned int id;
  unsigned int scope;
  std::uint64_t unit_bytes;
};
constexpr unsigned int kAllLinks = ~0U;
constexpr std::array<LinkField, 4> kLinkFields = {{
    {"nvlink_tx", 138, kAllLinks, 1024},  // NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, KiB
    {"nvlink_rx", 139, kAllLinks, 1024},  // NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX
    {"pcie_tx", 197, 0, 1},               // NVML_FI_DEV_PCIE_COUNT_TX_BYTES
    {"pcie_rx", 198, 0, 1},               // NVML_FI_DEV_PCIE_COUNT_RX_BYTES
}};

std::optional<std::uint64_t> ValueOf(const NvmlFieldValue& field) {
  if (field.result != kNvmlSuccess) return std::nullopt;
  switch (field.value_type) {
    case kDouble:
      if (field.value.as_double < 0) return std::nullopt;
      return static_cast<std::uint64_t>(field.value.as_double);
    case kUnsignedInt:
      return field.value.as_uint;
    case kUnsignedLong:
    case kUnsignedLongLong:
      return field.value.as_ull;
    case kSignedLongLong:
      if (field.value.as_sll < 0) return std::nullopt;
      return static_cast<std::uint64_t>(field.value.as_sll);
    default:
      return std::nullopt;
  }
}

template <typename F>
bool Find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(::dlsym(library, name));
  return *function != nullptr;
}

void ReadLinks(const NvmlHealth& nvml, NvmlHealth::Device device, DeviceReading* reading) {
  if (nvml.field_values == nullptr) return;
  std::array<NvmlFieldValue, kLinkFields.size()> fields{};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    fields[i].field_id = kLinkFields[i].id;
    fields[i].scope_id = kLinkFields[i].scope;
  }
  if (nvml.field_values(device, static_cast<int>(fields.size()), fields.data()) != kNvmlSuccess) {
    return;
  }
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (const auto value = ValueOf(fields[i])) {
      reading->link_bytes[kLinkFields[i].kind] = *value * kLinkFields[i].unit_bytes;
    }
  }
}

}  // namespace

NvmlHealth NvmlHealth::Resolve(void* library) {
  NvmlHealth nvml;
  Find(library, "nvmlDeviceGetPowerUsage", &nvml.power);
  Find(library, "nvmlDeviceGetTemperature", &nvml.temperature);
  Find(library, "nvmlDeviceGetClockInfo", &nvml.clock);
  // Renamed by driver 535.
  if (!Find(library, "nvmlDeviceGetCurrentClocksEventReasons", &nvml.throttle_reasons)) {
    Find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", &nvml.throttle_reasons);
  }
  Find(library, "nvmlDeviceGetTotalEccErrors", &nvml.ecc_errors);
  Find(library, "nvmlDeviceGetFieldValues", &nvml.field_values);
  return nvml;
}

DeviceReading NvmlHealth::Read(Device device) const {
  DeviceReading reading;
  unsigned int value = 0;
  if (power != nullptr && power(device, &value) == kNvmlSuccess) reading.power_watts = value * 1e-3;
  if (temperature != nullptr && temperature(device, kSensorGpu, &value) == kNvmlSuccess) {
    reading.temperature_celsius = value;
  }
  if (clock != nullptr && clock(device, kClockSm, &value) == kNvmlSuccess) {
    reading.sm_clock_hertz = value * 1e6;
  }
  Ull reasons = 0;
  if (throttle_reasons != nullptr && throttle_reasons(device, &reasons) == kNvmlSuccess) {
    reading.throttle_reasons = reasons;
  }
  const std::array<const char*, 2> ecc_kinds = {"corrected", "uncorrected"};  // NVML's order
  for (int type = 0; type < static_cast<int>(ecc_kinds.size()) && ecc_errors != nullptr; ++type) {
    Ull count = 0;
    if (ecc_errors(device, type, kVolatileEcc, &count) != kNvmlSuccess) continue;
    reading.ecc_errors[ecc_kinds.at(static_cast<std::size_t>(type))] =
        static_cast<std::int64_t>(count);
  }
  ReadLinks(*this, device, &reading);
  return reading;
}

}  // namespace fsdp::daemon
