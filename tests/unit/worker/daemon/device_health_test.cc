#include "worker/daemon/device_health.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"
#include "worker/daemon/nvml_health.h"
#include "worker/daemon/worker_families.h"

namespace fsdp::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

MonotonicTime At(double seconds) { return MonotonicTime::FromSinceStart(absl::Seconds(seconds)); }

double Throttled(const HealthMeter& meter, const std::string& reason) {
  return meter.health().throttled_seconds().at(reason);
}

DeviceReading Reasons(std::uint64_t bits) {
  DeviceReading reading;
  reading.throttle_reasons = bits;
  return reading;
}

TEST(HealthMeterTest, WhatTheDriverDoesNotTellIsAbsent) {
  HealthMeter meter;
  meter.Update({}, At(1));
  EXPECT_EQ(meter.health().ByteSizeLong(), 0U);
  EXPECT_FALSE(meter.health().has_power_watts());
}

TEST(HealthMeterTest, TimeSinceTheLastLookCountsForTheReasonsOfThisOne) {
  HealthMeter meter;
  meter.Update(Reasons(0x4), At(10));
  EXPECT_EQ(Throttled(meter, "power"), 0);  // since the worker started, not since the boot
  meter.Update(Reasons(0x4), At(11));
  meter.Update(Reasons(0x4 | 0x20), At(12.5));
  meter.Update(Reasons(0x1), At(13.5));  // idle
  EXPECT_DOUBLE_EQ(Throttled(meter, "power"), 2.5);
  EXPECT_DOUBLE_EQ(Throttled(meter, "thermal"), 1.5);
  EXPECT_EQ(Throttled(meter, "hardware"), 0);
  EXPECT_EQ(Throttled(meter, "other"), 0);
}

TEST(HealthMeterTest, HardwareSlowdownIsNamedByItsCauseWhereItHasOne) {
  HealthMeter meter;
  meter.Update({}, At(0));
  meter.Update(Reasons(0x8 | 0x40), At(1));   // hardware thermal
  meter.Update(Reasons(0x8 | 0x80), At(3));   // power brake
  meter.Update(Reasons(0x8), At(6));          // neither
  meter.Update(Reasons(0x10), At(10));        // synchronised boost
  meter.Update(Reasons(0x10000), At(10.25));  // a bit of a later driver
  EXPECT_DOUBLE_EQ(Throttled(meter, "thermal"), 1);
  EXPECT_DOUBLE_EQ(Throttled(meter, "power"), 2);
  EXPECT_DOUBLE_EQ(Throttled(meter, "hardware"), 3);
  EXPECT_DOUBLE_EQ(Throttled(meter, "other"), 4.25);
}

TEST(HealthMeterTest, ALongSilenceOfTheDriverIsNotThrottling) {
  HealthMeter meter;
  meter.Update(Reasons(0x4), At(0));
  meter.Update(Reasons(0x4), At(600));
  EXPECT_DOUBLE_EQ(Throttled(meter, "power"), 5);
}

TEST(HealthMeterTest, LinkBytesCountFromTheFirstLook) {
  const auto links = [](std::uint64_t bytes) {
    DeviceReading reading;
    reading.link_bytes["nvlink_rx"] = bytes;
    return reading;
  };
  HealthMeter meter;
  meter.Update(links(1'000'000), At(0));
  EXPECT_EQ(meter.health().link_bytes().at("nvlink_rx"), 0);
  meter.Update(links(1'000'500), At(1));
  meter.Update(links(100), At(2));  // started over
  meter.Update(links(350), At(3));
  EXPECT_EQ(meter.health().link_bytes().at("nvlink_rx"), 750);
  EXPECT_EQ(meter.health().link_bytes().count("pcie_rx"), 0U);
}

TEST(HealthMeterTest, AMissedLookShowsTotalsOnly) {
  DeviceReading reading = Reasons(0x4);
  reading.power_watts = 700;
  HealthMeter meter;
  meter.Update(reading, At(0));
  meter.Update(reading, At(1));
  meter.Miss(At(2));
  EXPECT_FALSE(meter.health().has_power_watts());
  EXPECT_DOUBLE_EQ(Throttled(meter, "power"), 1);
  meter.Update(reading, At(3));
  EXPECT_DOUBLE_EQ(Throttled(meter, "power"), 2);  // the missed second is nobody's
}

std::string Scrape(const DeviceHealth& health) {
  DeviceSnapshot device;
  device.set_worker("w");
  device.set_device("cuda-0");
  *device.mutable_health() = health;
  return prometheus::TextSerializer().Serialize(WorkerFamilies({device}, 0));
}

