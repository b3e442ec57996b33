#include "worker/daemon/job_network.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::daemon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::vector<InterfaceAddress> TwoNetworks() {
  return {
      {"lo", "127.0.0.1", true, true}, {"lo", "::1", true, true},   {"eth0", "192.168.7.4", true},
      {"eth0", "fe80::1", true},       {"eth1", "fd00:1::4", true}, {"eth1", "10.1.0.4", true},
      {"eth2", "10.9.0.4", false},     {"ib0", "fe80::2", true},    {"ib1", "", true},
      {"eth3", "fd00:3::4", true}};
}

JobNetwork Chosen(const NetworkRequest& request,
                  const std::vector<InterfaceAddress>& interfaces = TwoNetworks()) {
  const absl::StatusOr<JobNetwork> chosen = ChooseJobNetwork(request, interfaces);
  EXPECT_TRUE(chosen.ok()) << chosen.status();
  return chosen.value_or(JobNetwork{});
}

std::string Refused(const NetworkRequest& request,
                    absl::StatusCode code = absl::StatusCode::kNotFound,
                    const std::vector<InterfaceAddress>& interfaces = TwoNetworks()) {
  const absl::StatusOr<JobNetwork> chosen = ChooseJobNetwork(request, interfaces);
  EXPECT_EQ(chosen.status().code(), code) << chosen.status();
  return std::string(chosen.status().message());
}

TEST(JobNetworkTest, WithoutFlagsRanksKeepToTheLoopbackThatTheHostHas) {
  EXPECT_EQ(Chosen({}).address, "127.0.0.1");
  EXPECT_EQ(Chosen({}).interface, "lo");
  EXPECT_TRUE(Chosen({}).loopback);
  const JobNetwork only6 = Chosen({}, {{"lo", "::1", true, true}, {"eth0", "fd00::1", true}});
  EXPECT_EQ(only6.address, "::1");
  EXPECT_TRUE(only6.ipv6());
  // An address of the host's own that routers announce is no loopback for ranks.
  const JobNetwork renamed =
      Chosen({}, {{"lo0", "10.99.0.1", true, true}, {"lo0", "127.0.0.1", true, true}});
  EXPECT_EQ(renamed.interface, "lo0");
  EXPECT_EQ(renamed.address, "127.0.0.1");
}

TEST(JobNetworkTest, AnAddressNamesItsInterface) {
  EXPECT_EQ(Chosen({.bind_address = "10.1.0.4"}).interface, "eth1");
  EXPECT_FALSE(Chosen({.bind_address = "10.1.0.4"}).loopback);
  // However it is written.
  EXPECT_EQ(Chosen({.bind_address = "fd00:1:0:0::0004"}).address, "fd00:1::4");
  EXPECT_TRUE(Chosen({.bind_address = "127.0.0.1"}).loopback);
}

TEST(JobNetworkTest, AnInterfaceGivesIpv4BeforeIpv6AndNeverLinkLocal) {
  EXPECT_EQ(Chosen({.interface = "eth1"}).address, "10.1.0.4");
  EXPECT_EQ(Chosen({.interface = "eth0"}).address, "192.168.7.4");
  EXPECT_EQ(Chosen({.interface = "eth3"}).address, "fd00:3::4");
  EXPECT_EQ(Chosen({.interface = "eth1", .job_network = "fd00:1::/64"}).address, "fd00:1::4");
  EXPECT_EQ(Chosen({.interface = "lo"}).address, "127.0.0.1");
}

TEST(JobNetworkTest, ANetworkFindsTheInterfaceThatIsInIt) {
  EXPECT_EQ(Chosen({.job_network = "10.1.0.0/16"}).interface, "eth1");
  EXPECT_EQ(Chosen({.job_network = "192.168.7.4/32"}).interface, "eth0");
  EXPECT_EQ(Chosen({.job_network = "192.168.6.0/23"}).interface, "eth0");
  EXPECT_EQ(Chosen({.job_network = "fd00:3::/35"}).address, "fd00:3::4");
  EXPECT_EQ(Chosen({.job_network = "fd00:3::4/128"}).address, "fd00:3::4");
  EXPECT_THAT(Refused({.job_network = "192.168.8.0/23"}),
              HasSubstr("no address of this host fits"));
}

