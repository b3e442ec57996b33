#include "coordinator/store/etcd/fenced_log.h"

#include <algorithm>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "coordinator/errors/not_leader.h"
#include "proto/support/clock.h"
#include "proto/support/crc32c.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

constexpr char kFormat[] = "1";
constexpr absl::Duration kTxnPause = absl::Milliseconds(100);

std::uint32_t Checksum(const std::string& bytes) {
  return Crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

etcd::RangeRequest One(const std::string& key) {
  etcd::RangeRequest request;
  request.set_key(key);
  return request;
}

// The address is empty where it is not known. What was refused may be asked of the one that leads.
absl::Status Deposed(const std::string& why, const std::string& leader) {
  return WithNotLeader(absl::AbortedError(absl::StrCat("this coordinator no longer leads: ", why,
                                                       "; what it wrote last is refused")),
                       leader);
}

}  // namespace

absl::Status FencedLog::Open() {
  RETURN_IF_ERROR(CheckFormat());
  RETURN_IF_ERROR(ReadSequence());
  ASSIGN_OR_RETURN(const etcd::RangeResponse found, etcd_.Range(One(keys_.Commit())));
  if (found.kvs_size() == 0) return RemoveStaged();
  etcd_v1::StagedCommit commit;
  EtcdValueReader reader;
  ASSIGN_OR_RETURN(const EtcdValueReader::Item* item, reader.Next(found.kvs(0)));
  if (item == nullptr || !commit.ParseFromString(item->value)) {
    return absl::DataLossError(absl::StrCat("etcd's key ", keys_.Commit(), " does not parse"));
  }
  return RollForward(commit);
}

absl::Status FencedLog::CheckFormat() {
  ASSIGN_OR_RETURN(const etcd::RangeResponse found, etcd_.Range(One(keys_.Format())));
  if (found.kvs_size() == 0 || found.kvs(0).value() == kFormat) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("etcd's key ", keys_.Format(), " says version ",
                                                    found.kvs(0).value(), "; this program knows ",
                                                    kFormat, ": use a newer fsdp-coordinator"));
}

absl::Status FencedLog::ReadSequence() {
  ASSIGN_OR_RETURN(const etcd::RangeResponse found, etcd_.Range(One(keys_.Sequence())));
  sequence_ = 0;
  revision_ = found.header().revision();
  if (found.kvs_size() > 0 && !absl::SimpleAtoi(found.kvs(0).value(), &sequence_)) {
    return absl::DataLossError(
        absl::StrCat("etcd's key ", keys_.Sequence(), " is no number: ", found.kvs(0).value()));
  }
  return absl::OkStatus();
}

etcd::TxnRequest FencedLog::Fenced(const EtcdTxn& txn) const {
  etcd::TxnRequest request;
  etcd::Compare& leads = *request.add_compare();
  leads.set_target(etcd::Compare::CREATE);
  leads.set_key(keys_.Leader());
  leads.set_create_revision(leadership_.create_revision);
  etcd::Compare& next = *request.add_compare();
  next.set_key(keys_.Sequence());
  if (sequence_ == 0) {
    next.set_target(etcd::Compare::CREATE);
    next.set_create_revision(0);
  } else {
    next.set_target(etcd::Compare::VALUE);
    next.set_value(absl::StrCat(sequence_));
  }
  txn.AppendTo(&request);
  const auto put = [&request](const std::string& key, const std::string& value) {
    etcd::PutRequest& change = *request.add_success()->mutable_request_put();
    change.set_key(key);
    change.set_value(value);
  };
  put(keys_.Sequence(), absl::StrCat(sequence_ + 1));
  if (sequence_ == 0) put(keys_.Format(), kFormat);
  *request.add_failure()->mutable_request_range() = One(keys_.Leader());
  *request.add_failure()->mutable_request_range() = One(keys_.Sequence());
  return request;
}

absl::Status FencedLog::Commit(const EtcdTxn& txn) {
  const etcd::TxnRequest request = Fenced(txn);
  const MonotonicTime until = Clock::Real().Now() + patience_;
  while (true) {
    const absl::StatusOr<etcd::TxnResponse> response = etcd_.Txn(request);
    if (response.ok()) {
      if (!response->succeeded()) RETURN_IF_ERROR(Judge(*response));
      revision_ = response->header().revision();
      ++sequence_;
      return absl::OkStatus();
    }
    if (!IsPassing(response.status()) || Clock::Real().Now() >= until) return response.status();
    absl::SleepFor(kTxnPause);
  }
}

