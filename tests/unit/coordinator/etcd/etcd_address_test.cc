#include "coordinator/store/etcd/etcd_address.h"

#include "coordinator/store/etcd/etcd_keys.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(EtcdAddressTest, MembersAndPrefixAreRead) {
  const auto address = ParseEtcdAddress("etcd://a:2379,10.0.0.1:2380/prod/fsdp/");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_THAT(address->members, ElementsAre("a:2379", "10.0.0.1:2380"));
  EXPECT_EQ(address->prefix, "/prod/fsdp");
  EXPECT_EQ(ParseEtcdAddress("etcd://a:1")->prefix, "/fsdp");
}

TEST(EtcdAddressTest, WhatIsWrongIsNamed) {
  for (const auto& [text, problem] : std::initializer_list<std::pair<const char*, const char*>>{
           {"http://a:1", "does not begin with etcd://"},
           {"etcd://", "'' is no HOST:PORT"},
           {"etcd://a:1,b", "'b' is no HOST:PORT"},
           {"etcd://a:70000", "'a:70000' is no HOST:PORT"},
           {"etcd://user@a:1", "'user@a:1' is no HOST:PORT"},
           {"etcd://a:1/pre fix", "the prefix /pre fix has characters"}}) {
    const auto address = ParseEtcdAddress(text);
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(address.status().message()), HasSubstr(problem));
    EXPECT_THAT(std::string(address.status().message()), HasSubstr("want etcd://HOST:PORT"));
  }
}

TEST(EtcdKeysTest, KeysSortAsTheirNumbersAndNamesComeBack) {
  const EtcdKeys keys("/p");
  EXPECT_LT(keys.Of("logs", JobId("a"), 9), keys.Of("logs", JobId("a"), 10));
  EXPECT_LT(keys.Of("logs", JobId("a"), 255), keys.Of("logs", JobId("a"), 256));
  EXPECT_EQ(EtcdKeys::NumberOf(keys.Of("logs", JobId("a"), 4711)), 4711);
  const std::string odd("a/%\0z", 5);
  EXPECT_EQ(EtcdKeys::Unescaped(keys.Worker(odd).substr(keys.Workers().size())), odd);
  // No key of one job lies in the range of another's.
  const std::string of_a = keys.Of("logs", JobId("a"));
  for (const char* other : {"a-", "a0", "aa", "b", "A"}) {
    const std::string key = keys.Of("logs", JobId(other), 1);
    EXPECT_FALSE(key >= of_a && key < EtcdKeys::EndOf(of_a)) << other;
  }
}

}  // namespace
}  // namespace fsdp::coordinator