TEST(JobNetworkTest, AWrongInterfaceIsAnErrorThatNamesThoseThereAre) {
  EXPECT_THAT(Refused({.interface = "eth9"}),
              AllOf(HasSubstr("--interface=eth9: this host has no such interface"),
                    HasSubstr("lo (127.0.0.1, ::1), eth0 (192.168.7.4, fe80::1), "
                              "eth1 (fd00:1::4, 10.1.0.4), eth2 (down, 10.9.0.4), ib0 (fe80::2), "
                              "ib1 (no address), eth3 (fd00:3::4)")));
  EXPECT_THAT(Refused({.interface = "eth2"}), HasSubstr("--interface=eth2: the interface is down"));
  EXPECT_THAT(Refused({.interface = "ib0"}), HasSubstr("no address that peers could dial"));
  EXPECT_THAT(Refused({.interface = "ib1"}), HasSubstr("no address that peers could dial"));
  // A prefix is no name.
  EXPECT_THAT(Refused({.interface = "eth"}), HasSubstr("no such interface"));
  EXPECT_THAT(Refused({.bind_address = "10.1.0.5"}),
              AllOf(HasSubstr("--bind-address=10.1.0.5: is not an address of this host"),
                    HasSubstr("eth1 (")));
  EXPECT_THAT(Refused({.interface = "eth1"}, absl::StatusCode::kNotFound, {}),
              HasSubstr("it has no interface"));
}

TEST(JobNetworkTest, FlagsThatDisagreeAreRefusedTogether) {
  EXPECT_THAT(Refused({.bind_address = "10.1.0.4", .interface = "eth0"}),
              HasSubstr("--bind-address=10.1.0.4 --interface=eth0"));
  EXPECT_THAT(Refused({.interface = "eth0", .job_network = "10.1.0.0/16"}),
              HasSubstr("--interface=eth0 --job-network=10.1.0.0/16"));
}

TEST(JobNetworkTest, TwoInterfacesInOneNetworkNeedAWord) {
  const std::vector<InterfaceAddress> twins = {{"eth0", "10.1.0.4", true},
                                               {"eth1", "10.1.0.5", true}};
  EXPECT_THAT(
      Refused({.job_network = "10.1.0.0/16"}, absl::StatusCode::kNotFound, twins),
      AllOf(HasSubstr("fits eth0 (10.1.0.4), eth1 (10.1.0.5)"), HasSubstr("add --interface")));
  EXPECT_EQ(Chosen({.interface = "eth1", .job_network = "10.1.0.0/16"}, twins).address, "10.1.0.5");
}

TEST(JobNetworkTest, WhatIsNoNetworkIsToldHowToWriteIt) {
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  for (const char* text : {"10.1.0.0", "10.1.0.0/", "10.1.0.0/33", "10.1.0.0/-1", "fd00::/129",
                           "/8", "eth0/8", "10.1/16", "10.1.0.0/16/8", "10.1.0.0/x"}) {
    EXPECT_THAT(Refused({.job_network = text}, kBad),
                AllOf(HasSubstr(absl::StrCat("--job-network=", text)), HasSubstr("10.1.0.0/16")));
  }
  EXPECT_THAT(Refused({.job_network = "10.1.0.4/16"}, kBad), HasSubstr("write 10.1.0.0/16"));
  EXPECT_THAT(Refused({.job_network = "fd00:1::4/63"}, kBad), HasSubstr("write fd00:1::/63"));
  for (const char* any : {"0.0.0.0", "::"}) {
    EXPECT_THAT(Refused({.bind_address = any}, kBad), HasSubstr("peers must be told one address"));
  }
}

TEST(JobNetworkTest, NamesAndBracketsBecomeNumbers) {
  EXPECT_EQ(ResolveBindAddress({.bind_address = "[fd00:1::4]"}, TwoNetworks())->bind_address,
            "fd00:1::4");
  EXPECT_EQ(ResolveBindAddress({.bind_address = "localhost"}, TwoNetworks())->bind_address,
            "127.0.0.1");
  EXPECT_EQ(ResolveBindAddress({}, TwoNetworks())->bind_address, "");
  // ".invalid" never resolves (RFC 2606).
  const auto unknown = ResolveBindAddress({.bind_address = "node1.invalid"}, TwoNetworks());
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.status().message()),
              AllOf(HasSubstr("--bind-address=node1.invalid"), HasSubstr("eth1 (fd00:1::4")));
}

