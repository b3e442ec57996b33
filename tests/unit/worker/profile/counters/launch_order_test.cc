#include "worker/profile/counters/launch_order.h"

#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace fsdp {
namespace {

constexpr auto kNorm = KernelFamily::kNorm;
constexpr auto kQkv = KernelFamily::kMatMulQkv;
constexpr auto kMlp = KernelFamily::kMatMulMlp;
constexpr auto kHead = KernelFamily::kMatMulHead;
constexpr auto kLoss = KernelFamily::kLoss;
constexpr auto kOptimizer = KernelFamily::kOptimizer;
constexpr auto kGather = KernelFamily::kGather;
constexpr auto kReduce = KernelFamily::kReduce;

const std::vector<ExpectedLaunch> kForward = {
    {kNorm, 1}, {kQkv, 1}, {KernelFamily::kRope, 2}, {kMlp, 2}};
const std::vector<ExpectedLaunch> kBackward = {
    {kMlp, 4}, {KernelFamily::kRope, 3}, {kQkv, 2}, {kNorm, 2}, {std::nullopt, 1}};

// A run as the tests write it: with the graph's number, or none.
struct Run {
  static constexpr int kNoGraph = -1;
  int graph = kNoGraph;
  std::vector<ExpectedLaunch> launches;
};
using Runs = std::vector<Run>;

LaunchMatch Match(std::span<const KernelRecord> records, const Runs& step,
                  bool from_step_begin = false) {
  std::vector<ExpectedRun> expected;
  for (const Run& run : step) expected.push_back({run.graph != Run::kNoGraph, run.launches});
  return MatchLaunches(records, expected, from_step_begin);
}

// Three layers, a head, and an update that is launched kernel by kernel.
Runs Step() {
  return {{0, {{KernelFamily::kEmbedding, 1}}},
          {1, kForward},
          {2, kForward},
          {3, kForward},
          {4, {{kHead, 1}, {kLoss, 1}, {kHead, 2}}},
          {5, kBackward},
          {6, kBackward},
          {7, kBackward},
          {Run::kNoGraph, {{kReduce, 1}, {kOptimizer, 2}}}};
}

struct Recording {
  std::vector<KernelRecord> records;
  std::vector<std::optional<KernelFamily>> truth;

  void Add(KernelRecord record, std::optional<KernelFamily> family) {
    record.begin_ns = static_cast<std::int64_t>(records.size()) * 10;
    record.end_ns = record.begin_ns + 8;
    records.push_back(record);
    truth.push_back(family);
  }
  // Graph numbers and nodes as a driver would give them: of its own.
  void Play(const Runs& step) {
    for (const Run& run : step) {
      std::uint64_t node = 1000 * static_cast<std::uint64_t>(run.graph + 1);
      for (const ExpectedLaunch& launch : run.launches) {
        for (int i = 0; i < launch.num_kernels; ++i) {
          KernelRecord record;
          if (run.graph != Run::kNoGraph) {
            record.graph = 900 - static_cast<std::uint32_t>(run.graph);
            record.graph_node = node++;
          }
          Add(record, launch.family);
        }
      }
    }
  }
  void Erase(std::size_t begin, std::size_t end) {
    records.erase(records.begin() + static_cast<std::ptrdiff_t>(begin),
                  records.begin() + static_cast<std::ptrdiff_t>(end));
    truth.erase(truth.begin() + static_cast<std::ptrdiff_t>(begin),
                truth.begin() + static_cast<std::ptrdiff_t>(end));
  }
};

// What is given must be right; returns how many are.
std::int64_t ExpectNoneWrong(const Recording& recording, const LaunchMatch& match) {
  std::int64_t given = 0;
  EXPECT_EQ(match.families.size(), recording.records.size());
  for (std::size_t i = 0; i < match.families.size(); ++i) {
    if (!match.families[i]) continue;
    ++given;
    EXPECT_EQ(match.families[i], recording.truth[i]) << "record " << i;
  }
  return given;
}

TEST(LaunchOrderTest, WholeStepsGetEveryFamily) {
  Recording recording;
  for (int i = 0; i < 3; ++i) recording.Play(Step());
  const LaunchMatch match = Match(recording.records, Step());
  const std::int64_t given = ExpectNoneWrong(recording, match);
  EXPECT_EQ(match.matched, given);
  EXPECT_EQ(match.resyncs, 0);
  // What no family accounts for (three a step), and the last step's update, which no graph follows.
  EXPECT_EQ(match.unmatched, 9 + 3);
}

TEST(LaunchOrderTest, ARecordingMayBeginAnywhere) {
  Recording whole;
  for (int i = 0; i < 3; ++i) whole.Play(Step());
  const std::size_t step_kernels = whole.records.size() / 3;
  for (std::size_t begin = 1; begin < step_kernels; ++begin) {
    SCOPED_TRACE(begin);
    Recording part = whole;
    part.Erase(0, begin);
    const LaunchMatch match = Match(part.records, Step());
    ExpectNoneWrong(part, match);
    // A graph that is cut by the begin is recognised all the same, by its later launches.
    EXPECT_LE(match.unmatched, 9 + 3 + 3);
    EXPECT_LE(match.resyncs, 1);
  }
}

TEST(LaunchOrderTest, LostRecordsCostThemselvesOnly) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    Recording recording;
    for (int i = 0; i < 5; ++i) recording.Play(Step());
    const std::size_t size = recording.records.size();
    std::int64_t max_unmatched = 15 + 3;  // as without loss
    for (int hole = 0; hole < 1 + round % 3; ++hole) {
      const std::size_t begin = random() % (size / 2);
      recording.Erase(begin, std::min(recording.records.size(), begin + 1 + random() % 30));
      max_unmatched += 3 + 3;  // a run between graphs that lost some or stands at the hole's edge
    }
    const LaunchMatch match = Match(recording.records, Step());
    const std::int64_t given = ExpectNoneWrong(recording, match);
    EXPECT_EQ(match.matched, given);
    EXPECT_LE(match.unmatched, max_unmatched);
  }
}

