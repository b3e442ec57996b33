#include "worker/comm/in_process.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/comm/host_communicator.h"
#include "worker/comm/host_reduce.h"

namespace fsdp {
namespace {

// What one rank brings to a collective.
struct Offer {
  const char* operation = "";
  Vector in;
  Vector out;
  int root = 0;
};

bool SameCollective(const Offer& a, const Offer& b) {
  return std::strcmp(a.operation, b.operation) == 0 && a.in.size == b.in.size &&
         a.in.dtype == b.in.dtype && a.root == b.root;
}

std::string Describe(int rank, const Offer& offer) {
  return absl::StrFormat("rank %d %s of %d %s", rank, offer.operation, offer.in.size,
                         NameOf(offer.in.dtype));
}

// The meeting place. A collective has two meetings: at the first all offers are on the table and
// every rank may read its peers' memory, after the second nobody does any more.
class Group {
 public:
  Group(int world_size, absl::Duration timeout)
      : timeout_(absl::ToChronoNanoseconds(timeout)),
        offers_(static_cast<std::size_t>(world_size)),
        gone_(static_cast<std::size_t>(world_size)),
        aborted_(static_cast<std::size_t>(world_size), false) {}

  [[nodiscard]] int world_size() const { return static_cast<int>(offers_.size()); }

  // `move` runs between the meetings, without the lock.
  template <typename Move>
  absl::Status Run(int rank, const Offer& offer, Move move) {
    std::unique_lock<std::mutex> lock(mutex_);
    offers_[static_cast<std::size_t>(rank)] = offer;
    RETURN_IF_ERROR(Meet(lock, rank, offer.operation));
    for (int peer = 0; peer < world_size(); ++peer) {
      const Offer& other = offers_[static_cast<std::size_t>(peer)];
      if (!SameCollective(offer, other)) {
        return absl::InvalidArgumentError(
            absl::StrCat("ranks issue different collectives: ", Describe(rank, offer), ", ",
                         Describe(peer, other)));
      }
    }
    ++moving_;
    lock.unlock();
    move(offers_);
    lock.lock();
    --moving_;
    changed_.notify_all();
    const absl::Status met = Meet(lock, rank, offer.operation);
    // Leaving early (abort, lost peer) while a peer still reads this rank's memory would let it be
    // freed under the reader.
    if (!met.ok()) changed_.wait(lock, [&] { return moving_ == 0; });
    return met;
  }

  void Leave(int rank, const std::string& why) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& gone = gone_[static_cast<std::size_t>(rank)];
    if (!gone.has_value()) gone = why;
    changed_.notify_all();
  }

  void Abort(int rank, const std::string& why) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      aborted_[static_cast<std::size_t>(rank)] = true;
    }
    Leave(rank, why);
  }

 private:
  // Blocks until every rank has come to this meeting.
  absl::Status Meet(std::unique_lock<std::mutex>& lock, int rank, const char* operation) {
    const std::uint64_t meeting = meeting_;
    if (FirstGone() < 0 && ++arrived_ == world_size()) {
      arrived_ = 0;
      ++meeting_;
      changed_.notify_all();
      return absl::OkStatus();
    }
    const auto over = [&] { return meeting_ != meeting || FirstGone() >= 0; };
    const bool in_time = changed_.wait_for(lock, timeout_, over);
    if (meeting_ != meeting) return absl::OkStatus();
    if (!in_time) {
      gone_[static_cast<std::size_t>(rank)] = "it gave up waiting";
      changed_.notify_all();
      const auto seconds = std::chrono::duration<double>(timeout_).count();
      return absl::DeadlineExceededError(
          absl::StrFormat("rank %d: %s: %d of %d ranks came within %.3g s", rank, operation,
                          arrived_, world_size(), seconds));
    }
    if (aborted_[static_cast<std::size_t>(rank)]) return absl::AbortedError("aborted");
    const int peer = FirstGone();
    return WithPeer(
        absl::UnavailableError(absl::StrFormat("rank %d: %s: rank %d is gone (%s)", rank, operation,
                                               peer, *gone_[static_cast<std::size_t>(peer)])),
        peer);
  }

  [[nodiscard]] int FirstGone() const {
    for (std::size_t rank = 0; rank < gone_.size(); ++rank) {
      if (gone_[rank].has_value()) return static_cast<int>(rank);
    }
    return -1;
  }

  const std::chrono::nanoseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Offer> offers_;  // guarded by mutex_, but for reads between the meetings
  std::vector<std::optional<std::string>> gone_;
  std::vector<bool> aborted_;
  std::uint64_t meeting_ = 0;
  int arrived_ = 0;
  int moving_ = 0;
};

