#include "coordinator/web/job_history.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// Rows of one read of the store.
constexpr std::int64_t kPage = 1000;

}  // namespace

void CurveSeries::Add(std::int64_t step, double value) {
  // A new attempt, or ranks that went back, train steps again.
  while (!points_.empty() && points_.back().last_step >= step) points_.pop_back();
  if (!std::isfinite(value)) {
    ++num_not_finite_;
    return;
  }
  if (points_.empty() || points_.back().count >= width_) {
    if (points_.size() == max_points_) Halve();
    points_.push_back({step, step, value, 1, value, value});
    return;
  }
  Point& last = points_.back();
  last.last_step = step;
  last.sum += value;
  ++last.count;
  last.low = std::min(last.low, value);
  last.high = std::max(last.high, value);
}

void CurveSeries::Halve() {
  std::vector<Point> halved;
  halved.reserve(points_.size());
  for (std::size_t i = 0; i < points_.size(); i += 2) {
    Point point = points_[i];
    if (i + 1 < points_.size()) {
      const Point& next = points_[i + 1];
      point.last_step = next.last_step;
      point.sum += next.sum;
      point.count += next.count;
      point.low = std::min(point.low, next.low);
      point.high = std::max(point.high, next.high);
    }
    halved.push_back(point);
  }
  points_ = std::move(halved);
  width_ *= 2;
}

absl::StatusOr<HistoryView> JobHistories::Read(const JobId& job) {
  const std::shared_ptr<History> history = Find(job);
  const std::lock_guard lock(history->mutex);
  HistoryView& view = history->view;
  view.metrics_left = false;
  for (std::int64_t read = 0; read < limits_.metrics;) {
    const std::int64_t limit = std::min(kPage, limits_.metrics - read);
    ASSIGN_OR_RETURN(const auto rows, store_->ReadMetrics(job, view.metrics_read, limit));
    for (const v1::StepMetrics& row : rows) {
      view.loss.Add(row.step(), row.loss());
      if (row.has_validation_loss()) view.validation_loss.Add(row.step(), row.validation_loss());
      view.metrics_read = row.offset();
    }
    read += static_cast<std::int64_t>(rows.size());
    view.metrics_left = static_cast<std::int64_t>(rows.size()) == limit;
    if (!view.metrics_left) break;
  }
  for (std::int64_t read = 0; read < limits_.events;) {
    const std::int64_t limit = std::min(kPage, limits_.events - read);
    ASSIGN_OR_RETURN(auto rows, store_->ReadEvents(job, history->last_event, limit));
    for (v1::JobEvent& row : rows) {
      history->last_event = row.sequence();
      view.events.push_back(std::move(row));
      if (view.events.size() > limits_.shown_events) view.events.pop_front();
    }
    read += static_cast<std::int64_t>(rows.size());
    if (static_cast<std::int64_t>(rows.size()) < limit) break;
  }
  return view;
}

std::shared_ptr<JobHistories::History> JobHistories::Find(const JobId& job) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<History>& history = histories_[job];
  if (history == nullptr) {
    history = std::make_shared<History>();
  } else {
    order_.remove(job);
  }
  order_.push_front(job);
  const std::shared_ptr<History> found = history;
  if (order_.size() > limits_.jobs) {
    histories_.erase(order_.back());
    order_.pop_back();
  }
  return found;
}

}  // namespace fsdp::coordinator
