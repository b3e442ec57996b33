// Event files as TensorBoard reads them: records with their checksums, events with their scalars.

#include "client/render/tensorboard.h"

#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "client/render/tensorboard.pb.h"
#include "gtest/gtest.h"
#include "proto/support/crc32c.h"

namespace fsdp {
namespace {

template <typename T>
T NumberAt(const std::string& bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<unsigned char>(bytes.at(at + i))) << (8 * i);
  }
  return value;
}

std::uint32_t Unmasked(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xa282ead8U;
  return (rotated >> 17) | (rotated << 15);
}

std::uint32_t CrcOf(const std::string& bytes) { return Crc32c(std::as_bytes(std::span(bytes))); }

// The events of a file; every checksum is held against its bytes.
std::vector<tensorboard::Event> Read(const std::string& file) {
  std::vector<tensorboard::Event> events;
  for (std::size_t at = 0; at < file.size();) {
    const auto size = static_cast<std::size_t>(NumberAt<std::uint64_t>(file, at));
    EXPECT_EQ(Unmasked(NumberAt<std::uint32_t>(file, at + 8)), CrcOf(file.substr(at, 8)));
    const std::string bytes = file.substr(at + 12, size);
    EXPECT_EQ(Unmasked(NumberAt<std::uint32_t>(file, at + 12 + size)), CrcOf(bytes));
    EXPECT_TRUE(events.emplace_back().ParseFromString(bytes));
    at += 16 + size;
  }
  return events;
}

TEST(Tensorboard, AFileIsAHeaderAndTheStepsScalars) {
  v1::StepMetrics step;
  step.set_step(7);
  step.mutable_time()->set_seconds(1000);
  step.set_loss(2.5);
  step.set_validation_loss(2.75);
  step.set_grad_norm(std::nan(""));
  step.set_lr(1e-3);
  step.set_mfu(0.5);
  step.mutable_phases()->set_compute_seconds(0.25);
  v1::EvaluationLoss& set = *step.add_evaluations();
  set.set_name("code");
  set.set_loss(3);
  const auto events = Read(TensorboardHeader(absl::FromUnixSeconds(999)) + TensorboardRecord(step));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[0].wall_time(), 999);
  EXPECT_EQ(events[1].step(), 7);
  EXPECT_EQ(events[1].wall_time(), 1000);
  std::map<std::string, float> values;
  for (const auto& value : events[1].summary().value()) values[value.tag()] = value.simple_value();
  EXPECT_EQ(values.at("loss/train"), 2.5F);
  EXPECT_EQ(values.at("loss/validation"), 2.75F);
  EXPECT_EQ(values.at("loss/code"), 3.0F);
  EXPECT_EQ(values.at("mfu"), 0.5F);
  EXPECT_EQ(values.at("phases/compute_seconds"), 0.25F);
  EXPECT_EQ(values.count("grad_norm"), 0U) << "is not a number";
  EXPECT_EQ(values.count("hfu"), 0U);
}

// Of the format's description: the checksum of eight zero bytes, masked.
TEST(Tensorboard, ChecksumsAreTheFormats) {
  const std::string record = TfRecord("");
  ASSERT_EQ(record.size(), 16U);
  EXPECT_EQ(CrcOf(std::string(8, '\0')), 0x8c28b28aU);
  EXPECT_EQ(Unmasked(NumberAt<std::uint32_t>(record, 8)), 0x8c28b28aU);
}

}  // namespace
}  // namespace fsdp
