// What must hold of queues whatever comes: random clusters, queues and jobs, in simulated time.
//
// Every round the scheduler decides, placed jobs run, preempted ones hold their devices for a grace
// and wait again with the rest of their work. Devices are interchangeable (anyNode), so that what
// arithmetic allows must be reached.

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "coordinator/schedule/queue_scheduler.h"
#include "gtest/gtest.h"

namespace fsdp::coordinator {
namespace {

constexpr int kGraceRounds = 3;

struct SimJob {
  QueueEntry entry;
  int devices = 1;
  int rounds_left = 0;
  int waited = 0;
  int ran = 0;
  bool running = false;
  // Rounds until a preempted job is gone; 0: it is not.
  int yields_in = 0;
  std::vector<std::size_t> held;
};

class Simulation {
 public:
  Simulation(unsigned seed, bool priorities) : random_(seed) {
    const int queues = Pick(2, 4);
    int quotas = 0;
    for (int i = 0; i < queues; ++i) {
      QueuePolicy policy;
      policy.weight = Pick(1, 4);
      DeviceLimits& limits = policy.devices[v1::DEVICE_TYPE_CPU];
      limits.quota = Pick(0, 6);
      if (Pick(0, 1) == 1) limits.max = limits.quota + Pick(1, 8);
      policy.preempts_within = priorities;
      quotas += limits.quota;
      policies_[absl::StrCat("q", i)] = policy;
      names_.push_back(absl::StrCat("q", i));
    }
    total_ = quotas + Pick(1, 6);
    for (int i = 0; i < total_; ++i) {
      WorkerView& worker = workers_.emplace_back();
      worker.host = absl::StrCat("h", i / 4);
      worker.id = WorkerId(absl::StrCat(worker.host, ":", i % 4));
      worker.device_index = i % 4;
      worker.placeable = true;
    }
    priorities_ = priorities;
  }

  void Submit() {
    SimJob job;
    const std::string& queue = names_[Pick(0, static_cast<int>(names_.size()) - 1)];
    const DeviceLimits limits = policies_[queue].devices[v1::DEVICE_TYPE_CPU];
    job.entry = {JobId(absl::StrCat("j", jobs_.size())), queue, priorities_ ? Pick(0, 3) : 0,
                 static_cast<std::int64_t>(jobs_.size() + 1)};
    // What could never run proves nothing.
    job.devices = Pick(1, std::min(total_, limits.max.value_or(total_)));
    job.rounds_left = Pick(1, 12);
    jobs_.push_back(job);
  }

  [[nodiscard]] ScheduleState State() const {
    ScheduleState state;
    state.view.workers = workers_;
    for (const SimJob& job : jobs_) {
      if (job.running) {
        for (const std::size_t i : job.held) {
          state.view.workers[i].held_by = "jobs/" + job.entry.job.value();
        }
        ActiveJob& entry = state.running.emplace_back();
        entry.entry = job.entry;
        entry.devices = job.devices;
        entry.stopping = job.yields_in > 0;
        entry.saves = true;
        entry.ran = absl::Minutes(job.ran);
      } else if (job.rounds_left > 0) {
        QueuedDemand& item = state.waiting.emplace_back();
        item.entry = job.entry;
        item.demand.devices_per_node = job.devices;
        item.demand.any_node = true;
        item.waited = absl::Minutes(job.waited);
      }
    }
    return state;
  }

  // One pass; `ends`: jobs make progress and end. Returns the number of preemptions.
  std::size_t Round(bool ends) {
    const ScheduleState state = State();
    const ScheduleResult result = ScheduleQueues(policies_, state, {});
    CheckOwners(state, result);
    for (const QueueDecision& decision : result.decisions) {
      if (decision.decision.placement) Start(decision);
    }
    for (const Preemption& one : result.preemptions) {
      SimJob& victim = Find(one.victim);
      EXPECT_TRUE(victim.running);
      EXPECT_EQ(victim.yields_in, 0) << "told twice";
      if (one.reason == PreemptionReason::kPriority) {
        EXPECT_LT(victim.entry.priority, Find(one.by).entry.priority);
        EXPECT_EQ(victim.entry.queue, Find(one.by).entry.queue);
      } else {
        EXPECT_NE(victim.entry.queue, Find(one.by).entry.queue);
      }
      victim.yields_in = kGraceRounds;
    }
    Advance(ends);
    CheckHoldings();
    return result.preemptions.size();
  }

  [[nodiscard]] bool AllDone() const {
    return std::all_of(jobs_.begin(), jobs_.end(),
                       [](const SimJob& job) { return job.rounds_left == 0; });
  }
  [[nodiscard]] const QueuePolicies& policies() const { return policies_; }
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  std::mt19937& random() { return random_; }

 private:
  SimJob& Find(const JobId& id) {
    return *std::find_if(jobs_.begin(), jobs_.end(),
                         [&](const SimJob& job) { return job.entry.job == id; });
  }

  void Start(const QueueDecision& decision) {
    SimJob& job = Find(decision.job);
    EXPECT_FALSE(job.running);
    EXPECT_EQ(decision.decision.placement->size(), static_cast<std::size_t>(job.devices));
    for (const WorkerId& id : *decision.decision.placement) {
      for (std::size_t i = 0; i < workers_.size(); ++i) {
        if (workers_[i].id == id) job.held.push_back(i);
      }
    }
    job.running = true;
    job.ran = 0;
  }