absl::Status FencedLog::Judge(const etcd::TxnResponse& response) const {
  const auto found = [&](int index) -> const etcd::KeyValue* {
    if (index >= response.responses_size()) return nullptr;
    const etcd::RangeResponse& range = response.responses(index).response_range();
    return range.kvs_size() > 0 ? &range.kvs(0) : nullptr;
  };
  const etcd::KeyValue* leader = found(0);
  if (leader == nullptr) return Deposed("its lease is over", "");
  if (leader->create_revision() != leadership_.create_revision) {
    etcd_v1::Leader other;
    other.ParseFromString(leader->value());
    return Deposed(absl::StrCat("the one at ", other.address(), " (pid ", other.pid(), " on ",
                                other.host(), ") does"),
                   other.address());
  }
  const etcd::KeyValue* sequence = found(1);
  if (sequence != nullptr && sequence->value() == absl::StrCat(sequence_ + 1)) {
    return absl::OkStatus();
  }
  return Deposed(absl::StrCat("somebody else writes under ", keys_.Leader()), "");
}

absl::Status FencedLog::CommitStaged(const EtcdOps& ops) {
  etcd_v1::StagedOps staged;
  staged.mutable_ops()->Assign(ops.list().begin(), ops.list().end());
  const std::string bytes = staged.SerializeAsString();
  etcd_v1::StagedCommit commit;
  commit.set_num_bytes(static_cast<std::int64_t>(bytes.size()));
  commit.set_crc32c(Checksum(bytes));
  for (std::size_t begin = 0; begin < bytes.size(); begin += limits_.max_part_bytes) {
    EtcdOps part(limits_);
    part.Put(keys_.Staged(commit.num_parts()), bytes.substr(begin, limits_.max_part_bytes));
    commit.set_num_parts(commit.num_parts() + 1);
    RETURN_IF_ERROR(Execute(part.list()));
  }
  EtcdOps last(limits_);
  last.Put(keys_.Commit(), commit.SerializeAsString());
  RETURN_IF_ERROR(Execute(last.list()));
  RETURN_IF_ERROR(Execute(ops.list()));
  return RemoveStaged();
}

absl::Status FencedLog::RollForward(const etcd_v1::StagedCommit& commit) {
  std::string bytes;
  for (int part = 0; part < commit.num_parts(); ++part) {
    ASSIGN_OR_RETURN(const etcd::RangeResponse found, etcd_.Range(One(keys_.Staged(part))));
    EtcdValueReader reader;
    if (found.kvs_size() == 0) break;
    ASSIGN_OR_RETURN(const EtcdValueReader::Item* item, reader.Next(found.kvs(0)));
    if (item != nullptr) bytes += item->value;
  }
  etcd_v1::StagedOps staged;
  if (static_cast<std::int64_t>(bytes.size()) != commit.num_bytes() ||
      Checksum(bytes) != commit.crc32c() || !staged.ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat("the changes below etcd's key ", keys_.Staged(),
                                            " are not those that ", keys_.Commit(),
                                            " speaks of: put back a snapshot of etcd"));
  }
  LOG_INFO("a batch of %d changes that the last leader had committed is carried out",
           staged.ops_size());
  RETURN_IF_ERROR(Execute(std::vector<etcd_v1::Op>(staged.ops().begin(), staged.ops().end())));
  return RemoveStaged();
}

// Carrying the same changes out twice gives the same keys: they are only written by one leader.
absl::Status FencedLog::Execute(const std::vector<etcd_v1::Op>& ops) {
  for (auto next = ops.begin(); next != ops.end();) {
    EtcdTxn txn(limits_);
    next = txn.AddSome(next, ops.end());
    RETURN_IF_ERROR(Commit(txn));
  }
  return absl::OkStatus();
}

absl::Status FencedLog::RemoveStaged() {
  EtcdOps ops(limits_);
  ops.Delete(keys_.Commit());
  ops.DeleteRange(keys_.Staged(), EtcdKeys::EndOf(keys_.Staged()));
  return Execute(ops.list());
}

}  // namespace fsdp::coordinator
