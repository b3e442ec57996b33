#include "worker/daemon/spool.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/daemon/temp_dir.h"

namespace fsdp::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::Report Exit(int code) {
  v1::Report report;
  report.mutable_exited()->set_exit_code(code);
  return report;
}

v1::Report Step(int step) {
  v1::Report report;
  report.mutable_step()->mutable_metrics()->set_step(step);
  return report;
}

v1::Report Logs(const std::string& text) {
  v1::Report report;
  report.mutable_logs()->add_entries()->set_text(text);
  return report;
}

std::vector<std::int64_t> Sequences(const std::vector<v1::Report>& reports) {
  std::vector<std::int64_t> sequences;
  for (const v1::Report& report : reports) sequences.push_back(report.sequence());
  return sequences;
}

std::vector<std::string> Files(const std::string& dir) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class SpoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<Spool> Open() { return Spool::Open(options_).value(); }

  TempDir dir_;
  Spool::Options options_{.dir = dir_.path() + "/a/spool"};
};

constexpr std::int64_t kAll = std::int64_t{1} << 40;

TEST_F(SpoolTest, NumbersReportsAndGivesThemBackInOrder) {
  const auto spool = Open();
  EXPECT_EQ(spool->first_sequence(), 1);
  EXPECT_EQ(spool->last_sequence(), 0);
  EXPECT_EQ(spool->Append(Exit(3)), 1);
  EXPECT_EQ(spool->Append(Logs("hello")), 2);
  const std::vector<v1::Report> reports = spool->ReadAfter(0, kAll);
  ASSERT_THAT(Sequences(reports), ElementsAre(1, 2));
  EXPECT_EQ(reports[0].exited().exit_code(), 3);
  EXPECT_EQ(reports[1].logs().entries(0).text(), "hello");
  EXPECT_THAT(Sequences(spool->ReadAfter(1, kAll)), ElementsAre(2));
  EXPECT_THAT(spool->ReadAfter(2, kAll), IsEmpty());
}

TEST_F(SpoolTest, ReadsAtLeastOneAndNotMoreThanFits) {
  const auto spool = Open();
  for (int i = 0; i < 4; ++i) spool->Append(Logs(std::string(1000, 'x')));
  EXPECT_THAT(Sequences(spool->ReadAfter(0, 1)), ElementsAre(1));
  EXPECT_THAT(Sequences(spool->ReadAfter(1, 2500)), ElementsAre(2, 3));
}

TEST_F(SpoolTest, SurvivesARestartAndGoesOnCounting) {
  Open()->Append(Exit(1));
  {
    const auto spool = Open();
    EXPECT_THAT(Sequences(spool->ReadAfter(0, kAll)), ElementsAre(1));
    EXPECT_EQ(spool->Append(Exit(2)), 2);
    spool->Acknowledge(1);
  }
  const auto spool = Open();
  spool->Acknowledge(2);
  EXPECT_EQ(spool->Append(Exit(3)), 3);
  EXPECT_THAT(Sequences(spool->ReadAfter(0, kAll)), ElementsAre(3));
}

TEST_F(SpoolTest, AFreshSpoolStartsWhereItIsTold) {
  options_.first_sequence = 1'000'000;
  EXPECT_EQ(Open()->Append(Exit(0)), 1'000'000);
  options_.first_sequence = 2'000'000;  // No longer fresh.
  EXPECT_EQ(Open()->Append(Exit(0)), 1'000'001);
}

TEST_F(SpoolTest, SkipPastNeverGoesBack) {
  const auto spool = Open();
  spool->SkipPast(50);
  EXPECT_EQ(spool->Append(Exit(0)), 51);
  spool->SkipPast(10);
  EXPECT_EQ(spool->Append(Exit(0)), 52);
}

TEST_F(SpoolTest, AcknowledgedFilesAreDeleted) {
  options_.segment_bytes = 100;
  const auto spool = Open();
  for (int i = 0; i < 50; ++i) spool->Append(Exit(i));
  EXPECT_GT(Files(options_.dir).size(), 5u);
  spool->Acknowledge(50);
  EXPECT_EQ(Files(options_.dir).size(), 1u);
  EXPECT_EQ(spool->stats().num_bytes, 0);
  EXPECT_EQ(spool->stats().num_reports, 0);
  EXPECT_EQ(spool->Append(Exit(0)), 51);
}

TEST_F(SpoolTest, TruncationAtEveryByteKeepsAllWholeReports) {
  std::vector<std::size_t> ends;
  for (const v1::Report& report : {Exit(1), Logs("second"), Exit(3)}) {
    Open()->Append(report);
    ends.push_back(Contents(Files(options_.dir).at(0)).size());
  }
  const std::string path = Files(options_.dir).at(0);
  const std::string bytes = Contents(path);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const auto whole = std::ranges::count_if(ends, [&](std::size_t end) { return end <= cut; });
    const bool torn = cut > 0 && std::ranges::find(ends, cut) == ends.end();
    Overwrite(path, bytes.substr(0, cut));
    const auto spool = Open();
    ASSERT_EQ(spool->stats().num_reports, whole) << cut;
    ASSERT_EQ(spool->stats().num_corrupt, torn ? 1 : 0) << cut;
    // What follows is readable, whatever was torn.
    ASSERT_EQ(spool->Append(Exit(9)), whole + 1) << cut;
    ASSERT_EQ(Open()->stats().num_reports, whole + 1) << cut;
  }
}

