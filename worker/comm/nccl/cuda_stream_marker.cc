#include "worker/comm/nccl/cuda_stream_marker.h"

#include <functional>
#include <memory>
#include <utility>

#include "worker/device/cuda/cuda_device.h"
#include "worker/device/cuda/cuda_status.h"

namespace fsdp {
namespace {

using Mark = std::function<void(const absl::Status&)>;

void RunMark(void* data) {
  const std::unique_ptr<Mark> mark(static_cast<Mark*>(data));
  (*mark)(absl::OkStatus());
}

}  // namespace

StreamMarker CudaStreamMarker() {
  return [](Stream& stream, Mark mark) -> absl::Status {
    auto owned = std::make_unique<Mark>(std::move(mark));
    FSDP_RETURN_IF_CUDA_ERROR(cudaLaunchHostFunc(CudaStreamOf(stream), RunMark, owned.get()));
    static_cast<void>(owned.release());  // RunMark's now
    return absl::OkStatus();
  };
}

}  // namespace fsdp
