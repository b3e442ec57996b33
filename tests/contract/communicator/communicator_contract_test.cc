// One suite over every host communicator: in_process threads, gloo threads, gloo processes.
//
// Expectations are closed forms. Values are small multiples of 1/4, so that sums over up to 11
// ranks are exact in every dtype (bf16 has 8 bits) and equality is exact.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/faulty_communicator.h"
#include "worker/comm/gloo_communicator.h"
#include "worker/comm/in_process.h"
#include "worker/comm/rendezvous_store.h"
#include "worker/device/cpu/cpu_stream.h"

namespace fsdp {
namespace {

enum class Kind { kInProcess, kGlooThreads, kGlooProcesses };

// What one rank does; returns an empty string, or what went wrong.
using RankBody = std::function<std::string(Communicator&)>;

class TempDir {
 public:
  TempDir() {
    std::string pattern = std::filesystem::temp_directory_path() / "fsdp-comm-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

GlooOptions Options(int rank, int world_size) {
  GlooOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.timeout = absl::Seconds(20);
  options.segment_bytes = 256;  // several segments even for small vectors
  return options;
}

std::string RunGlooRank(const std::string& directory, int rank, int world_size,
                        const RankBody& body) {
  const std::unique_ptr<RendezvousStore> store = CreateDirectoryStore(directory);
  auto communicator = CreateGlooCommunicator(Options(rank, world_size), *store);
  if (!communicator.ok()) return communicator.status().ToString();
  return body(**communicator);
}

std::vector<std::string> RunThreads(int world_size, const std::function<std::string(int)>& rank) {
  std::vector<std::string> problems(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int r = 0; r < world_size; ++r) {
    threads.emplace_back([&, r] { problems[static_cast<std::size_t>(r)] = rank(r); });
  }
  for (std::thread& thread : threads) thread.join();
  return problems;
}

// Problems come back as text over a pipe.
std::vector<std::string> RunProcesses(int world_size, const std::function<std::string(int)>& rank) {
  std::vector<pid_t> children;
  std::vector<int> ends;
  for (int r = 0; r < world_size; ++r) {
    int ends_of_pipe[2];
    if (::pipe(ends_of_pipe) != 0) std::abort();
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ends_of_pipe[0]);
      const std::string problem = rank(r);
      static_cast<void>(!::write(ends_of_pipe[1], problem.data(), problem.size()));
      ::_exit(0);
    }
    ::close(ends_of_pipe[1]);
    children.push_back(child);
    ends.push_back(ends_of_pipe[0]);
  }
  std::vector<std::string> problems;
  for (std::size_t r = 0; r < children.size(); ++r) {
    std::string text;
    char buffer[512];
    for (ssize_t got; (got = ::read(ends[r], buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<std::size_t>(got));
    }
    ::close(ends[r]);
    int state = 0;
    ::waitpid(children[r], &state, 0);
    if (state != 0 && text.empty()) text = absl::StrCat("wait status ", state);
    problems.push_back(text);
  }
  return problems;
}

std::vector<std::string> RunRanks(Kind kind, int world_size, const RankBody& body) {
  if (kind == Kind::kInProcess) {
    auto group = CreateInProcessGroup(world_size).value();
    return RunThreads(world_size, [&](int rank) {
      const std::unique_ptr<Communicator> mine = std::move(group[static_cast<std::size_t>(rank)]);
      return body(*mine);
    });
  }
  const TempDir directory;
  const auto rank = [&](int r) { return RunGlooRank(directory.path(), r, world_size, body); };
  return kind == Kind::kGlooThreads ? RunThreads(world_size, rank) : RunProcesses(world_size, rank);
}

double Get(const Vector& vector, std::int64_t i) {
  switch (vector.dtype) {
    case DType::kF64:
      return static_cast<const double*>(vector.data)[i];
    case DType::kF32:
      return static_cast<const float*>(vector.data)[i];
    case DType::kBf16:
      return std::bit_cast<float>(
          static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(vector.data)[i]) << 16);
    default:
      std::abort();
  }
}

void Set(const Vector& vector, std::int64_t i, double value) {
  switch (vector.dtype) {
    case DType::kF64:
      static_cast<double*>(vector.data)[i] = value;
      break;
    case DType::kF32:
      static_cast<float*>(vector.data)[i] = static_cast<float>(value);
      break;
    case DType::kBf16:
      static_cast<std::uint16_t*>(vector.data)[i] =
          static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
      break;
    default:
      std::abort();
  }
}

// Owns a vector's memory.
class Memory {
 public:
  Memory(DType dtype, std::int64_t size)
      : bytes_(static_cast<std::size_t>(size) * SizeOf(dtype) + 8),
        vector_{bytes_.data(), dtype, size} {}
  [[nodiscard]] const Vector& get() const { return vector_; }

