#include "coordinator/web/job_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "coordinator/store/memory_store.h"

namespace fsdp::coordinator {
namespace {

using ::testing::Le;
using ::testing::SizeIs;

TEST(CurveSeriesTest, KeepsEveryStepInABoundedNumberOfPoints) {
  CurveSeries series(10);
  std::int64_t count = 0;
  double sum = 0;
  for (int step = 1; step <= 1000; ++step) series.Add(step, step);
  ASSERT_THAT(series.points(), SizeIs(Le(10U)));
  std::int64_t next = 1;
  for (const CurveSeries::Point& point : series.points()) {
    EXPECT_EQ(point.first_step, next);
    EXPECT_EQ(point.low, point.first_step);
    EXPECT_EQ(point.high, point.last_step);
    next = point.last_step + 1;
    count += point.count;
    sum += point.sum;
  }
  EXPECT_EQ(next, 1001);
  EXPECT_EQ(count, 1000);
  EXPECT_EQ(sum, 1000 * 1001 / 2);
}

TEST(CurveSeriesTest, StepsThatAreTrainedAgainReplaceWhatTheyWere) {
  CurveSeries series(100);
  for (int step = 1; step <= 20; ++step) series.Add(step, 1);
  for (int step = 11; step <= 15; ++step) series.Add(step, 2);
  ASSERT_EQ(series.points().back().last_step, 15);
  EXPECT_EQ(series.points().back().mean(), 2);
  EXPECT_EQ(series.points()[9].last_step, 10);
  EXPECT_EQ(series.points()[9].mean(), 1);
}

TEST(CurveSeriesTest, WhatIsNoNumberIsCountedAndNotDrawn) {
  CurveSeries series(10);
  series.Add(1, 3);
  series.Add(2, std::nan(""));
  series.Add(3, std::numeric_limits<double>::infinity());
  EXPECT_THAT(series.points(), SizeIs(1));
  EXPECT_EQ(series.num_not_finite(), 2);
}

void AddSteps(MemoryStore& store, const JobId& job, int first, int last) {
  StoreBatch batch;
  for (int step = first; step <= last; ++step) {
    JobItem<v1::StepMetrics> item{job, {}};
    item.record.set_offset(step);
    item.record.set_step(step);
    item.record.set_loss(1.0 / step);
    if (step % 10 == 0) item.record.set_validation_loss(2.0 / step);
    batch.metrics.push_back(std::move(item));
  }
  store.Write(std::move(batch), nullptr);
}

void AddEvents(MemoryStore& store, const JobId& job, int first, int last) {
  StoreBatch batch;
  for (int i = first; i <= last; ++i) {
    JobItem<v1::JobEvent> item{job, {}};
    item.record.set_sequence(i);
    batch.events.push_back(std::move(item));
  }
  store.Write(std::move(batch), nullptr);
}

void AddJob(MemoryStore& store, const JobId& job) {
  StoreBatch batch;
  batch.jobs.emplace_back().mutable_job()->set_name("jobs/" + job.value());
  store.Write(std::move(batch), nullptr);
}

TEST(JobHistoriesTest, ReadsALongPastInPieces) {
  MemoryStore store;
  const JobId job("a-1");
  AddJob(store, job);
  AddSteps(store, job, 1, 2500);
  JobHistories histories(&store, {.metrics = 2000});
  auto view = histories.Read(job);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->metrics_read, 2000);
  EXPECT_TRUE(view->metrics_left);
  view = histories.Read(job);
  EXPECT_EQ(view->metrics_read, 2500);
  EXPECT_FALSE(view->metrics_left);
  EXPECT_EQ(view->loss.points().back().last_step, 2500);
  EXPECT_EQ(view->validation_loss.points().back().last_step, 2500);
  AddSteps(store, job, 2501, 2501);
  EXPECT_EQ(histories.Read(job)->metrics_read, 2501);
}

TEST(JobHistoriesTest, KeepsTheNewestEvents) {
  MemoryStore store;
  const JobId job("a-1");
  AddJob(store, job);
  AddEvents(store, job, 1, 120);
  JobHistories histories(&store);
  auto view = histories.Read(job);
  ASSERT_TRUE(view.ok()) << view.status();
  ASSERT_THAT(view->events, SizeIs(50));
  EXPECT_EQ(view->events.front().sequence(), 71);
  AddEvents(store, job, 121, 121);
  EXPECT_EQ(histories.Read(job)->events.back().sequence(), 121);
}

TEST(JobHistoriesTest, ForgetsJobsThatNobodyLooksAt) {
  MemoryStore store;
  JobHistories histories(&store, {.jobs = 2});
  for (const char* id : {"a", "b", "c", "a"}) {
    const JobId job(id);
    AddJob(store, job);
    AddSteps(store, job, 1, 3);
    EXPECT_EQ(histories.Read(job)->metrics_read, 3) << id;
  }
}

}  // namespace
}  // namespace fsdp::coordinator