TEST(JobNetworkTest, ThisHostsLoopbackIsListed) {
  const auto interfaces = ListInterfaces();
  ASSERT_TRUE(interfaces.ok()) << interfaces.status();
  EXPECT_THAT(*interfaces, ::testing::Contains(::testing::Truly([](const InterfaceAddress& one) {
    return one.loopback && one.up && (one.address == "127.0.0.1" || one.address == "::1");
  })));
}

TEST(JobNetworkTest, TrainersAreToldInterfaceAndFamily) {
  EXPECT_THAT(NetworkEnvironment({"eth1", "10.1.0.4", false}),
              UnorderedElementsAre(Pair("NCCL_SOCKET_IFNAME", "=eth1"),
                                   Pair("NCCL_SOCKET_FAMILY", "AF_INET"),
                                   Pair("GLOO_SOCKET_IFNAME", "eth1")));
  EXPECT_EQ(NetworkEnvironment({"eth1", "fd00::4", false})["NCCL_SOCKET_FAMILY"], "AF_INET6");
}

v1::StartRank TwoHosts(const std::string& mine, const std::string& theirs,
                       const std::string& their_host = "b") {
  v1::StartRank start;
  start.mutable_key()->set_rank(1);
  for (const auto& [host, address] :
       {std::pair(their_host, theirs), std::pair(std::string("a"), mine)}) {
    v1::RankPeer& peer = *start.add_peers();
    peer.set_rank(start.peers_size() - 1);
    peer.set_worker(absl::StrCat("workers/", host, "-cpu-", peer.rank()));
    peer.set_host(host);
    peer.set_address(address);
  }
  return start;
}

TEST(CheckPeersTest, LoopbackServesOneHostOnly) {
  const JobNetwork loopback;
  EXPECT_TRUE(CheckPeers(loopback, TwoHosts("127.0.0.1", "127.0.0.1", "a")).ok());
  const absl::Status mine = CheckPeers(loopback, TwoHosts("127.0.0.1", "10.1.0.5"));
  EXPECT_EQ(mine.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(mine.message()),
              AllOf(HasSubstr("workers/a-cpu-1 keeps its ranks to loopback (127.0.0.1)"),
                    HasSubstr("--job-network, --interface or --bind-address")));
  const JobNetwork network{"eth1", "10.1.0.4", false};
  EXPECT_THAT(std::string(CheckPeers(network, TwoHosts("10.1.0.4", "127.0.0.1")).message()),
              HasSubstr("workers/b-cpu-0 keeps its ranks to loopback"));
  EXPECT_THAT(std::string(CheckPeers(network, TwoHosts("10.1.0.4", "::1")).message()),
              HasSubstr("workers/b-cpu-0 keeps its ranks to loopback (::1)"));
}

TEST(CheckPeersTest, OneFamilyForAll) {
  const JobNetwork v4{"eth1", "10.1.0.4", false};
  const JobNetwork v6{"eth1", "fd00:1::4", false};
  EXPECT_TRUE(CheckPeers(v4, TwoHosts("10.1.0.4", "10.1.0.5")).ok());
  EXPECT_TRUE(CheckPeers(v6, TwoHosts("fd00:1::4", "fd00:1::5")).ok());
  EXPECT_THAT(std::string(CheckPeers(v6, TwoHosts("fd00:1::4", "10.1.0.5")).message()),
              AllOf(HasSubstr("workers/b-cpu-0 at 10.1.0.5"), HasSubstr("one is IPv4"),
                    HasSubstr("--job-network")));
  EXPECT_THAT(std::string(CheckPeers(v4, TwoHosts("10.1.0.4", "fd00:1::5")).message()),
              Not(HasSubstr("loopback")));
  EXPECT_FALSE(CheckPeers(v4, TwoHosts("10.1.0.4", "fd00:1::5")).ok());
  // A worker of an older release may have said a name: it is left to the ranks.
  EXPECT_TRUE(CheckPeers(v4, TwoHosts("10.1.0.4", "node2")).ok());
}

}  // namespace
}  // namespace fsdp::daemon