 private:
  std::vector<std::byte> bytes_;
  Vector vector_;
};

// Element i of rank r: a multiple of 1/4 below 4, so 7 of them sum to less than 28 exactly.
double ValueAt(int rank, std::int64_t i) {
  return static_cast<double>((i * 7 + rank * 5) % 13) / 4.0 - 1.0;
}
double SumAt(int world_size, std::int64_t i) {
  double sum = 0;
  for (int r = 0; r < world_size; ++r) sum += ValueAt(r, i);
  return sum;
}

std::string CheckEqual(const char* what, const Vector& vector,
                       const std::function<double(std::int64_t)>& expected) {
  for (std::int64_t i = 0; i < vector.size; ++i) {
    if (Get(vector, i) != expected(i)) {
      return absl::StrCat(what, " ", NameOf(vector.dtype), "[", i, "] of ", vector.size, " is ",
                          Get(vector, i), ", not ", expected(i));
    }
  }
  return "";
}

std::string AllCollectives(Communicator& comm, DType dtype, std::int64_t size) {
  CpuStream stream("test", CpuStream::Mode::kThread);
  const int world = comm.world_size();
  const int rank = comm.rank();
  Memory shard(dtype, size);
  Memory unit(dtype, size * world);
  Memory sum(dtype, size);
  Memory all(dtype, size * world);
  Memory cast(dtype, size);
  for (std::int64_t i = 0; i < size; ++i) Set(shard.get(), i, ValueAt(rank, i));
  for (std::int64_t i = 0; i < size * world; ++i) Set(all.get(), i, ValueAt(rank, i));
  for (std::int64_t i = 0; i < size; ++i) Set(cast.get(), i, ValueAt(rank, i));
  const int root = world - 1;

  absl::Status status = comm.AllGather(shard.get(), unit.get(), stream);
  status.Update(stream.Synchronize());
  if (!status.ok()) return status.ToString();
  std::string problem = CheckEqual("all_gather", unit.get(), [&](std::int64_t i) {
    return ValueAt(static_cast<int>(i / size), i % size);
  });
  for (std::int64_t i = 0; i < size * world; ++i) Set(unit.get(), i, ValueAt(rank, i));
  status.Update(comm.ReduceScatter(unit.get(), sum.get(), stream));
  status.Update(comm.AllReduce(all.get(), stream));
  status.Update(comm.Broadcast(cast.get(), root, stream));
  status.Update(comm.Barrier(stream));
  status.Update(stream.Synchronize());
  if (!status.ok()) return status.ToString();
  if (problem.empty()) {
    problem = CheckEqual("reduce_scatter", sum.get(),
                         [&](std::int64_t i) { return SumAt(world, rank * size + i); });
  }
  if (problem.empty()) {
    problem = CheckEqual("all_reduce", all.get(), [&](std::int64_t i) { return SumAt(world, i); });
  }
  if (problem.empty()) {
    problem = CheckEqual("broadcast", cast.get(), [&](std::int64_t i) { return ValueAt(root, i); });
  }
  return problem;
}

struct Case {
  Kind kind;
  int world_size;
};

class CommunicatorContract : public testing::TestWithParam<Case> {
 protected:
  void ExpectAllWell(const RankBody& body) {
    const auto problems = RunRanks(GetParam().kind, GetParam().world_size, body);
    for (std::size_t r = 0; r < problems.size(); ++r) EXPECT_EQ(problems[r], "") << "rank " << r;
  }
};

TEST_P(CommunicatorContract, MovesAndSumsWhatTheClosedFormsSay) {
  ExpectAllWell([](Communicator& comm) -> std::string {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF64}) {
      // 256-byte segments: 64 f32; 257 and 1000 take several, with a rest.
      for (const std::int64_t size : {0, 1, 2, 5, 64, 257, 1000}) {
        const std::string problem = AllCollectives(comm, dtype, size);
        if (!problem.empty()) return problem;
      }
    }
    return "";
  });
}

