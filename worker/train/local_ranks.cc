#include "worker/train/local_ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/comm/in_process.h"

namespace fsdp {
namespace {

using Body = std::function<absl::Status(LocalRank&)>;

struct Communicators {
  std::unique_ptr<Communicator> gather;
  std::unique_ptr<Communicator> scatter;  // null: gather serves both
};

absl::Status RunRank(int rank, const LocalRanksOptions& options, const LocalBackend& backend,
                     Communicators& communicators, Device& device, const Body& body) {
  LocalRank local{
      rank, device, communicators.gather.get(),
      options.num_communicators == 1 ? communicators.gather.get() : communicators.scatter.get()};
  static_cast<void>(backend);
  absl::Status status = body(local);
  if (status.ok()) return status;
  // Peers must not wait for a rank that is gone.
  for (Communicator* communicator : {communicators.gather.get(), communicators.scatter.get()}) {
    if (communicator != nullptr) communicator->Abort("a rank failed");
  }
  return status;
}

absl::Status RunThreads(const LocalRanksOptions& options, const LocalBackend& backend,
                        const Body& body) {
  const int world = options.world_size;
  ASSIGN_OR_RETURN(auto gathers, CreateInProcessGroup(world));
  ASSIGN_OR_RETURN(auto scatters, CreateInProcessGroup(world));
  std::mutex mutex;
  absl::Status first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    Communicators communicators{std::move(gathers[at]), std::move(scatters[at])};
    threads.emplace_back([&, rank, mine = std::move(communicators)]() mutable {
      const absl::Status status = [&]() -> absl::Status {
        ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                         backend.create_device(rank, world, options.deterministic));
        const absl::Status result = RunRank(rank, options, backend, mine, *device, body);
        // Streams are empty before communicators and device go.
        for (Stream* stream : {&device->gather(), &device->scatter()}) {
          device->Synchronize(*stream).IgnoreError();
        }
        return result;
      }();
      const std::lock_guard<std::mutex> lock(mutex);
      // A peer's death is a consequence: the cause wins.
      const bool consequence = status.code() == absl::StatusCode::kUnavailable ||
                               status.code() == absl::StatusCode::kAborted;
      if (!status.ok() && (first.ok() || !consequence)) {
        first = Annotate(status, absl::StrCat("rank ", rank));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return first;
}

absl::StatusOr<Communicators> Connect(int rank, const LocalRanksOptions& options,
                                      const LocalBackend& backend, Device& device,
                                      RendezvousStore& store) {
  const LocalBackend::CreateCommunicator& create =
      options.communicator == CommunicatorKind::kNccl ? backend.create_nccl : backend.create_gloo;
  const auto connect = [&](const std::string& name) {
    return create(name, rank, options, device, store);
  };
  Communicators communicators;
  ASSIGN_OR_RETURN(communicators.gather, connect("gather"));
  if (options.num_communicators > 1) {
    ASSIGN_OR_RETURN(communicators.scatter, connect("scatter"));
  }
  return communicators;
}

absl::Status RunProcessRank(int rank, const LocalRanksOptions& options, const LocalBackend& backend,
                            const std::string& directory, const Body& body) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                   backend.create_device(rank, options.world_size, options.deterministic));
  const std::unique_ptr<RendezvousStore> store = CreateDirectoryStore(directory);
  ASSIGN_OR_RETURN(Communicators communicators, Connect(rank, options, backend, *device, *store));
  absl::Status status = RunRank(rank, options, backend, communicators, *device, body);
  for (Stream* stream : {&device->gather(), &device->scatter()}) {
    device->Synchronize(*stream).IgnoreError();
  }
  return status;
}

// Waits for every child; the first that failed.
absl::Status WaitFor(const std::vector<pid_t>& children) {
  absl::Status first;
  for (std::size_t i = 0; i < children.size(); ++i) {
    int state = 0;
    while (waitpid(children[i], &state, 0) < 0 && errno == EINTR) {
    }
    if (!first.ok() || (WIFEXITED(state) && WEXITSTATUS(state) == 0)) continue;
    first = absl::InternalError(
        WIFSIGNALED(state) ? absl::StrCat("rank ", i + 1, " was ended by signal ", WTERMSIG(state))
                           : absl::StrCat("rank ", i + 1, " failed; its own message is above"));
  }
  return first;
}

absl::Status RunProcesses(const LocalRanksOptions& options, const LocalBackend& backend,
                          const Body& body) {
  std::string pattern = (std::filesystem::temp_directory_path() / "fsdp-ranks-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) return ErrnoToStatus(errno, "mkdtemp(" + pattern + ")");
  std::vector<pid_t> children;
  const pid_t parent = getpid();
  absl::Status status;
  std::fflush(nullptr);
  for (int rank = 1; rank < options.world_size && status.ok(); ++rank) {
    const pid_t child = fork();
    if (child < 0) status = ErrnoToStatus(errno, "fork()");
    if (child > 0) children.push_back(child);
    if (child != 0) continue;
    // The child ends with this process, and never returns into the caller's code.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const absl::Status mine = RunProcessRank(rank, options, backend, pattern, body);
    if (!mine.ok()) LOG_ERROR("rank %d: %s", rank, std::string(mine.message()));
    std::fflush(nullptr);
    _exit(mine.ok() ? 0 : 1);
  }
  if (status.ok()) {
    status = Annotate(RunProcessRank(0, options, backend, pattern, body), "rank 0");
  } else {
    for (const pid_t child : children) kill(child, SIGKILL);
  }
  const absl::Status others = WaitFor(children);
  std::error_code ignored;
  std::filesystem::remove_all(pattern, ignored);
  if (status.ok()) return others;
  return status;
}

}  // namespace

absl::StatusOr<CommunicatorKind> ParseCommunicatorKind(const std::string& name) {
  if (name == "gloo") return CommunicatorKind::kGloo;
  if (name == "in_process") return CommunicatorKind::kInProcess;
  if (name == "nccl") return CommunicatorKind::kNccl;
  return absl::InvalidArgumentError(
      absl::StrCat("communicator \"", name, "\" is none of gloo, in_process, nccl"));
}

const char* DefaultCommunicator(const LocalBackend& backend) {
  const bool only_nccl = backend.create_gloo == nullptr && backend.create_nccl != nullptr;
  return only_nccl ? "nccl" : "gloo";
}

absl::Status CheckCommunicator(CommunicatorKind kind, int world_size, const LocalBackend& backend) {
  const bool nccl = kind == CommunicatorKind::kNccl;
  if (nccl && backend.create_nccl == nullptr) {
    return absl::InvalidArgumentError(
        "communicator nccl needs --device cuda and a build with CUDA: use gloo or in_process");
  }
  if (!nccl && world_size > 1 && backend.create_gloo == nullptr) {
    return absl::InvalidArgumentError(
        "communicators gloo and in_process need --device cpu: use nccl");
  }
  return absl::OkStatus();
}

absl::Status RunLocalRanks(const LocalRanksOptions& options, const LocalBackend& backend,
                           const Body& body) {
  if (options.world_size < 1 || options.world_size > 256) {
    return absl::InvalidArgumentError(
        absl::StrCat("local ranks: ", options.world_size, " is outside 1..256"));
  }
  RETURN_IF_ERROR(CheckCommunicator(options.communicator, options.world_size, backend));
  if (options.world_size == 1) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                     backend.create_device(0, 1, options.deterministic));
    LocalRank local{0, *device, nullptr, nullptr};
    return body(local);
  }
  if (options.communicator == CommunicatorKind::kInProcess) {
    return RunThreads(options, backend, body);
  }
  return RunProcesses(options, backend, body);
}

}  // namespace fsdp
