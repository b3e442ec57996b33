// nccl-test [memory] [WORLD...]: every collective of the NCCL communicator against sums formed on
// the host, the errors of its contract, and what survivors see when a rank dies. Ranks are
// processes; more ranks than devices share them. Prints a line per check; exits with 1 when one
// failed. memory: instead, what NCCL takes of rank 0's device, call by call (plan.cc holds the
// formula that it calibrates; NCCL's own environment, NCCL_MAX_CTAS or NCCL_BUFFSIZE, shows what
// would save some). Needs a device for each rank.
//
// Not part of cuda-ops-test: ranks on one device must be processes (NCCL tells hosts apart by
// process), which a GoogleTest suite with threads cannot give it.

#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "proto/support/status.h"
#include "worker/comm/nccl/nccl_communicator.h"
#include "worker/comm/nccl/nccl_environment.h"
#include "worker/comm/nccl/nccl_memory.h"
#include "worker/comm/rendezvous_store.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/plan/plan.h"

namespace fsdp {
namespace {

constexpr std::int64_t kOddShard = 4099;  // divides by nothing
// Slices that begin at 16 bytes in every dtype. Between devices that reach into each other's
// memory, NCCL 2.28.9 sums windows by kernels that never end when bf16 slices do not, and that no
// abort ends.
constexpr std::int64_t kWindowShard = 4112;

// What a rank contributes: small whole numbers, so that sums are exact in every dtype.
int ValueOf(int rank, std::int64_t i) { return static_cast<int>((i * 7 + rank * 3) % 17) - 8; }

void Store(DType dtype, int value, std::byte* to) {
  const double wide = value;
  const auto narrow = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &narrow, 4);
  const std::uint16_t high = static_cast<std::uint16_t>(bits >> 16);
  switch (dtype) {
    case DType::kF64:
      std::memcpy(to, &wide, 8);
      return;
    case DType::kF32:
      std::memcpy(to, &narrow, 4);
      return;
    case DType::kI32:
      std::memcpy(to, &value, 4);
      return;
    case DType::kBf16:
    case DType::kU16:
      std::memcpy(to, &high, 2);
      return;
  }
}

std::vector<std::byte> Bytes(DType dtype, std::int64_t size,
                             const std::function<int(std::int64_t)>& value) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(size) * SizeOf(dtype));
  for (std::int64_t i = 0; i < size; ++i) {
    Store(dtype, value(i), bytes.data() + static_cast<std::size_t>(i) * SizeOf(dtype));
  }
  return bytes;
}

// Longer than the first collective of a communicator takes.
constexpr absl::Duration kCollectiveTimeout = absl::Seconds(20);

absl::StatusOr<std::unique_ptr<Communicator>> ConnectRank(int rank, int world,
                                                          const std::string& name,
                                                          BufferRegistration registration,
                                                          RendezvousStore& store, Device& device) {
  NcclOptions options;
  options.rank = rank;
  options.world_size = world;
  options.timeout = kCollectiveTimeout;
  options.registration = registration;
  if (rank == 0) {
    ASSIGN_OR_RETURN(const std::string id, MakeNcclId());
    RETURN_IF_ERROR(store.Put(name, id));
  }
  ASSIGN_OR_RETURN(options.unique_id, store.Get(name, absl::Seconds(60)));
  return CreateNcclCommunicator(options, device);
}

class RankTest {
 public:
  RankTest(int rank, int world, const std::string& directory)
      : rank_(rank), world_(world), store_(CreateDirectoryStore(directory)) {}

  absl::Status Run() {
    PrepareLocalNccl();
    int devices = 0;
    FSDP_RETURN_IF_CUDA_ERROR(cudaGetDeviceCount(&devices));
    if (devices < 1) return absl::FailedPreconditionError("no CUDA device");
    if (devices < world_) PrepareSharedDevice(rank_);
    ASSIGN_OR_RETURN(device_,
                     CreateCudaDevice({.ordinal = rank_ % devices, .shareable = NcclMemory()}));
    const std::size_t bytes = static_cast<std::size_t>(kWindowShard * world_) * sizeof(double);
    ASSIGN_OR_RETURN(shard_, device_->AllocateShareable(bytes));
    ASSIGN_OR_RETURN(unit_, device_->AllocateShareable(bytes));
    // Without effect where ranks share a device: NCCL sees a host for each.
    for (const auto registration :
         {BufferRegistration::kNone, BufferRegistration::kLocal, BufferRegistration::kWindow,
          BufferRegistration::kWindowCopyEngine}) {
      const absl::Time begin = absl::Now();
      RETURN_IF_ERROR(
          Annotate(Collectives(registration), absl::StrCat("registration ", NameOf(registration))));
      Say(absl::StrFormat("registration %s: %.2f s", NameOf(registration),
                          absl::ToDoubleSeconds(absl::Now() - begin)));
    }
    RETURN_IF_ERROR(Refusals());
    return Death();
  }

