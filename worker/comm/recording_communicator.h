#ifndef FSDPCTL_WORKER_COMM_RECORDING_COMMUNICATOR_H_
#define FSDPCTL_WORKER_COMM_RECORDING_COMMUNICATOR_H_

// Puts every collective of another communicator into a flight recorder: issued, started and
// finished as its stream gets there.

#include <functional>
#include <string>

#include "worker/comm/communicator.h"
#include "worker/profile/flight_recorder.h"

namespace fsdp {

// Runs `mark` when `stream` gets there, with the stream's status at that point. The default knows
// CPU streams; another backend brings its own.
using StreamMarker =
    std::function<absl::Status(Stream& stream, std::function<void(const absl::Status&)> mark)>;
StreamMarker CpuStreamMarker();

class RecordingCommunicator final : public Communicator {
 public:
  // `inner` and `recorder` outlive this. `name`: the communicator's in records ("gather").
  RecordingCommunicator(Communicator& inner, FlightRecorder& recorder, std::string name,
                        StreamMarker marker = CpuStreamMarker());

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int world_size() const override { return inner_.world_size(); }
  [[nodiscard]] std::string kind() const override { return inner_.kind(); }
  absl::Status AllGather(const Vector& shard, const Vector& unit, Stream& stream) override;
  absl::Status ReduceScatter(const Vector& unit, const Vector& shard, Stream& stream) override;
  absl::Status AllReduce(const Vector& data, Stream& stream) override;
  absl::Status Broadcast(const Vector& data, int root, Stream& stream) override;
  absl::Status Barrier(Stream& stream) override;
  [[nodiscard]] bool wants_registration() const override { return inner_.wants_registration(); }
  absl::Status Register(const DeviceBuffer& buffer) override { return inner_.Register(buffer); }
  void Deregister(const DeviceBuffer& buffer) override { inner_.Deregister(buffer); }
  void SetLabel(std::string_view label) override;
  void Abort(const std::string& reason) override { inner_.Abort(reason); }
  [[nodiscard]] absl::Status Health() const override { return inner_.Health(); }

 private:
  absl::Status Record(const char* operation, std::int64_t bytes, DType dtype, Stream& stream,
                      const std::function<absl::Status()>& issue);

  Communicator& inner_;
  FlightRecorder& recorder_;
  const std::string name_;
  const StreamMarker marker_;
  std::string label_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_RECORDING_COMMUNICATOR_H_
