#ifndef FSDPCTL_COORDINATOR_WEB_JOB_HISTORY_H_
#define FSDPCTL_COORDINATOR_WEB_JOB_HISTORY_H_

// What the page shows of a job's past, read from the store piece by piece: a job of a million steps
// is never read at once, and what was read is not read again.

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/store/job_store.h"
#include "fsdp/v1/job_record.pb.h"
#include "proto/support/ids.h"

namespace fsdp::coordinator {

// A curve in a bounded number of points, each standing for as many steps as it needs to. A value;
// steps come in order, and those that are trained again replace what they were.
class CurveSeries {
 public:
  struct Point {
    std::int64_t first_step = 0;
    std::int64_t last_step = 0;
    double sum = 0;
    std::int64_t count = 0;
    double low = 0;
    double high = 0;
    [[nodiscard]] double mean() const { return sum / static_cast<double>(count); }
  };

  explicit CurveSeries(std::size_t max_points) : max_points_(max_points) {}

  // A value that is not finite is counted, not drawn.
  void Add(std::int64_t step, double value);
  [[nodiscard]] const std::vector<Point>& points() const { return points_; }
  [[nodiscard]] std::int64_t num_not_finite() const { return num_not_finite_; }

 private:
  void Halve();

  std::size_t max_points_;
  // Values that one point takes.
  std::int64_t width_ = 1;
  std::vector<Point> points_;
  std::int64_t num_not_finite_ = 0;
};

// What one view of a job draws from.
struct HistoryView {
  CurveSeries loss{kCurvePoints};
  CurveSeries validation_loss{kCurvePoints};
  std::int64_t metrics_read = 0;
  // There is more, which the next view reads.
  bool metrics_left = false;
  // Newest last.
  std::deque<v1::JobEvent> events;

  static constexpr std::size_t kCurvePoints = 400;
};

// Thread-safe. Views of one job wait for each other; those of others do not.
class JobHistories {
 public:
  struct Limits {
    // Read in one view.
    std::int64_t metrics = 10'000;
    std::int64_t events = 2'000;
    // Kept of a job.
    std::size_t shown_events = 50;
    // Jobs that are remembered, those looked at last.
    std::size_t jobs = 16;
  };

  // `store` outlives this.
  explicit JobHistories(JobStore* store) : JobHistories(store, Limits()) {}
  JobHistories(JobStore* store, Limits limits) : store_(store), limits_(limits) {}

  //   UNAVAILABLE, DATA_LOSS  as JobStore
  absl::StatusOr<HistoryView> Read(const JobId& job);

 private:
  struct History {
    std::mutex mutex;
    HistoryView view;
    std::int64_t last_event = 0;
  };
  std::shared_ptr<History> Find(const JobId& job);

  JobStore* const store_;
  const Limits limits_;
  std::mutex mutex_;
  std::map<JobId, std::shared_ptr<History>> histories_;
  // Looked at last: in front.
  std::list<JobId> order_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_WEB_JOB_HISTORY_H_