  void Advance(bool ends) {
    for (SimJob& job : jobs_) {
      if (!job.running) {
        job.waited += job.rounds_left > 0 ? 1 : 0;
        continue;
      }
      ++job.ran;
      bool gone = false;
      if (ends) gone = --job.rounds_left == 0;
      if (job.yields_in > 0 && --job.yields_in == 0) gone = true;
      if (!gone) continue;
      job.running = false;
      job.yields_in = 0;
      job.waited = 0;
      job.held.clear();
    }
  }

  void CheckHoldings() const {
    std::set<std::size_t> seen;
    std::map<std::string, int> by_queue;
    for (const SimJob& job : jobs_) {
      for (const std::size_t i : job.held) {
        EXPECT_TRUE(seen.insert(i).second) << "a device of two jobs";
      }
      by_queue[job.entry.queue] += static_cast<int>(job.held.size());
    }
    for (const auto& [queue, held] : by_queue) {
      const auto max = policies_.at(queue).LimitsOf(v1::DEVICE_TYPE_CPU).max;
      EXPECT_LE(held, max.value_or(total_)) << queue;
    }
  }

  // The first job of every queue that is within its quota starts, or has its devices promised.
  void CheckOwners(const ScheduleState& state, const ScheduleResult& result) const {
    const QueueLedger ledger(policies_, state.view, state.running, state.waiting);
    std::map<std::string, const QueuedDemand*> heads;
    for (const QueuedDemand& item : state.waiting) {
      const QueuedDemand*& head = heads[item.entry.queue];
      if (head == nullptr || GoesBefore(item.entry, head->entry)) head = &item;
    }
    for (const auto& [queue, head] : heads) {
      if (!ledger.IsWithinQuota(queue, v1::DEVICE_TYPE_CPU, head->demand.world_size())) continue;
      for (const QueueDecision& decision : result.decisions) {
        if (decision.job != head->entry.job) continue;
        EXPECT_TRUE(decision.decision.placement || decision.decision.kind == WaitKind::kYielding)
            << decision.job.value() << ": " << decision.decision.reason;
      }
    }
  }

  std::mt19937 random_;
  QueuePolicies policies_;
  std::vector<std::string> names_;
  std::vector<WorkerView> workers_;
  std::vector<SimJob> jobs_;
  int total_ = 0;
  bool priorities_ = false;
};

constexpr unsigned kSeeds = 150;

TEST(QueueSimulationTest, QuotasAreReachedMaxIsKeptAndEveryJobEnds) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation simulation(seed, /*priorities=*/seed % 2 == 1);
    int submitted = 0;
    int rounds = 0;
    while (submitted < 40 || !simulation.AllDone()) {
      if (submitted < 40 && simulation.Pick(0, 1) == 1) {
        simulation.Submit();
        ++submitted;
      }
      simulation.Round(/*ends=*/true);
      // 40 jobs of at most 12 rounds, one after another, each preempted now and then.
      ASSERT_LT(++rounds, 4000) << "a job is never done";
      if (HasFailure()) return;
    }
  }
}

// Nothing ends and nothing comes: then preemption comes to rest too, or two jobs take turns.
TEST(QueueSimulationTest, PreemptionComesToRest) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation simulation(seed, /*priorities=*/seed % 2 == 1);
    for (int i = 0; i < 30; ++i) {
      simulation.Submit();
      simulation.Round(/*ends=*/i % 3 == 0);
    }
    int quiet = 0;
    int rounds = 0;
    while (quiet <= 2 * kGraceRounds) {
      quiet = simulation.Round(/*ends=*/false) == 0 ? quiet + 1 : 0;
      ASSERT_LT(++rounds, 400) << "jobs preempt each other for ever";
      if (HasFailure()) return;
    }
  }
}

TEST(QueueSimulationTest, TheSameStateHasTheSameAnswerInWhateverOrderItIsTold) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    Simulation simulation(seed, /*priorities=*/true);
    for (int i = 0; i < 15; ++i) {
      simulation.Submit();
      simulation.Round(/*ends=*/i % 2 == 0);
    }
    for (int i = 0; i < 5; ++i) simulation.Submit();
    ScheduleState state = simulation.State();
    const ScheduleResult first = ScheduleQueues(simulation.policies(), state, {});
    std::shuffle(state.waiting.begin(), state.waiting.end(), simulation.random());
    std::shuffle(state.running.begin(), state.running.end(), simulation.random());
    const ScheduleResult second = ScheduleQueues(simulation.policies(), state, {});
    ASSERT_EQ(first.decisions.size(), second.decisions.size());
    for (std::size_t i = 0; i < first.decisions.size(); ++i) {
      EXPECT_EQ(first.decisions[i].job, second.decisions[i].job);
      EXPECT_EQ(first.decisions[i].decision.reason, second.decisions[i].decision.reason);
      EXPECT_EQ(first.decisions[i].decision.placement, second.decisions[i].decision.placement);
    }
    ASSERT_EQ(first.preemptions.size(), second.preemptions.size());
    for (std::size_t i = 0; i < first.preemptions.size(); ++i) {
      EXPECT_EQ(first.preemptions[i].victim, second.preemptions[i].victim);
    }
  }
}

}  // namespace
}  // namespace fsdp::coordinator
