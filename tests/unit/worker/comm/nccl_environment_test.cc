#include "worker/comm/nccl/nccl_environment.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

std::string Variable(const char* name) {
  const char* const value = ::getenv(name);
  return value == nullptr ? "" : value;
}

// What a process of its own, as ranks are, finds in NCCL_HOSTID.
std::string HostIdOf(int rank) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    PrepareSharedDevice(rank);
    const std::string id = Variable("NCCL_HOSTID");
    ::_exit(::write(ends[1], id.data(), id.size()) == static_cast<ssize_t>(id.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  char text[128] = {};
  EXPECT_GT(::read(ends[0], text, sizeof text - 1), 0);
  ::close(ends[0]);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  return text;
}

class NcclEnvironmentTest : public ::testing::Test {
 protected:
  void SetUp() override { Clear(); }
  void TearDown() override { Clear(); }
  static void Clear() {
    for (const char* name : {"NCCL_HOSTID", "NCCL_IB_DISABLE", "NCCL_SOCKET_IFNAME"}) {
      ::unsetenv(name);
    }
  }
};

// The same rank number twice: a rank of an earlier epoch that lives on beside a newer one.
TEST_F(NcclEnvironmentTest, EveryProcessOnASharedDeviceIsAHostOfItsOwn) {
  EXPECT_EQ((std::set<std::string>{HostIdOf(0), HostIdOf(1), HostIdOf(1)}).size(), 3U);
}

TEST_F(NcclEnvironmentTest, SharingADeviceStaysOffInfiniBandAndLeavesTheUsersWordAlone) {
  ::setenv("NCCL_HOSTID", "mine", 1);
  PrepareSharedDevice(0);
  EXPECT_EQ(Variable("NCCL_HOSTID"), "mine");
  EXPECT_EQ(Variable("NCCL_IB_DISABLE"), "1");
}

TEST_F(NcclEnvironmentTest, SocketsUseTheInterfaceOfTheBindAddress) {
  ASSERT_TRUE(PrepareNcclInterface("").ok());
  EXPECT_EQ(Variable("NCCL_SOCKET_IFNAME"), "lo");
  Clear();
  ASSERT_TRUE(PrepareNcclInterface("127.0.0.1").ok());
  EXPECT_EQ(Variable("NCCL_SOCKET_IFNAME"), "=lo");
  const absl::Status status = PrepareNcclInterface("192.0.2.77");
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("192.0.2.77"));
}

}  // namespace
}  // namespace fsdp
