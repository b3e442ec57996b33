#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_COUNTER_WINDOWS_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_COUNTER_WINDOWS_H_

// Samples hardware counters in short windows, on a thread of its own. The step thread only says
// that a step is over; it never waits for a driver, and what goes wrong here is counted and shown
// in ProfilerHealth.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "fsdp/v1/worker_service.pb.h"
#include "proto/support/clock.h"
#include "worker/profile/counters/counter_driver.h"
#include "worker/profile/counters/counter_policy.h"

namespace fsdp {

// Thread-safe.
class CounterWindows {
 public:
  // What a reader of windows made of one.
  struct Use {
    std::int64_t samples = 0;  // credited to families
    std::map<std::string, std::int64_t> dropped;
    double seconds = 0;
  };
  // Called on the windows' thread, one reading at a time.
  using Reader = std::function<Use(const CounterReading&)>;

  // `driver` null: the device has no counters. `clock` outlives this. No thread yet.
  CounterWindows(const CounterWindowOptions& options, std::unique_ptr<CounterDriver> driver,
                 Reader reader, const Clock& clock);
  // Ends an open window, unread, and the thread.
  ~CounterWindows();

  // Runs RunOnce on a thread until the end. The step thread; does nothing the second time.
  void StartThread();

  // A step is over: the step thread.
  void OnStep();
  // The next window begins as soon as it can.
  void Request();

  // For a recording: a window of its own, which lasts until Release and which the reader never
  // sees. Hold does not wait: hold() says when it is open, or that it was refused (for which
  // Health().message has the cause).
  void Hold();
  [[nodiscard]] HoldState hold() const;
  // Ends the window. Its reading comes when the driver has it; at once
  //   FAILED_PRECONDITION  it was not open
  // or what the driver's End says.
  std::future<absl::StatusOr<CounterReading>> Release();
  [[nodiscard]] fsdp::v1::ProfilerHealth Health() const;
  // Whether a window is open.
  [[nodiscard]] bool is_sampling() const;

  // One decision and its deed; returns how long to wait for the next one. For the thread, and for
  // tests without it.
  absl::Duration RunOnce();

 private:
  void Begin();
  void End();
  void Loop();

  const Clock& clock_;
  const std::unique_ptr<CounterDriver> driver_;
  const Reader reader_;

  mutable std::mutex mutex_;  // never held while the driver or the reader is called
  std::condition_variable wake_;
  // Guarded by mutex_.
  CounterPolicy policy_;
  fsdp::v1::ProfilerHealth health_;  // without state and message
  std::int64_t num_steps_ = 0;
  std::optional<std::promise<absl::StatusOr<CounterReading>>> released_;
  bool woken_ = false;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_COUNTER_WINDOWS_H_