TEST_F(SpoolTest, AFlippedBitAnywhereIsFoundAndLeavesWhatCameBefore) {
  Open()->Append(Exit(1));
  const std::string path = Files(options_.dir).at(0);
  const std::size_t one = Contents(path).size();
  Open()->Append(Exit(2));
  const std::string bytes = Contents(path);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    Overwrite(path, damaged);
    const auto spool = Open();
    EXPECT_EQ(spool->stats().num_reports, at < one ? 0 : 1) << at;
    EXPECT_EQ(spool->stats().num_corrupt, 1) << at;
  }
}

TEST_F(SpoolTest, DamageInAnOlderFileLosesOnlyThatFilesRest) {
  options_.segment_bytes = 1;  // One report a file.
  {
    const auto spool = Open();
    for (int i = 0; i < 4; ++i) spool->Append(Exit(i));
  }
  std::vector<std::string> files = Files(options_.dir);
  std::string bytes = Contents(files.at(1));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  Overwrite(files.at(1), bytes);
  const auto spool = Open();
  EXPECT_THAT(Sequences(spool->ReadAfter(0, kAll)), ElementsAre(1, 3, 4));
  EXPECT_EQ(spool->Append(Exit(0)), 5);
}

TEST_F(SpoolTest, BeyondTheBoundTheOldestStepsAndLinesGoAndAreCounted) {
  options_.max_bytes = 20'000;
  options_.segment_bytes = 4'000;
  const auto spool = Open();
  spool->Append(Exit(1));
  for (int i = 0; i < 20; ++i) {
    spool->Append(Logs(std::string(1000, 'x')));
    spool->Append(Step(i));
  }
  spool->Append(Exit(2));
  for (int i = 0; i < 20; ++i) spool->Append(Logs(std::string(1000, 'y')));
  const Spool::Stats stats = spool->stats();
  EXPECT_LE(stats.num_bytes, options_.max_bytes);
  EXPECT_GT(stats.num_dropped_logs, 0);
  EXPECT_GT(stats.num_dropped_steps, 0);
  EXPECT_EQ(stats.num_reports + stats.num_dropped_logs + stats.num_dropped_steps, 62);
  std::vector<v1::Report> kept = spool->ReadAfter(0, kAll);
  EXPECT_EQ(std::ranges::count_if(kept, [](const auto& r) { return r.has_exited(); }), 2);
  // The newest stay.
  EXPECT_EQ(kept.back().sequence(), 62);
  // The disk is freed as well, and a restart sees the same.
  std::uintmax_t on_disk = 0;
  for (const std::string& file : Files(options_.dir)) on_disk += std::filesystem::file_size(file);
  EXPECT_LE(on_disk, 20'000u);
  EXPECT_EQ(Sequences(Open()->ReadAfter(0, kAll)), Sequences(kept));
}

TEST_F(SpoolTest, WhatMustNotBeLostIsKeptBeyondTheBound) {
  options_.max_bytes = 1000;
  const auto spool = Open();
  v1::Report final_step = Step(7);
  final_step.mutable_step()->set_final(true);
  spool->Append(final_step);
  for (int i = 0; i < 200; ++i) spool->Append(Exit(i));
  EXPECT_GT(spool->stats().num_bytes, options_.max_bytes);
  EXPECT_EQ(spool->stats().num_reports, 201);
  spool->Append(Logs("gone at once"));
  EXPECT_EQ(spool->stats().num_dropped_logs, 1);
  EXPECT_EQ(spool->ReadAfter(0, kAll).size(), 201u);
}

TEST_F(SpoolTest, WhenTheDiskFailsImportantReportsStayInMemory) {
  options_.segment_bytes = 1;
  const auto spool = Open();
  spool->Append(Exit(1));
  // The next file cannot be made.
  std::filesystem::remove_all(options_.dir);
  spool->Append(Exit(2));
  spool->Append(Logs("lost"));
  const std::vector<v1::Report> reports = spool->ReadAfter(0, kAll);
  ASSERT_THAT(Sequences(reports), ElementsAre(1, 2));
  EXPECT_EQ(reports[1].exited().exit_code(), 2);
  EXPECT_EQ(spool->stats().num_write_errors, 2);
  EXPECT_EQ(spool->stats().num_dropped_logs, 1);
  spool->Acknowledge(2);
  EXPECT_EQ(spool->stats().num_reports, 0);
}

TEST_F(SpoolTest, AnUnusableDirectoryIsAnErrorThatNamesIt) {
  std::ofstream(dir_.path() + "/file") << "x";
  options_.dir = dir_.path() + "/file/spool";
  const absl::Status status = Spool::Open(options_).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(dir_.path() + "/file"));
}

TEST_F(SpoolTest, AppendReadAndAcknowledgeMayRunTogether) {
  options_.segment_bytes = 2000;
  const auto spool = Open();
  constexpr int kReports = 300;
  std::thread writer([&] {
    for (int i = 0; i < kReports; ++i) spool->Append(Logs("line"));
  });
  std::int64_t last = 0;
  while (last < kReports) {
    for (const v1::Report& report : spool->ReadAfter(last, 500)) {
      ASSERT_EQ(report.sequence(), last + 1);
      last = report.sequence();
    }
    spool->Acknowledge(last);
  }
  writer.join();
  EXPECT_EQ(spool->stats().num_reports, 0);
}

}  // namespace
}  // namespace fsdp::daemon