 private:
  absl::Status Collectives(BufferRegistration registration) {
    const std::string name = NameOf(registration);
    const bool window = registration == BufferRegistration::kWindow ||
                        registration == BufferRegistration::kWindowCopyEngine;
    shard_size_ = window ? kWindowShard : kOddShard;
    ASSIGN_OR_RETURN(comm_, Connect(absl::StrCat("first-", name), registration));
    ASSIGN_OR_RETURN(second_, Connect(absl::StrCat("second-", name), registration));
    for (Communicator* comm : {comm_.get(), second_.get()}) {
      RETURN_IF_ERROR(comm->Register(*shard_));
      RETURN_IF_ERROR(comm->Register(*unit_));
    }
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kBf16, DType::kI32, DType::kU16}) {
      RETURN_IF_ERROR(Moves(dtype));
      if (dtype != DType::kU16) RETURN_IF_ERROR(Sums(dtype));
    }
    RETURN_IF_ERROR(TwoAtOnce());
    for (Communicator* comm : {comm_.get(), second_.get()}) {
      comm->Deregister(*shard_);
      comm->Deregister(*unit_);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const std::string& name,
                                                        BufferRegistration registration) {
    return ConnectRank(rank_, world_, name, registration, *store_, *device_);
  }

  Vector On(const DeviceBuffer& buffer, DType dtype, std::int64_t size) const {
    return {buffer.data(), dtype, size};
  }
  absl::Status Put(const DeviceBuffer& to, const std::vector<std::byte>& bytes) {
    RETURN_IF_ERROR(device_->Copy(to.data(), bytes.data(), bytes.size(), device_->gather()));
    return device_->Synchronize(device_->gather());
  }
  absl::Status Expect(const char* what, DType dtype, const DeviceBuffer& from,
                      const std::vector<std::byte>& expected) {
    std::vector<std::byte> got(expected.size());
    RETURN_IF_ERROR(device_->Copy(got.data(), from.data(), got.size(), device_->gather()));
    RETURN_IF_ERROR(device_->Synchronize(device_->gather()));
    RETURN_IF_ERROR(comm_->Health());
    if (got == expected) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(what, " ", NameOf(dtype), ": wrong bytes"));
  }
  int Sum(std::int64_t i) const {
    int sum = 0;
    for (int rank = 0; rank < world_; ++rank) sum += ValueOf(rank, i);
    return sum;
  }

  absl::Status Moves(DType dtype) {
    Stream& stream = device_->gather();
    const auto mine = [this](std::int64_t i) { return ValueOf(rank_, i); };
    RETURN_IF_ERROR(Put(*shard_, Bytes(dtype, shard_size_, mine)));
    RETURN_IF_ERROR(comm_->AllGather(On(*shard_, dtype, shard_size_),
                                     On(*unit_, dtype, shard_size_ * world_), stream));
    RETURN_IF_ERROR(Expect("all_gather", dtype, *unit_,
                           Bytes(dtype, shard_size_ * world_, [this](std::int64_t i) {
                             return ValueOf(static_cast<int>(i / shard_size_), i % shard_size_);
                           })));
    const int root = world_ - 1;
    RETURN_IF_ERROR(comm_->Broadcast(On(*shard_, dtype, shard_size_), root, stream));
    return Expect("broadcast", dtype, *shard_,
                  Bytes(dtype, shard_size_, [root](std::int64_t i) { return ValueOf(root, i); }));
  }

  absl::Status Sums(DType dtype) {
    Stream& stream = device_->gather();
    const auto mine = [this](std::int64_t i) { return ValueOf(rank_, i); };
    RETURN_IF_ERROR(Put(*unit_, Bytes(dtype, shard_size_ * world_, mine)));
    RETURN_IF_ERROR(comm_->ReduceScatter(On(*unit_, dtype, shard_size_ * world_),
                                         On(*shard_, dtype, shard_size_), stream));
    RETURN_IF_ERROR(Expect("reduce_scatter", dtype, *shard_,
                           Bytes(dtype, shard_size_,
                                 [this](std::int64_t i) { return Sum(i + rank_ * shard_size_); })));
    RETURN_IF_ERROR(Put(*shard_, Bytes(dtype, shard_size_, mine)));
    RETURN_IF_ERROR(comm_->AllReduce(On(*shard_, dtype, shard_size_), stream));
    return Expect("all_reduce", dtype, *shard_,
                  Bytes(dtype, shard_size_, [this](std::int64_t i) { return Sum(i); }));
  }

  // Collectives of two communicators in two streams, issued in one order.
  absl::Status TwoAtOnce() {
    for (int i = 0; i < 8; ++i) {
      RETURN_IF_ERROR(comm_->Barrier(device_->gather()));
      RETURN_IF_ERROR(
          second_->AllReduce(On(*shard_, DType::kF32, shard_size_), device_->scatter()));
    }
    RETURN_IF_ERROR(device_->Synchronize(device_->gather()));
    RETURN_IF_ERROR(device_->Synchronize(device_->scatter()));
    RETURN_IF_ERROR(comm_->Health());
    return second_->Health();
  }

  absl::Status Refusals() {
    Stream& stream = device_->gather();
    const absl::Status shapes = comm_->AllGather(On(*shard_, DType::kF32, shard_size_),
                                                 On(*unit_, DType::kF32, shard_size_), stream);
    const absl::Status dtype = comm_->AllReduce(On(*shard_, DType::kU16, shard_size_), stream);
    const absl::Status root =
        comm_->Broadcast(On(*shard_, DType::kF32, shard_size_), world_, stream);
    for (const absl::Status& status : {shapes, dtype, root}) {
      if (world_ > 1 && !absl::IsInvalidArgument(status)) {
        return absl::InternalError(absl::StrCat("not refused: ", status.ToString()));
      }
    }
    return comm_->Health();
  }

  void Say(const std::string& text) const {
    if (rank_ != 0) return;
    std::printf("  %s\n", text.c_str());
    std::fflush(stdout);
  }

  // The last rank leaves without a word: the others' pending collective ends with an error, and
  // stays one. Over sockets its end is seen at once; between devices of one host that reach into
  // each other's memory only the timeout tells. An abort is seen by every later call.
  absl::Status Death() {
    if (world_ == 1) return absl::OkStatus();
    if (rank_ == world_ - 1) _exit(0);
    const absl::Time begin = absl::Now();
    absl::Status status;
    while (status.ok() && absl::Now() - begin < 2 * kCollectiveTimeout) {
      status = comm_->AllReduce(On(*shard_, DType::kF32, shard_size_), device_->gather());
      status.Update(device_->Synchronize(device_->gather()));
      status.Update(comm_->Health());
    }
    if (!absl::IsUnavailable(status) && !absl::IsAborted(status) &&
        !absl::IsDeadlineExceeded(status)) {
      return absl::InternalError(absl::StrCat("a dead peer gave ", status.ToString()));
    }
    Say(absl::StrFormat("a peer that left was noticed after %.2f s: %s",
                        absl::ToDoubleSeconds(absl::Now() - begin), status.message()));
    second_->Abort("the test");
    if (!absl::IsAborted(second_->Barrier(device_->gather()))) {
      return absl::InternalError("a collective after Abort was not ABORTED");
    }
    return absl::OkStatus();
  }

  const int rank_;
  const int world_;
  std::int64_t shard_size_ = kOddShard;
  std::unique_ptr<RendezvousStore> store_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceBuffer> shard_, unit_;
  std::unique_ptr<Communicator> comm_, second_;
};

