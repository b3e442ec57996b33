#include "worker/comm/nccl/nccl_communicator.h"

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/comm/nccl/nccl_environment.h"
#include "worker/comm/nccl/nccl_status.h"
#include "worker/comm/operand_checks.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/cuda/unique_handle.h"

namespace fsdp {
namespace {

using SteadyClock = std::chrono::steady_clock;
using EventHandle = UniqueHandle<cudaEvent_t, cudaEventDestroy>;

constexpr auto kPollInterval = std::chrono::microseconds(50);
constexpr auto kWatchInterval = std::chrono::milliseconds(20);
// How long a healthy communicator waits for its peers when it ends.
constexpr auto kFinalizeTimeout = std::chrono::seconds(5);

struct Elements {
  ncclDataType_t type;
  std::size_t count;
};

// u16 is only moved, never summed: NCCL sees its bytes.
Elements ElementsOf(DType dtype, std::int64_t size) {
  const auto count = static_cast<std::size_t>(size);
  switch (dtype) {
    case DType::kF64:
      return {ncclFloat64, count};
    case DType::kF32:
      return {ncclFloat32, count};
    case DType::kBf16:
      return {ncclBfloat16, count};
    case DType::kI32:
      return {ncclInt32, count};
    case DType::kU16:
      break;
  }
  return {ncclUint8, count * sizeof(std::uint16_t)};
}

class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(const NcclOptions& options)
      : rank_(options.rank),
        world_size_(options.world_size),
        timeout_(absl::ToChronoNanoseconds(options.timeout)),
        registration_(options.registration) {}
  ~NcclCommunicator() override;

  absl::Status Connect(const std::string& unique_id, Device& device);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world_size() const override { return world_size_; }
  [[nodiscard]] std::string kind() const override { return "nccl"; }

  absl::Status AllGather(const Vector& shard, const Vector& unit, Stream& stream) override;
  absl::Status ReduceScatter(const Vector& unit, const Vector& shard, Stream& stream) override;
  absl::Status AllReduce(const Vector& data, Stream& stream) override;
  absl::Status Broadcast(const Vector& data, int root, Stream& stream) override;
  absl::Status Barrier(Stream& stream) override;
  [[nodiscard]] bool wants_registration() const override {
    return registration_ != BufferRegistration::kNone && world_size_ > 1;
  }
  absl::Status Register(const DeviceBuffer& buffer) override;
  void Deregister(const DeviceBuffer& buffer) override;
  void SetLabel(std::string_view label) override { label_ = label; }

  void Abort(const std::string& reason) override {
    static_cast<void>(Fail(absl::AbortedError(absl::StrCat("aborted: ", reason))));
  }
  [[nodiscard]] absl::Status Health() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return status_;
  }

 private:
  // A collective whose end the watching thread has not seen.
  struct Pending {
    std::string what;
    EventHandle reached;
    SteadyClock::time_point since;
  };

  // Of a buffer: one of the two, and null where NCCL has no use for it.
  struct Registered {
    void* local = nullptr;
    ncclWindow_t window = nullptr;
  };

  // Issues one collective and waits until NCCL has taken it.
  absl::Status Issue(const char* operation, Stream& stream,
                     const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& call);
  // Until NCCL has done what it was asked for; the mutex is free between looks.
  absl::Status Settle(ncclResult_t result, const std::string& what);
  absl::Status AddPending(std::string what, cudaStream_t stream);
  // Keeps the first error and gives the communicator up; returns what is kept.
  absl::Status Fail(const absl::Status& status);
  // With the mutex held.
  void GiveUp();
  void Watch();
  absl::Status LookAtError();
  absl::Status LookAtPending();

  const int rank_;
  const int world_size_;
  const std::chrono::nanoseconds timeout_;
  const BufferRegistration registration_;
  int ordinal_ = 0;
  std::string label_;                             // step thread
  std::unique_ptr<DeviceBuffer> token_;           // what Barrier sums
  std::map<const void*, Registered> registered_;  // by address; step thread

  mutable std::mutex mutex_;
  ncclComm_t comm_ = nullptr;        // guarded by mutex_; null once given up
  absl::Status status_;              // guarded by mutex_
  std::deque<Pending> pending_;      // guarded by mutex_
  std::vector<EventHandle> unused_;  // guarded by mutex_
  bool stopping_ = false;            // guarded by mutex_
  std::condition_variable stop_;
  std::thread watcher_;
};

