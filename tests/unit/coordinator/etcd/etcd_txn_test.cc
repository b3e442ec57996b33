#include "coordinator/store/etcd/etcd_txn.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::coordinator {
namespace {

using ::testing::ElementsAre;

// "put a", "delete b", in the order in which etcd carries them out.
std::vector<std::string> Summary(const EtcdTxn& txn) {
  etcd::TxnRequest request;
  txn.AppendTo(&request);
  std::vector<std::string> result;
  for (const etcd::RequestOp& op : request.success()) {
    result.push_back(op.has_request_put() ? "put " + op.request_put().key()
                                          : "delete " + op.request_delete_range().key());
  }
  return result;
}

TEST(EtcdTxnTest, TheLastChangeOfAKeyIsTheOne) {
  EtcdTxn txn(EtcdLimits{});
  EtcdOps ops(EtcdLimits{});
  ops.Put("a", "1");
  ops.Delete("a");
  ops.Put("b", "1");
  ops.Put("b", "2");
  ops.Delete("c");
  ops.Put("c", "1");
  ASSERT_TRUE(txn.AddAll(ops));
  EXPECT_THAT(Summary(txn), ElementsAre("delete a", "put b", "put c"));
}

TEST(EtcdTxnTest, APutIntoADeletedRangeWaitsForTheNextTransaction) {
  EtcdTxn txn(EtcdLimits{});
  EtcdOps ops(EtcdLimits{});
  ops.Put("j/1", "old");
  ops.DeleteRange("j/", "j0");
  ops.Put("j/2", "new");
  EXPECT_FALSE(txn.AddAll(ops));
  EXPECT_TRUE(txn.empty()) << "all or none";
  const auto rest = txn.AddSome(ops.list().begin(), ops.list().end());
  EXPECT_EQ(rest - ops.list().begin(), 2);
  EXPECT_THAT(Summary(txn), ElementsAre("delete j/"));
}

TEST(EtcdTxnTest, LimitsHoldButOneOperationIsAlwaysTaken) {
  const EtcdLimits limits{.max_ops = 2, .max_bytes = 200, .max_part_bytes = 1000};
  EtcdOps ops(limits);
  ops.Put("a", std::string(900, 'x'));
  ops.Put("b", "1");
  EtcdTxn txn(limits);
  EXPECT_EQ(txn.AddSome(ops.list().begin(), ops.list().end()) - ops.list().begin(), 1);
  EtcdOps three(limits);
  for (const char* key : {"a", "b", "a", "c"}) three.Put(key, "1");
  EtcdTxn two(limits);
  EXPECT_EQ(two.AddSome(three.list().begin(), three.list().end()) - three.list().begin(), 3);
}

TEST(EtcdValueReaderTest, PartsArePutTogetherAndMissingOnesNamed) {
  const EtcdLimits limits{.max_part_bytes = 4};
  EtcdOps ops(limits);
  ops.Put("k", "0123456789");
  EtcdTxn txn(limits);
  ASSERT_TRUE(txn.AddAll(ops));
  etcd::TxnRequest request;
  txn.AppendTo(&request);
  ASSERT_EQ(request.success_size(), 4);
  const auto read = [&](int count) -> absl::StatusOr<std::string> {
    EtcdValueReader reader;
    std::string value = "incomplete";
    for (int i = 0; i < count; ++i) {
      etcd::KeyValue kv;
      kv.set_key(request.success(i).request_put().key());
      kv.set_value(request.success(i).request_put().value());
      const auto item = reader.Next(kv);
      if (!item.ok()) return item.status();
      if (*item != nullptr) value = (*item)->value;
    }
    if (const absl::Status end = reader.End(); !end.ok()) return end;
    return value;
  };
  EXPECT_EQ(*read(4), "0123456789");
  EXPECT_EQ(read(3).status().message(), "etcd's key k lacks 1 parts of its value");
  // Parts of an earlier, longer value are passed over.
  EtcdValueReader reader;
  etcd::KeyValue kv;
  kv.set_key(
      std::string("k\0"
                  "00000007",
                  10));
  EXPECT_EQ(*reader.Next(kv), nullptr);
  EXPECT_TRUE(reader.End().ok());
}

}  // namespace
}  // namespace fsdp::coordinator
