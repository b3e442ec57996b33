#ifndef FSDPCTL_TESTS_GPU_CALL_RECORDER_H_
#define FSDPCTL_TESTS_GPU_CALL_RECORDER_H_

// What a process asks of the CUDA driver, whichever library asks and on whichever thread: CUPTI
// calls back on entry to every function of the driver. CUPTI is opened at run time.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace fsdp {

struct DriverCall {
  std::string function;  // "cuStreamSynchronize"
  std::string kernel;    // of a launch: its mangled symbol

  // Blocks the host until the device has done something: synchronisations, and copies and fills
  // that are not asynchronous.
  [[nodiscard]] bool Waits() const;
  // Gives out or takes back memory of the device or pinned memory, or builds a graph.
  [[nodiscard]] bool Allocates() const;
  // Puts kernels into a stream.
  [[nodiscard]] bool Launches() const;
};

// Thread rule: Start and Take on one thread; calls are recorded from any.
class CallRecorder {
 public:
  // One at a time in a process (CUPTI has one subscriber).
  //   NOT_FOUND  libcupti cannot be opened
  //   INTERNAL   it refuses
  static absl::StatusOr<std::unique_ptr<CallRecorder>> Create();
  ~CallRecorder();
  CallRecorder(const CallRecorder&) = delete;
  CallRecorder& operator=(const CallRecorder&) = delete;

  void Start();
  // The calls since Start, in the order in which they began; recording ends.
  std::vector<DriverCall> Take();

 private:
  struct Impl;
  explicit CallRecorder(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_GPU_CALL_RECORDER_H_
