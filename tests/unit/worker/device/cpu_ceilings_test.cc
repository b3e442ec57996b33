#include "worker/device/cpu/cpu_ceilings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

namespace fsdp {
namespace {

TEST(CpuCeilingsTest, AreFiniteAndLeaveTheAccountingAlone) {
  auto device = CreateCpuDevice({.num_threads = 1});
  ASSERT_TRUE(device.ok()) << device.status();
  const auto ceilings = MeasureCeilings(**device);
  ASSERT_TRUE(ceilings.ok()) << ceilings.status();
  for (const double rate :
       {ceilings->fp32.alone, ceilings->bf16.alone, ceilings->copy_bytes_per_second}) {
    EXPECT_TRUE(std::isfinite(rate));
    EXPECT_GT(rate, 1e6);  // any machine does a million a second
  }
  EXPECT_EQ((*device)->allocated_bytes(), 0U);
  EXPECT_EQ((*device)->num_allocations(), 0);
}

}  // namespace
}  // namespace fsdp