std::byte* At(const Vector& vector, std::int64_t element) {
  return static_cast<std::byte*>(vector.data) +
         element * static_cast<std::int64_t>(SizeOf(vector.dtype));
}

class InProcessCommunicator final : public HostCommunicator {
 public:
  InProcessCommunicator(std::shared_ptr<Group> group, int rank)
      : HostCommunicator(rank, group->world_size()), group_(std::move(group)) {}
  ~InProcessCommunicator() override { group_->Leave(rank(), "it left"); }

  [[nodiscard]] std::string kind() const override { return "in_process"; }

 private:
  absl::Status RunAllGather(const Vector& shard, const Vector& unit) override {
    return group_->Run(rank(), {"all_gather", shard, unit}, [&](const std::vector<Offer>& offers) {
      for (std::size_t peer = 0; peer < offers.size(); ++peer) {
        std::memcpy(At(unit, static_cast<std::int64_t>(peer) * shard.size), offers[peer].in.data,
                    static_cast<std::size_t>(shard.size_bytes()));
      }
    });
  }

  absl::Status RunReduceScatter(const Vector& unit, const Vector& shard) override {
    return group_->Run(rank(), {"reduce_scatter", unit, shard},
                       [&](const std::vector<Offer>& offers) {
                         SumSlice(offers, rank() * shard.size, shard.size, shard.data);
                       });
  }

  // Each rank sums one slice and writes it to all: no two ranks touch the same elements.
  absl::Status RunAllReduce(const Vector& data) override {
    return group_->Run(rank(), {"all_reduce", data, data}, [&](const std::vector<Offer>& offers) {
      const std::int64_t begin = data.size * rank() / world_size();
      const std::int64_t size = data.size * (rank() + 1) / world_size() - begin;
      if (size == 0) return;
      SumSlice(offers, begin, size, At(data, begin));
      for (int peer = 0; peer < world_size(); ++peer) {
        if (peer == rank()) continue;
        std::memcpy(At(offers[static_cast<std::size_t>(peer)].in, begin), At(data, begin),
                    static_cast<std::size_t>(size) * SizeOf(data.dtype));
      }
    });
  }

  absl::Status RunBroadcast(const Vector& data, int root) override {
    return group_->Run(rank(), {"broadcast", data, data, root},
                       [&](const std::vector<Offer>& offers) {
                         if (rank() == root) return;
                         std::memcpy(data.data, offers[static_cast<std::size_t>(root)].in.data,
                                     static_cast<std::size_t>(data.size_bytes()));
                       });
  }

  absl::Status RunBarrier() override {
    return group_->Run(rank(), {"barrier", {}, {}}, [](const std::vector<Offer>&) {});
  }

  void Interrupt() override { group_->Abort(rank(), "it aborted"); }

  static void SumSlice(const std::vector<Offer>& offers, std::int64_t begin, std::int64_t size,
                       void* out) {
    std::vector<const void*> sources;
    for (const Offer& offer : offers) sources.push_back(At(offer.in, begin));
    SumInOrder(offers[0].in.dtype, sources, size, out);
  }

  std::shared_ptr<Group> group_;
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> CreateInProcessGroup(
    int world_size, const InProcessOptions& options) {
  if (world_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("world size is %d; a group has at least 1 rank", world_size));
  }
  auto group = std::make_shared<Group>(world_size, options.timeout);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.push_back(std::make_unique<InProcessCommunicator>(group, rank));
  }
  return ranks;
}

}  // namespace fsdp