absl::Status NcclCommunicator::Connect(const std::string& unique_id, Device& device) {
  FSDP_RETURN_IF_CUDA_ERROR(cudaGetDevice(&ordinal_));
  ASSIGN_OR_RETURN(token_, device.Allocate(sizeof(float)));
  ncclUniqueId id;
  std::memcpy(&id, unique_id.data(), sizeof(id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (registration_ == BufferRegistration::kWindowCopyEngine) {
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  }
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    result = ncclCommInitRankConfig(&comm_, world_size_, id, rank_, &config);
  }
  RETURN_IF_ERROR(Settle(result, "ncclCommInitRankConfig"));
  watcher_ = std::thread([this] { Watch(); });
  return absl::OkStatus();
}

NcclCommunicator::~NcclCommunicator() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (comm_ == nullptr) return;
  ncclResult_t result = status_.ok() ? ncclCommFinalize(comm_) : ncclInternalError;
  const auto until = SteadyClock::now() + kFinalizeTimeout;
  while (result == ncclInProgress && SteadyClock::now() < until) {
    std::this_thread::sleep_for(kPollInterval);
    if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess) result = ncclInternalError;
  }
  if (result == ncclSuccess) {
    static_cast<void>(ncclCommDestroy(comm_));
  } else {
    static_cast<void>(ncclCommAbort(comm_));
  }
}

absl::Status NcclCommunicator::Fail(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (status_.ok()) status_ = status;
  GiveUp();
  return status_;
}

void NcclCommunicator::GiveUp() {
  if (comm_ != nullptr) static_cast<void>(ncclCommAbort(std::exchange(comm_, nullptr)));
}

absl::Status NcclCommunicator::Settle(ncclResult_t result, const std::string& what) {
  const auto until = SteadyClock::now() + timeout_;
  while (result == ncclInProgress) {
    if (SteadyClock::now() > until) {
      return Fail(absl::DeadlineExceededError(
          absl::StrFormat("rank %d: %s: a peer did not join within %s", rank_, what,
                          absl::FormatDuration(absl::FromChrono(timeout_)))));
    }
    std::this_thread::sleep_for(kPollInterval);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (comm_ == nullptr) return status_;
    if (ncclResult_t asked = ncclCommGetAsyncError(comm_, &result); asked != ncclSuccess) {
      result = asked;
    }
  }
  if (result == ncclSuccess) return absl::OkStatus();
  absl::Status status;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    status = NcclToStatus(result, what, rank_, comm_);
  }
  return Fail(status);
}

absl::Status NcclCommunicator::Issue(
    const char* operation, Stream& stream,
    const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& call) {
  const cudaStream_t queue = CudaStreamOf(stream);
  const std::string what =
      label_.empty() ? std::string(operation) : absl::StrCat(operation, " ", label_);
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return status_;
    result = call(comm_, queue);
  }
  RETURN_IF_ERROR(Settle(result, what));
  return AddPending(what, queue);
}

absl::Status NcclCommunicator::AddPending(std::string what, cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Pending pending{std::move(what), {}, SteadyClock::now()};
  if (unused_.empty()) {
    FSDP_RETURN_IF_CUDA_ERROR(
        cudaEventCreateWithFlags(pending.reached.receive(), cudaEventDisableTiming));
  } else {
    pending.reached = std::move(unused_.back());
    unused_.pop_back();
  }
  FSDP_RETURN_IF_CUDA_ERROR(cudaEventRecord(pending.reached.get(), stream));
  pending_.push_back(std::move(pending));
  return absl::OkStatus();
}

absl::Status NcclCommunicator::LookAtError() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (comm_ == nullptr) return status_;
  ncclResult_t error = ncclSuccess;
  if (ncclResult_t asked = ncclCommGetAsyncError(comm_, &error); asked != ncclSuccess) {
    error = asked;
  }
  const std::string what = pending_.empty() ? "between collectives" : pending_.front().what;
  return NcclToStatus(error, what, rank_, comm_);
}

absl::Status NcclCommunicator::LookAtPending() {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!pending_.empty()) {
    Pending& oldest = pending_.front();
    const cudaError_t state = cudaEventQuery(oldest.reached.get());
    if (state == cudaErrorNotReady) break;
    if (state != cudaSuccess) return CudaToStatus(state, oldest.what);
    unused_.push_back(std::move(oldest.reached));
    pending_.pop_front();
    // What waits behind another collective has its full time from now.
    if (!pending_.empty()) pending_.front().since = SteadyClock::now();
  }
  if (pending_.empty() || SteadyClock::now() - pending_.front().since < timeout_) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrFormat("rank %d: %s: not finished after %s; a peer did not join", rank_,
                      pending_.front().what, absl::FormatDuration(absl::FromChrono(timeout_))));
}

void NcclCommunicator::Watch() {
  static_cast<void>(cudaSetDevice(ordinal_));
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_.wait_for(lock, kWatchInterval, [this] { return stopping_; })) {
    if (comm_ == nullptr) return;
    lock.unlock();
    absl::Status status = LookAtError();
    if (status.ok()) status = LookAtPending();
    if (!status.ok()) static_cast<void>(Fail(status));
    lock.lock();
  }
}