// Sums of rounded values depend on their order: it must be the same in both collectives.
TEST_P(CommunicatorContract, ReduceScatterIsTheSliceOfAllReduceToTheBit) {
  ExpectAllWell([](Communicator& comm) -> std::string {
    CpuStream stream("test", CpuStream::Mode::kInline);
    const std::int64_t size = 301;
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF64}) {
      Memory unit(dtype, size * comm.world_size());
      Memory all(dtype, size * comm.world_size());
      Memory slice(dtype, size);
      for (std::int64_t i = 0; i < unit.get().size; ++i) {
        const double value = 1.0 / static_cast<double>(3 + comm.rank() * 1000 + i);
        Set(unit.get(), i, value);
        Set(all.get(), i, value);
      }
      absl::Status status = comm.ReduceScatter(unit.get(), slice.get(), stream);
      status.Update(comm.AllReduce(all.get(), stream));
      if (!status.ok()) return status.ToString();
      const std::string problem = CheckEqual("slice", slice.get(), [&](std::int64_t i) {
        return Get(all.get(), comm.rank() * size + i);
      });
      if (!problem.empty()) return problem;
      // The same bits on every rank: the sum of squares of differences from rank 0's is zero.
      Memory root(dtype, all.get().size);
      for (std::int64_t i = 0; i < all.get().size; ++i) Set(root.get(), i, Get(all.get(), i));
      status = comm.Broadcast(root.get(), 0, stream);
      if (!status.ok()) return status.ToString();
      const std::string differs = CheckEqual("all_reduce against rank 0's", all.get(),
                                             [&](std::int64_t i) { return Get(root.get(), i); });
      if (!differs.empty()) return differs;
    }
    return "";
  });
}

TEST_P(CommunicatorContract, RefusesOperandsThatDoNotFitAndStaysUsable) {
  ExpectAllWell([](Communicator& comm) -> std::string {
    CpuStream stream("test", CpuStream::Mode::kInline);
    Memory shard(DType::kF32, 4);
    Memory wrong(DType::kF32, 4 * comm.world_size() + 1);
    Memory other(DType::kBf16, 4 * comm.world_size());
    const auto refused = [](const absl::Status& status) {
      return status.code() == absl::StatusCode::kInvalidArgument;
    };
    if (!refused(comm.AllGather(shard.get(), wrong.get(), stream))) return "size accepted";
    if (!refused(comm.ReduceScatter(other.get(), shard.get(), stream))) return "dtype accepted";
    if (!refused(comm.Broadcast(shard.get(), comm.world_size(), stream))) return "root accepted";
    if (!refused(comm.AllReduce({nullptr, DType::kF32, 4}, stream))) return "null accepted";
    if (!comm.Health().ok()) return "a refused call ended the communicator";
    return AllCollectives(comm, DType::kF32, 3);
  });
}

TEST_P(CommunicatorContract, AbortEndsWhatIsPendingHereAndAtThePeers) {
  if (GetParam().world_size == 1) GTEST_SKIP() << "nobody to wait for";
  ExpectAllWell([](Communicator& comm) -> std::string {
    CpuStream stream("test", CpuStream::Mode::kThread);
    Memory data(DType::kF32, 100);
    const int last = comm.world_size() - 1;
    // The last rank never joins the reduction: the others hang in it until rank 0 aborts.
    if (comm.rank() == last) {
      absl::Status status = comm.Barrier(stream);
      status.Update(stream.Synchronize());
      return status.code() == absl::StatusCode::kUnavailable ||
                     status.code() == absl::StatusCode::kInvalidArgument || last == 0
                 ? ""
                 : absl::StrCat("last rank: ", status.ToString());
    }
    absl::Status status = comm.AllReduce(data.get(), stream);
    if (comm.rank() == 0) comm.Abort("enough");
    status.Update(stream.Synchronize());
    if (comm.rank() == 0) {
      const absl::Status again = comm.Barrier(stream);
      // The other ranks' mismatching operation may have been noticed first (in_process only).
      if (status.code() != absl::StatusCode::kAborted &&
          status.code() != absl::StatusCode::kInvalidArgument) {
        return absl::StrCat("rank 0: ", status.ToString());
      }
      return again.code() == status.code() ? "" : absl::StrCat("later: ", again.ToString());
    }
    return status.code() == absl::StatusCode::kUnavailable ||
                   status.code() == absl::StatusCode::kInvalidArgument
               ? ""
               : absl::StrCat("a peer: ", status.ToString());
  });
}

