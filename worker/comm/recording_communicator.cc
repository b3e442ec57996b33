#include "worker/comm/recording_communicator.h"

#include <utility>

#include "proto/support/status.h"
#include "worker/device/cpu/cpu_stream.h"

namespace fsdp {

StreamMarker CpuStreamMarker() {
  return [](Stream& stream, std::function<void(const absl::Status&)> mark) -> absl::Status {
    ASSIGN_OR_RETURN(CpuStream * queue, AsCpuStream(stream));
    queue->AddMark(std::move(mark));
    return absl::OkStatus();
  };
}

RecordingCommunicator::RecordingCommunicator(Communicator& inner, FlightRecorder& recorder,
                                             std::string name, StreamMarker marker)
    : inner_(inner), recorder_(recorder), name_(std::move(name)), marker_(std::move(marker)) {}

void RecordingCommunicator::SetLabel(std::string_view label) {
  label_ = label;
  inner_.SetLabel(label);
}

absl::Status RecordingCommunicator::Record(const char* operation, std::int64_t bytes, DType dtype,
                                           Stream& stream,
                                           const std::function<absl::Status()>& issue) {
  const std::int64_t sequence = recorder_.Enqueue(operation, label_, name_, bytes, NameOf(dtype));
  RETURN_IF_ERROR(marker_(stream, [this, sequence](const absl::Status& status) {
    if (status.ok()) recorder_.Start(sequence);
  }));
  const absl::Status issued = issue();
  if (!issued.ok()) {
    recorder_.Finish(sequence, /*ok=*/false);
    return issued;
  }
  return marker_(stream, [this, sequence](const absl::Status& status) {
    recorder_.Finish(sequence, status.ok());
  });
}

absl::Status RecordingCommunicator::AllGather(const Vector& shard, const Vector& unit,
                                              Stream& stream) {
  return Record("all_gather", unit.size_bytes(), unit.dtype, stream,
                [&] { return inner_.AllGather(shard, unit, stream); });
}

absl::Status RecordingCommunicator::ReduceScatter(const Vector& unit, const Vector& shard,
                                                  Stream& stream) {
  return Record("reduce_scatter", unit.size_bytes(), unit.dtype, stream,
                [&] { return inner_.ReduceScatter(unit, shard, stream); });
}

absl::Status RecordingCommunicator::AllReduce(const Vector& data, Stream& stream) {
  return Record("all_reduce", data.size_bytes(), data.dtype, stream,
                [&] { return inner_.AllReduce(data, stream); });
}

absl::Status RecordingCommunicator::Broadcast(const Vector& data, int root, Stream& stream) {
  return Record("broadcast", data.size_bytes(), data.dtype, stream,
                [&] { return inner_.Broadcast(data, root, stream); });
}

absl::Status RecordingCommunicator::Barrier(Stream& stream) {
  return Record("barrier", 0, DType::kF32, stream, [&] { return inner_.Barrier(stream); });
}

}  // namespace fsdp