absl::Status NcclCommunicator::Register(const DeviceBuffer& buffer) {
  if (!wants_registration() || buffer.size_bytes() == 0) return Health();
  const bool local = registration_ == BufferRegistration::kLocal;
  // NCCL may write the window's handle later, while Settle waits: its place must stay.
  Registered& entry = registered_[buffer.data()];
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return status_;
    result = local ? ncclCommRegister(comm_, buffer.data(), buffer.size_bytes(), &entry.local)
                   : ncclCommWindowRegister(comm_, buffer.data(), buffer.size_bytes(),
                                            &entry.window, NCCL_WIN_COLL_SYMMETRIC);
  }
  // It says "success" while a thread of NCCL's still registers the window.
  if (result == ncclSuccess) result = ncclInProgress;
  return Settle(result, local ? "ncclCommRegister" : "ncclCommWindowRegister");
}

void NcclCommunicator::Deregister(const DeviceBuffer& buffer) {
  const auto found = registered_.find(buffer.data());
  if (found == registered_.end()) return;
  const Registered entry = found->second;
  registered_.erase(found);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (comm_ == nullptr) return;
  if (entry.local != nullptr) static_cast<void>(ncclCommDeregister(comm_, entry.local));
  if (entry.window != nullptr) static_cast<void>(ncclCommWindowDeregister(comm_, entry.window));
}

absl::Status NcclCommunicator::AllGather(const Vector& shard, const Vector& unit, Stream& stream) {
  RETURN_IF_ERROR(CheckShardAndUnit("all_gather", shard, unit, world_size_));
  if (shard.size == 0) return Health();
  const Elements elements = ElementsOf(shard.dtype, shard.size);
  return Issue("all_gather", stream, [&](ncclComm_t comm, cudaStream_t queue) {
    return ncclAllGather(shard.data, unit.data, elements.count, elements.type, comm, queue);
  });
}

absl::Status NcclCommunicator::ReduceScatter(const Vector& unit, const Vector& shard,
                                             Stream& stream) {
  RETURN_IF_ERROR(CheckShardAndUnit("reduce_scatter", shard, unit, world_size_));
  RETURN_IF_ERROR(CheckSummable("reduce_scatter", unit.dtype));
  if (shard.size == 0) return Health();
  const Elements elements = ElementsOf(shard.dtype, shard.size);
  return Issue("reduce_scatter", stream, [&](ncclComm_t comm, cudaStream_t queue) {
    return ncclReduceScatter(unit.data, shard.data, elements.count, elements.type, ncclSum, comm,
                             queue);
  });
}

absl::Status NcclCommunicator::AllReduce(const Vector& data, Stream& stream) {
  RETURN_IF_ERROR(CheckMemory("all_reduce", data));
  RETURN_IF_ERROR(CheckSummable("all_reduce", data.dtype));
  if (data.size == 0) return Health();
  const Elements elements = ElementsOf(data.dtype, data.size);
  return Issue("all_reduce", stream, [&](ncclComm_t comm, cudaStream_t queue) {
    return ncclAllReduce(data.data, data.data, elements.count, elements.type, ncclSum, comm, queue);
  });
}

absl::Status NcclCommunicator::Broadcast(const Vector& data, int root, Stream& stream) {
  RETURN_IF_ERROR(CheckMemory("broadcast", data));
  RETURN_IF_ERROR(CheckRoot("broadcast", root, world_size_));
  if (data.size == 0) return Health();
  const Elements elements = ElementsOf(data.dtype, data.size);
  return Issue("broadcast", stream, [&](ncclComm_t comm, cudaStream_t queue) {
    return ncclBroadcast(data.data, data.data, elements.count, elements.type, root, comm, queue);
  });
}

absl::Status NcclCommunicator::Barrier(Stream& stream) {
  return Issue("barrier", stream, [&](ncclComm_t comm, cudaStream_t queue) {
    return ncclAllReduce(token_->data(), token_->data(), 1, ncclFloat32, ncclSum, comm, queue);
  });
}

}  // namespace

static_assert(kNcclIdBytes == sizeof(ncclUniqueId));

absl::StatusOr<std::string> MakeNcclId() {
  PrepareNccl();
  ncclUniqueId id;
  RETURN_IF_ERROR(NcclToStatus(ncclGetUniqueId(&id), "ncclGetUniqueId", 0));
  return std::string(reinterpret_cast<const char*>(&id), sizeof(id));
}

absl::StatusOr<std::unique_ptr<Communicator>> CreateNcclCommunicator(const NcclOptions& options,
                                                                     Device& device) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("nccl: rank %d is not one of %d", options.rank, options.world_size));
  }
  if (options.unique_id.size() != kNcclIdBytes) {
    return absl::InvalidArgumentError(absl::StrFormat("nccl: an id has %d bytes, this one %d",
                                                      kNcclIdBytes, options.unique_id.size()));
  }
  if (device.kind() != DeviceKind::kCuda) {
    return absl::InvalidArgumentError("nccl: needs a CUDA device");
  }
  PrepareNccl();
  auto communicator = std::make_unique<NcclCommunicator>(options);
  RETURN_IF_ERROR(communicator->Connect(options.unique_id, device));
  return communicator;
}

}  // namespace fsdp