TEST(DeviceHealthFamiliesTest, EveryFigureIsShown) {
  DeviceReading reading = Reasons(0x4);
  reading.power_watts = 698.5;
  reading.temperature_celsius = 61;
  reading.sm_clock_hertz = 1.98e9;
  reading.ecc_errors = {{"corrected", 3}, {"uncorrected", 0}};
  reading.link_bytes = {{"pcie_tx", 10}};
  HealthMeter meter;
  meter.Update(reading, At(0));
  reading.link_bytes = {{"pcie_tx", 4106}};
  meter.Update(reading, At(1));
  const std::string text = Scrape(meter.health());
  const std::string who = R"({worker="w",device="cuda-0")";
  EXPECT_THAT(text, HasSubstr("fsdp_device_power_watts" + who + "} 698.5"));
  EXPECT_THAT(text, HasSubstr("fsdp_device_temperature_celsius" + who + "} 61"));
  EXPECT_THAT(text, HasSubstr("fsdp_device_sm_clock_hertz" + who + "} 1980000000"));
  EXPECT_THAT(text,
              HasSubstr("fsdp_device_throttled_seconds_total" + who + R"(,reason="power"} 1)"));
  EXPECT_THAT(text,
              HasSubstr("fsdp_device_throttled_seconds_total" + who + R"(,reason="thermal"} 0)"));
  EXPECT_THAT(text, HasSubstr("fsdp_device_ecc_errors_total" + who + R"(,kind="corrected"} 3)"));
  EXPECT_THAT(text, HasSubstr("fsdp_device_ecc_errors_total" + who + R"(,kind="uncorrected"} 0)"));
  EXPECT_THAT(text, HasSubstr("fsdp_device_link_bytes_total" + who + R"(,kind="pcie_tx"} 4096)"));
}

TEST(DeviceHealthFamiliesTest, NothingKnownIsNothingShown) {
  const std::string text = Scrape(DeviceHealth());
  for (const char* name : {"fsdp_device_power", "fsdp_device_temperature", "fsdp_device_sm_clock",
                           "fsdp_device_throttled", "fsdp_device_ecc", "fsdp_device_link"}) {
    EXPECT_THAT(text, Not(HasSubstr(name)));
  }
}

// A driver of an H200 that refuses the PCIe counters, as virtual GPUs do.
NvmlHealth FakeDriver() {
  NvmlHealth nvml;
  nvml.power = [](void*, unsigned int* milliwatts) {
    *milliwatts = 412'250;
    return 0;
  };
  nvml.temperature = [](void*, int sensor, unsigned int* celsius) {
    *celsius = 55;
    return sensor;
  };
  nvml.clock = [](void*, int type, unsigned int* megahertz) {
    *megahertz = type == 1 ? 1755 : 2619;
    return 0;
  };
  nvml.throttle_reasons = [](void*, NvmlHealth::Ull* reasons) {
    *reasons = 0x4;
    return 0;
  };
  nvml.ecc_errors = [](void*, int type, int counter, NvmlHealth::Ull* count) {
    *count = type == 0 ? 12 : 1;
    return counter;
  };
  nvml.field_values = [](void*, int count, NvmlFieldValue* values) {
    for (int i = 0; i < count; ++i) {
      const bool nvlink = values[i].field_id == 138 || values[i].field_id == 139;
      EXPECT_EQ(values[i].scope_id, nvlink ? ~0U : 0U);
      values[i].result = nvlink ? 0 : 3;  // not supported
      values[i].value_type = 3;
      values[i].value.as_ull = values[i].field_id;
    }
    return 0;
  };
  return nvml;
}

TEST(NvmlHealthTest, UnitsAreOurs) {
  const DeviceReading reading = FakeDriver().Read(nullptr);
  EXPECT_DOUBLE_EQ(reading.power_watts.value(), 412.25);
  EXPECT_DOUBLE_EQ(reading.temperature_celsius.value(), 55);
  EXPECT_DOUBLE_EQ(reading.sm_clock_hertz.value(), 1.755e9);
  EXPECT_EQ(reading.throttle_reasons, 0x4U);
  EXPECT_EQ(reading.ecc_errors.at("corrected"), 12);
  EXPECT_EQ(reading.ecc_errors.at("uncorrected"), 1);
  EXPECT_EQ(reading.link_bytes.at("nvlink_tx"), 138U * 1024);
  EXPECT_EQ(reading.link_bytes.at("nvlink_rx"), 139U * 1024);
  EXPECT_EQ(reading.link_bytes.size(), 2U);
}

TEST(NvmlHealthTest, ADriverMayLackAllOfItOrRefuse) {
  const DeviceReading none = NvmlHealth().Read(nullptr);
  EXPECT_FALSE(none.power_watts || none.temperature_celsius || none.sm_clock_hertz ||
               none.throttle_reasons);
  NvmlHealth refusing;
  refusing.power = [](void*, unsigned int*) { return 3; };
  refusing.ecc_errors = [](void*, int, int, NvmlHealth::Ull*) { return 3; };
  refusing.field_values = [](void*, int, NvmlFieldValue*) { return 3; };
  const DeviceReading refused = refusing.Read(nullptr);
  EXPECT_FALSE(refused.power_watts);
  EXPECT_TRUE(refused.ecc_errors.empty());
  EXPECT_TRUE(refused.link_bytes.empty());
}

}  // namespace
}  // namespace fsdp::daemon
