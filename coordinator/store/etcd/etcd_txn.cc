#include "coordinator/store/etcd/etcd_txn.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// The first byte of a value.
constexpr char kWhole = 'w';
constexpr char kInParts = 'p';
constexpr char kPartSeparator = '\0';

// Of the protocol, for each operation.
constexpr std::size_t kOpBytes = 32;

std::string PartPrefix(const std::string& key) { return key + kPartSeparator; }
// After the key and all its parts, before any other key of ours.
std::string EndOfParts(const std::string& key) { return key + '\1'; }

}  // namespace

void EtcdOps::Put(const std::string& key, const std::string& value) {
  const auto add = [this](const std::string& at, std::string bytes) {
    etcd_v1::Op& op = list_.emplace_back();
    op.set_put(at);
    op.set_value(std::move(bytes));
  };
  if (value.size() <= limits_.max_part_bytes) return add(key, kWhole + value);
  const std::size_t parts = (value.size() + limits_.max_part_bytes - 1) / limits_.max_part_bytes;
  add(key, absl::StrCat(std::string(1, kInParts), parts));
  for (std::size_t i = 0; i < parts; ++i) {
    add(PartPrefix(key) + absl::StrFormat("%08x", i),
        value.substr(i * limits_.max_part_bytes, limits_.max_part_bytes));
  }
}

void EtcdOps::Delete(const std::string& key) { list_.emplace_back().set_remove(key); }

void EtcdOps::DeleteRange(const std::string& begin, const std::string& end) {
  etcd_v1::Op& op = list_.emplace_back();
  op.set_remove_range(begin);
  op.set_range_end(end);
}

EtcdTxn::Iterator EtcdTxn::AddSome(Iterator begin, Iterator end) {
  return std::find_if_not(begin, end, [this](const etcd_v1::Op& op) { return Add(op); });
}

bool EtcdTxn::AddAll(const EtcdOps& ops) {
  EtcdTxn with = *this;
  if (with.AddSome(ops.list().begin(), ops.list().end()) != ops.list().end()) return false;
  *this = std::move(with);
  return true;
}

bool EtcdTxn::Add(const etcd_v1::Op& op) {
  switch (op.change_case()) {
    case etcd_v1::Op::kPut:
      return Put(op);
    case etcd_v1::Op::kRemove:
      return Delete(op.remove(), EndOfParts(op.remove()));
    case etcd_v1::Op::kRemoveRange:
      return Delete(op.remove_range(), op.range_end());
    case etcd_v1::Op::CHANGE_NOT_SET:
      break;
  }
  return true;
}

bool EtcdTxn::Put(const etcd_v1::Op& op) {
  // In what this transaction deletes: unless it is that very key, whose deletion is then for
  // nothing.
  auto deleted = deletes_.upper_bound(op.put());
  if (deleted != deletes_.begin() && op.put() < (--deleted)->second) {
    if (deleted->first != op.put() || deleted->second != EndOfParts(op.put())) return false;
    deletes_.erase(deleted);
  }
  const auto known = puts_.find(op.put());
  const std::size_t bytes = op.put().size() + op.value().size() + kOpBytes;
  const std::size_t old_bytes =
      known == puts_.end() ? 0 : known->first.size() + known->second.size() + kOpBytes;
  // One operation is always taken: else nothing would ever happen.
  const bool fits = bytes_ - old_bytes + bytes <= limits_.max_bytes &&
                    (known != puts_.end() || puts_.size() + deletes_.size() < limits_.max_ops);
  if (!fits && !empty()) return false;
  bytes_ += bytes - old_bytes;
  puts_[op.put()] = op.value();
  return true;
}

bool EtcdTxn::Delete(const std::string& begin, const std::string& end) {
  // Inside of a larger deletion it changes nothing; one that overlaps another otherwise must wait.
  for (const auto& [other_begin, other_end] : deletes_) {
    if (other_begin <= begin && end <= other_end) return true;
    if (begin < other_end && other_begin < end) return false;
  }
  if (puts_.size() + deletes_.size() >= limits_.max_ops && !empty()) return false;
  for (auto put = puts_.lower_bound(begin); put != puts_.end() && put->first < end;) {
    bytes_ -= put->first.size() + put->second.size() + kOpBytes;
    put = puts_.erase(put);
  }
  deletes_[begin] = end;
  bytes_ += begin.size() + end.size() + kOpBytes;
  return true;
}

void EtcdTxn::AppendTo(etcd::TxnRequest* request) const {
  for (const auto& [begin, end] : deletes_) {
    etcd::DeleteRangeRequest& drop = *request->add_success()->mutable_request_delete_range();
    drop.set_key(begin);
    drop.set_range_end(end);
  }
  for (const auto& [key, value] : puts_) {
    etcd::PutRequest& put = *request->add_success()->mutable_request_put();
    put.set_key(key);
    put.set_value(value);
  }
}

absl::StatusOr<const EtcdValueReader::Item*> EtcdValueReader::Next(const etcd::KeyValue& kv) {
  const std::size_t separator = kv.key().find(kPartSeparator);
  if (separator != std::string::npos) {
    if (parts_left_ == 0 || kv.key().compare(0, separator, item_.key) != 0) return nullptr;
    item_.value += kv.value();
    return --parts_left_ == 0 ? &item_ : nullptr;
  }
  RETURN_IF_ERROR(End());
  item_.key = kv.key();
  const std::string& value = kv.value();
  if (!value.empty() && value[0] == kWhole) {
    item_.value.assign(value, 1);
    return &item_;
  }
  item_.value.clear();
  if (value.empty() || value[0] != kInParts ||
      !absl::SimpleAtoi(absl::string_view(value).substr(1), &parts_left_) || parts_left_ < 1) {
    return absl::DataLossError(
        absl::StrCat("the value of etcd's key ", kv.key(), " is not one of a coordinator's"));
  }
  return nullptr;
}

absl::Status EtcdValueReader::End() const {
  if (parts_left_ == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("etcd's key ", item_.key, " lacks ", parts_left_, " parts of its value"));
}

}  // namespace fsdp::coordinator
