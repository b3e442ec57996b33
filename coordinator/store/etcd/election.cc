#include "coordinator/store/etcd/election.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// Prolonged this often within its time: several calls may fail.
constexpr int kKeepAlivesPerTtl = 6;
constexpr absl::Duration kRetryPause = absl::Milliseconds(50);

}  // namespace

Election::Election(ElectionOptions options, Etcd* etcd)
    : options_(std::move(options)), etcd_(*etcd), keys_(options_.prefix), ttl_(options_.ttl) {}

Election::~Election() { Resign(); }

absl::StatusOr<Leadership> Election::Campaign(std::function<void(absl::Status)> on_lost) {
  absl::Status last;
  do {
    absl::StatusOr<std::optional<Leadership>> tried = Try();
    // Once per kind of failure, not once per attempt.
    if (!tried.ok() && tried.status() != last) {
      LOG_WARNING("no election: %s; trying again", std::string(tried.status().message()));
    }
    last = tried.status();
    if (!tried.ok() || !tried->has_value()) continue;
    const Leadership leadership = **tried;
    const std::lock_guard lock(mutex_);
    if (withdrawn_) break;
    keeper_ = std::thread([this, lease = leadership.lease, on_lost = std::move(on_lost)] {
      KeepAlive(lease, on_lost);
    });
    return leadership;
  } while (Pause(options_.poll_period, withdrawn_));
  return absl::CancelledError("the coordinator is being stopped");
}

absl::StatusOr<std::optional<Leadership>> Election::Try() {
  // As a transaction it is tried once: Resign does not wait long.
  etcd::TxnRequest request;
  request.add_success()->mutable_request_range()->set_key(keys_.Leader());
  ASSIGN_OR_RETURN(const etcd::TxnResponse response, etcd_.Txn(request));
  if (response.responses_size() != 1) return absl::InternalError("etcd: no answer to a question");
  const etcd::RangeResponse& found = response.responses(0).response_range();
  if (found.kvs_size() == 0) return MakeKey();
  const etcd::KeyValue& kv = found.kvs(0);
  etcd_v1::Leader leader;
  if (!leader.ParseFromString(kv.value())) {
    return absl::DataLossError(absl::StrCat("etcd's key ", keys_.Leader(),
                                            " is not one of a coordinator's: give --store another "
                                            "prefix"));
  }
  const bool own = leader.incarnation() == options_.self.incarnation();
  SetLeader(std::move(leader));
  if (!own) return std::nullopt;
  // The answer to MakeKey was lost. Which of its leases it is, and since when, is not known any
  // more.
  {
    const std::lock_guard lock(mutex_);
    lease_ = kv.lease();
  }
  prolonged_ = Clock::Real().Now();
  ASSIGN_OR_RETURN(const absl::Duration left, etcd_.KeepLeaseAlive(kv.lease(), ttl_ / 3));
  if (left <= absl::ZeroDuration()) return std::nullopt;
  return Leadership{.lease = kv.lease(), .create_revision = kv.create_revision()};
}

absl::StatusOr<std::optional<Leadership>> Election::MakeKey() {
  SetLeader(std::nullopt);
  {
    const std::lock_guard lock(mutex_);
    if (withdrawn_) return std::nullopt;
  }
  prolonged_ = Clock::Real().Now();
  ASSIGN_OR_RETURN(const Etcd::Lease lease, etcd_.GrantLease(options_.ttl));
  ttl_ = lease.ttl;
  {
    const std::lock_guard lock(mutex_);
    lease_ = lease.id;
  }
  etcd::TxnRequest request;
  etcd::Compare& absent = *request.add_compare();
  absent.set_target(etcd::Compare::CREATE);
  absent.set_key(keys_.Leader());
  absent.set_create_revision(0);
  etcd::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(keys_.Leader());
  put.set_value(options_.self.SerializeAsString());
  put.set_lease(lease.id);
  ASSIGN_OR_RETURN(const etcd::TxnResponse response, etcd_.Txn(request));
  if (!response.succeeded()) {
    etcd_.RevokeLease(lease.id).IgnoreError();
    return std::nullopt;
  }
  SetLeader(options_.self);
  return Leadership{.lease = lease.id, .create_revision = response.header().revision()};
}

void Election::KeepAlive(std::int64_t lease, const std::function<void(absl::Status)>& on_lost) {
  const auto lose = [&](const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (resigned_) return;
    }
    on_lost(absl::AbortedError(absl::StrCat("this coordinator no longer leads: ", why)));
  };
  absl::Status last;
  while (true) {
    const MonotonicTime now = Clock::Real().Now();
    const absl::Duration left = ttl_ - (now - prolonged_);
    if (left <= absl::ZeroDuration()) {
      return lose(
          absl::StrCat("its lease of ", absl::FormatDuration(ttl_), " may be over",
                       last.ok() ? " (it stood still)" : absl::StrCat(" (", last.message(), ")")));
    }
    const absl::StatusOr<absl::Duration> granted =
        etcd_.KeepLeaseAlive(lease, std::min(left, ttl_ / 3));
    if (granted.ok() && *granted <= absl::ZeroDuration()) return lose("its lease is over");
    if (granted.ok()) prolonged_ = now;
    last = granted.status();
    if (!Pause(granted.ok() ? ttl_ / kKeepAlivesPerTtl : kRetryPause, resigned_)) return;
  }
}

bool Election::Pause(absl::Duration duration, const bool& ended) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, absl::ToChronoMicroseconds(duration), [&ended] { return ended; });
}

void Election::Withdraw() {
  {
    const std::lock_guard lock(mutex_);
    withdrawn_ = true;
  }
  wake_.notify_all();
}

void Election::Resign() {
  std::int64_t lease = 0;
  {
    const std::lock_guard lock(mutex_);
    withdrawn_ = true;
    resigned_ = true;
    lease = std::exchange(lease_, 0);
  }
  wake_.notify_all();
  if (keeper_.joinable()) keeper_.join();
  // Without it the lease ends by itself.
  if (lease != 0) etcd_.RevokeLease(lease).IgnoreError();
}

std::optional<etcd_v1::Leader> Election::leader() const {
  const std::lock_guard lock(mutex_);
  return leader_;
}

void Election::SetLeader(std::optional<etcd_v1::Leader> leader) {
  const std::lock_guard lock(mutex_);
  leader_ = std::move(leader);
}

}  // namespace fsdp::coordinator