TEST(LaunchOrderTest, ACompleteHoleIsSeenAsAResync) {
  Recording recording;
  for (int i = 0; i < 4; ++i) recording.Play(Step());
  const std::size_t step_kernels = recording.records.size() / 4;
  // From the second layer's forward of step 1 to the head of step 2.
  recording.Erase(step_kernels + 7, 2 * step_kernels + 19);
  const LaunchMatch match = Match(recording.records, Step());
  ExpectNoneWrong(recording, match);
  EXPECT_EQ(match.resyncs, 1);
}

// Three launches of the same graph, one for each micro-batch.
TEST(LaunchOrderTest, AGraphMayBeLaunchedSeveralTimesAStep) {
  const Runs step = {
      {0, kForward}, {1, kBackward}, {0, kForward}, {1, kBackward}, {2, {{kOptimizer, 3}}}};
  Recording recording;
  for (int i = 0; i < 3; ++i) recording.Play(step);
  const LaunchMatch match = Match(recording.records, step);
  ExpectNoneWrong(recording, match);
  EXPECT_EQ(match.unmatched, 6);  // without a family
  EXPECT_EQ(match.resyncs, 0);
}

TEST(LaunchOrderTest, AStretchThatFitsTwoPlacesIsNotGuessed) {
  // Two layers' worth of forward graphs, out of three: either the first two or the last two.
  Recording recording;
  recording.Play({{1, kForward}, {2, kForward}});
  const LaunchMatch match = Match(recording.records, Step());
  EXPECT_EQ(match.matched, 0);
  EXPECT_EQ(match.unmatched, 12);
}

TEST(LaunchOrderTest, AStepThatIsAnotherOneIsNotMatched) {
  Recording recording;
  for (int i = 0; i < 3; ++i) recording.Play({{0, {{kMlp, 5}}}, {1, {{kMlp, 7}}}});
  const LaunchMatch match = Match(recording.records, Step());
  EXPECT_EQ(match.matched, 0);
  EXPECT_EQ(match.unmatched, 36);
}

TEST(LaunchOrderTest, ARunBetweenGraphsThatHasAKernelMoreIsLeftOut) {
  Recording recording;
  recording.Play(Step());
  recording.Add({}, kReduce);  // an evaluation, say
  recording.Play(Step());
  const LaunchMatch match = Match(recording.records, Step());
  ExpectNoneWrong(recording, match);
  EXPECT_EQ(match.unmatched, 6 + 4 + 3);
}

TEST(LaunchOrderTest, BetweenGraphsOneFamilyNeedsNoCount) {
  Runs step = Step();
  step.back() = {Run::kNoGraph, {{kOptimizer, 5}, {kOptimizer, 1}}};
  Recording recording;
  for (int i = 0; i < 2; ++i) recording.Play(step);
  for (ExpectedLaunch& launch : step.back().launches) {
    launch.num_kernels = ExpectedLaunch::kUnknownKernels;
  }
  const LaunchMatch match = Match(recording.records, step);
  ExpectNoneWrong(recording, match);
  EXPECT_EQ(match.unmatched, 6 + 6);
  // Two families of unknown numbers cannot be told apart.
  step.back().launches[1].family = kReduce;
  EXPECT_EQ(Match(recording.records, step).unmatched, 6 + 12);
}

TEST(LaunchOrderTest, CopiesAreNoLaunches) {
  Recording recording;
  for (int i = 0; i < 2; ++i) {
    recording.Add({.is_copy = true}, KernelFamily::kCopy);
    recording.Play(Step());
  }
  const LaunchMatch match = Match(recording.records, Step());
  ExpectNoneWrong(recording, match);
  EXPECT_EQ(match.families[0], KernelFamily::kCopy);
  EXPECT_EQ(match.unmatched, 6 + 3);
}

TEST(LaunchOrderTest, AStreamOfOneFamilyIsAllThatFamily) {
  const Runs step = {{Run::kNoGraph, {{kGather}, {kGather}}}};
  Recording recording;
  for (int i = 0; i < 7; ++i) recording.Add({}, kGather);
  const LaunchMatch match = Match(recording.records, step);
  EXPECT_EQ(ExpectNoneWrong(recording, match), 7);
  EXPECT_EQ(match.unmatched, 0);
}

TEST(LaunchOrderTest, WithoutGraphsOnlyWholeStepsFromTheirBeginAreMatched) {
  const Runs step = {{Run::kNoGraph, kForward}};
  Recording recording;
  for (int i = 0; i < 3; ++i) recording.Play(step);
  EXPECT_EQ(Match(recording.records, step).matched, 0);
  const LaunchMatch match = Match(recording.records, step, /*from_step_begin=*/true);
  EXPECT_EQ(ExpectNoneWrong(recording, match), 18);
  recording.Erase(4, 5);
  EXPECT_EQ(Match(recording.records, step, true).matched, 0);
}

TEST(LaunchOrderTest, Nothing) {
  EXPECT_TRUE(Match({}, Step()).families.empty());
  const std::vector<KernelRecord> one(1);
  EXPECT_EQ(Match(one, {}).unmatched, 1);
}

}  // namespace
}  // namespace fsdp
