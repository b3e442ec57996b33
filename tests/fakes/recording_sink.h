#ifndef FSDPCTL_TESTS_FAKES_RECORDING_SINK_H_
#define FSDPCTL_TESTS_FAKES_RECORDING_SINK_H_

// A connected worker that keeps what it is sent.

#include <vector>

#include "coordinator/membership/worker_registry.h"

namespace fsdp::coordinator {

class RecordingSink : public WorkerSink {
 public:
  void Send(const v1::ConnectResponse& message) override { sent.push_back(message); }
  void Close(absl::Status) override {}
  std::vector<v1::ConnectResponse> sent;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_TESTS_FAKES_RECORDING_SINK_H_