TEST_P(CommunicatorContract, APeerThatLeavesIsNamed) {
  if (GetParam().world_size == 1) GTEST_SKIP() << "nobody to lose";
  const Kind kind = GetParam().kind;
  const auto problems =
      RunRanks(kind, GetParam().world_size, [](Communicator& comm) -> std::string {
        CpuStream stream("test", CpuStream::Mode::kThread);
        Memory shard(DType::kF32, 1 << 12);
        Memory unit(DType::kF32, (1 << 12) * comm.world_size());
        absl::Status status = comm.Barrier(stream);
        status.Update(stream.Synchronize());
        if (!status.ok()) return status.ToString();
        if (comm.rank() == comm.world_size() - 1) return "";
        status = comm.AllGather(shard.get(), unit.get(), stream);
        status.Update(stream.Synchronize());
        if (status.code() != absl::StatusCode::kUnavailable) return status.ToString();
        if (!absl::StrContains(status.message(), "all_gather")) return status.ToString();
        // With two ranks there is one to blame. With more, a survivor that stopped earlier may be
        // the one that was noticed.
        const bool named = absl::StrContains(status.message(), "is gone");
        if (!named) return status.ToString();
        return comm.Health() == status ? "" : "Health differs";
      });
  for (std::size_t r = 0; r < problems.size(); ++r) EXPECT_EQ(problems[r], "") << "rank " << r;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Kind kind : {Kind::kInProcess, Kind::kGlooThreads, Kind::kGlooProcesses}) {
    // Among 11 gloo takes other ways than among few.
    for (const int world_size : {1, 2, 3, 4, 7, 11}) cases.push_back({kind, world_size});
  }
  return cases;
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const char* kinds[] = {"InProcess", "GlooThreads", "GlooProcesses"};
  return absl::StrCat(kinds[static_cast<int>(info.param.kind)], "World", info.param.world_size);
}

INSTANTIATE_TEST_SUITE_P(HostCommunicators, CommunicatorContract, testing::ValuesIn(Cases()),
                         CaseName);

// SIGKILL in mid-collective: survivors get UNAVAILABLE, long before their timeout of 20 s.
TEST(GlooProcesses, SurviveAKilledPeerWithAnError) {
  const TempDir directory;
  const auto problems = RunProcesses(3, [&](int rank) {
    return RunGlooRank(directory.path(), rank, 3, [](Communicator& comm) -> std::string {
      CpuStream stream("test", CpuStream::Mode::kInline);
      Memory data(DType::kF32, 1000);
      for (int i = 0; i < 1000; ++i) {
        if (comm.rank() == 2 && i == 5) ::raise(SIGKILL);
        const absl::Status status = comm.AllReduce(data.get(), stream);
        if (status.code() == absl::StatusCode::kUnavailable) return "unavailable";
        if (!status.ok()) return status.ToString();
      }
      return "nothing happened";
    });
  });
  EXPECT_EQ(problems[0], "unavailable");
  EXPECT_EQ(problems[1], "unavailable");
  EXPECT_EQ(problems[2], absl::StrCat("wait status ", SIGKILL));
}

TEST(Gloo, NamesTheRankThatDoesNotCome) {
  const TempDir directory;
  const std::unique_ptr<RendezvousStore> store = CreateDirectoryStore(directory.path());
  GlooOptions options = Options(0, 2);
  options.timeout = absl::Milliseconds(50);
  const auto communicator = CreateGlooCommunicator(options, *store);
  EXPECT_EQ(communicator.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(communicator.status().message()),
              testing::HasSubstr("rank 1 did not come to the rendezvous"));
}

TEST(Gloo, RefusesARankOutsideTheWorld) {
  const TempDir directory;
  const std::unique_ptr<RendezvousStore> store = CreateDirectoryStore(directory.path());
  EXPECT_EQ(CreateGlooCommunicator(Options(2, 2), *store).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(FaultyCommunicator, DiesWhereTheScriptSays) {
  auto group = CreateInProcessGroup(2).value();
  const auto problems = RunThreads(2, [&](int rank) -> std::string {
    FaultScript script;
    if (rank == 1) script.DieAt(3);
    FaultyCommunicator comm(std::move(group[static_cast<std::size_t>(rank)]), script);
    CpuStream stream("test", CpuStream::Mode::kInline);
    int done = 0;
    absl::Status status;
    while ((status = comm.Barrier(stream)).ok()) ++done;
    return absl::StrCat(done, " ", absl::StatusCodeToString(status.code()));
  });
  EXPECT_EQ(problems[0], "2 UNAVAILABLE");
  EXPECT_EQ(problems[1], "2 ABORTED");
}

}  // namespace
}  // namespace fsdp
