#include "proto/support/listen_address.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

TEST(ListenAddressTest, OnlyWhatNoOtherMachineReachesIsLoopback) {
  for (const char* address : {"127.0.0.1:0", "127.8.9.10:7070", "[::1]:7070", "localhost:1"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
    EXPECT_TRUE(CheckListenAddress("listen", address, false).ok()) << address;
  }
  // A name that begins like the network is a name; a list of addresses is none of its members.
  for (const char* address : {"0.0.0.0:7070", "[::]:7070", "[fd00::1]:7070", "10.0.0.1:7070",
                              "host.example:1", "127.0.0.1.example:1", "127.example:1", "*:80"}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
    const absl::Status status = CheckListenAddress("listen", address, false);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("--listen=") + address));
    EXPECT_THAT(std::string(status.message()), HasSubstr("add --insecure"));
    EXPECT_TRUE(CheckListenAddress("listen", address, true).ok()) << address;
  }
}

TEST(ListenAddressTest, WhatIsNoAddressIsRefusedWhateverIsAllowed) {
  for (const char* address :
       {"", "7070", ":7070", "127.0.0.1:", "127.0.0.1:99999", "1:2:x", "127.0.0.1:-1",
        "127.0.0.1:80s", "::1:7070", "[::1]", "[]:80", "[127.0.0.1]:7070", "[host]:80", "[::1:80",
        "::1]:80", "fd00::1", "127.0.0.1:80,0.0.0.0:80"}) {
    EXPECT_FALSE(IsHostPort(address)) << address;
    EXPECT_EQ(CheckListenAddress("listen", address, true).code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
}

TEST(ListenAddressTest, AnIpv6AddressWithoutBracketsIsToldHowToWriteIt) {
  const absl::Status status = CheckListenAddress("listen", "fd00::1:7070", true);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--listen=fd00::1:7070"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("[fd00::1]:7070"));
  EXPECT_THAT(HostPortRemedy("host"), HasSubstr("want HOST:PORT"));
}

TEST(ListenAddressTest, JoinsWithBracketsWhereTheyAreNeeded) {
  EXPECT_EQ(JoinHostPort("10.0.0.1", 7070), "10.0.0.1:7070");
  EXPECT_EQ(JoinHostPort("node1.example", 1), "node1.example:1");
  EXPECT_EQ(JoinHostPort("fd00::1", 7070), "[fd00::1]:7070");
  EXPECT_EQ(JoinHostPort("[::]", 0), "[::]:0");
}

}  // namespace
}  // namespace fsdp
