#ifndef FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_TXN_H_
#define FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_TXN_H_

// Changes of keys in order, and the transactions that they go into: etcd takes a bounded number of
// bytes and operations in one, and no key twice.
//
// A value that is longer than a part is kept in parts: the key's own value says how many follow, at
// KEY NUL NUMBER, which sort right after it. Not thread-safe.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/store/etcd/etcd.h"
#include "coordinator/store/etcd/etcd_value.pb.h"

namespace fsdp::coordinator {

namespace etcd_v1 = ::fsdp::etcd::v1;

struct EtcdLimits {
  // etcd's --max-txn-ops (128), less what FencedLog adds.
  std::size_t max_ops = 120;
  // Below etcd's --max-request-bytes (1.5 MiB), and the size of a staged part.
  std::size_t max_bytes = std::size_t{1} << 20;
  // Of a value.
  std::size_t max_part_bytes = std::size_t{512} << 10;
};

// Changes, in the order in which they happen.
class EtcdOps {
 public:
  explicit EtcdOps(const EtcdLimits& limits) : limits_(limits) {}

  void Put(const std::string& key, const std::string& value);
  void Delete(const std::string& key);
  // [begin, end).
  void DeleteRange(const std::string& begin, const std::string& end);

  [[nodiscard]] const std::vector<etcd_v1::Op>& list() const { return list_; }
  [[nodiscard]] bool empty() const { return list_.empty(); }

 private:
  const EtcdLimits limits_;
  std::vector<etcd_v1::Op> list_;
};

// One transaction in the making.
class EtcdTxn {
 public:
  explicit EtcdTxn(const EtcdLimits& limits) : limits_(limits) {}

  // The first operations of [begin, end) that still fit are taken in; where the rest begins.
  using Iterator = std::vector<etcd_v1::Op>::const_iterator;
  Iterator AddSome(Iterator begin, Iterator end);
  // All of them, or false and nothing.
  bool AddAll(const EtcdOps& ops);

  [[nodiscard]] bool empty() const { return puts_.empty() && deletes_.empty(); }
  void AppendTo(etcd::TxnRequest* request) const;

 private:
  bool Add(const etcd_v1::Op& op);
  bool Put(const etcd_v1::Op& op);
  bool Delete(const std::string& begin, const std::string& end);

  EtcdLimits limits_;
  std::map<std::string, std::string> puts_;
  // Begin to end; none overlaps another, and no put lies in one.
  std::map<std::string, std::string> deletes_;
  std::size_t bytes_ = 0;
};

// Puts values that are kept in parts together again. Keys must come in order, whole ranges.
class EtcdValueReader {
 public:
  // The key's value once it is complete, else null; valid until the next call. A part that belongs
  // to nothing (an earlier, longer value's) is passed over.
  //   DATA_LOSS  parts are missing
  struct Item {
    std::string key;
    std::string value;
  };
  absl::StatusOr<const Item*> Next(const etcd::KeyValue& kv);
  // After the last.
  //   DATA_LOSS
  [[nodiscard]] absl::Status End() const;

 private:
  Item item_;
  std::int64_t parts_left_ = 0;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_TXN_H_