// What NCCL takes of a device of its own as it is used, in the order in which a trainer does.
class RankMemory {
 public:
  RankMemory(int rank, int world, const std::string& directory)
      : rank_(rank), world_(world), store_(CreateDirectoryStore(directory)) {}

  absl::Status Run() {
    PrepareLocalNccl();
    int devices = 0;
    FSDP_RETURN_IF_CUDA_ERROR(cudaGetDeviceCount(&devices));
    if (devices < world_) {
      return absl::FailedPreconditionError(absl::StrCat(
          "memory needs a device for each of ", world_, " ranks, this machine has ", devices));
    }
    ASSIGN_OR_RETURN(device_, CreateCudaDevice({.ordinal = rank_}));
    ASSIGN_OR_RETURN(buffer_, device_->Allocate(kBytes));
    RETURN_IF_ERROR(Note(nullptr));
    for (int i = 0; i < 2; ++i) {
      const std::string name = absl::StrCat("communicator-", i + 1);
      ASSIGN_OR_RETURN(comms_[i], ConnectRank(rank_, world_, name, BufferRegistration::kNone,
                                              *store_, *device_));
      RETURN_IF_ERROR(Note(absl::StrCat(name, ": connected").c_str()));
      RETURN_IF_ERROR(Use(*comms_[i], name));
    }
    if (rank_ == 0) {
      std::printf("  planned: %.1f MiB with one communicator, %.1f with two\n",
                  MiB(NcclBytes(world_, 1)), MiB(NcclBytes(world_, 2)));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{64} << 20;
  static double MiB(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

  absl::Status Use(Communicator& comm, const std::string& name) {
    const std::int64_t size = kBytes / sizeof(float) / 2 / world_;
    auto* floats = static_cast<float*>(buffer_->data());
    const Vector shard{floats, DType::kF32, size};
    const Vector unit{floats + kBytes / sizeof(float) / 2, DType::kF32, size * world_};
    Stream& stream = device_->gather();
    RETURN_IF_ERROR(comm.AllGather(shard, unit, stream));
    RETURN_IF_ERROR(Note(absl::StrCat(name, ": all_gather").c_str()));
    RETURN_IF_ERROR(comm.ReduceScatter(unit, shard, stream));
    RETURN_IF_ERROR(Note(absl::StrCat(name, ": reduce_scatter").c_str()));
    RETURN_IF_ERROR(comm.AllReduce({floats, DType::kF32, 8}, stream));
    return Note(absl::StrCat(name, ": all_reduce of 32 bytes").c_str());
  }

  // Null: what there is before NCCL's first call.
  absl::Status Note(const char* what) {
    FSDP_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
    std::size_t free = 0;
    std::size_t total = 0;
    FSDP_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free, &total));
    if (what == nullptr) before_ = last_ = free;
    const auto taken = [free](std::size_t since) {
      return MiB(static_cast<std::int64_t>(since) - static_cast<std::int64_t>(free));
    };
    if (rank_ == 0 && what == nullptr) {
      std::printf("  %-42s %12s %12s\n", "after", "MiB by it", "MiB in all");
    } else if (rank_ == 0) {
      std::printf("  %-42s %12.1f %12.1f\n", what, taken(last_), taken(before_));
    }
    last_ = free;
    return absl::OkStatus();
  }

  const int rank_;
  const int world_;
  std::unique_ptr<RendezvousStore> store_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceBuffer> buffer_;
  std::unique_ptr<Communicator> comms_[2];
  std::size_t before_ = 0, last_ = 0;
};

// RankTest or RankMemory in a process for each rank.
template <typename Rank>
int RunWorld(const char* what, int world) {
  std::string directory = (std::filesystem::temp_directory_path() / "nccl-test-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) return 1;
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (int rank = 0; rank < world; ++rank) {
    const pid_t child = fork();
    if (child > 0) children.push_back(child);
    if (child != 0) continue;
    absl::Status status;
    {
      Rank test(rank, world, directory);
      status = test.Run();
    }
    if (!status.ok()) std::printf("  rank %d: %s\n", rank, status.ToString().c_str());
    std::fflush(nullptr);
    _exit(status.ok() ? 0 : 1);
  }
  bool passed = true;
  for (const pid_t child : children) {
    int state = 0;
    waitpid(child, &state, 0);
    passed = passed && WIFEXITED(state) && WEXITSTATUS(state) == 0;
  }
  std::filesystem::remove_all(directory);
  std::printf("%s, world %d: %s\n", what, world, passed ? "passed" : "FAILED");
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool memory = !arguments.empty() && arguments[0] == "memory";
  if (memory) arguments.erase(arguments.begin());
  if (arguments.empty()) arguments = {"2"};
  int failed = 0;
  for (const std::string& argument : arguments) {
    const int world = std::atoi(argument.c_str());
    failed |= memory ? fsdp::RunWorld<fsdp::RankMemory>("nccl's memory", world)
                     : fsdp::RunWorld<fsdp::RankTest>("nccl", world);
  }
  return failed;
}
