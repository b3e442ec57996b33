#ifndef FSDPCTL_WORKER_DAEMON_JOB_NETWORK_H_
#define FSDPCTL_WORKER_DAEMON_JOB_NETWORK_H_

// Which of this host's networks the ranks use among themselves: one address and its interface,
// chosen from --bind-address, --interface and --job-network. Chosen once, when the daemon starts.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/v1/worker_service.pb.h"

namespace fsdp::daemon {

// One address of an interface; an interface without any has one entry with an empty address.
struct InterfaceAddress {
  std::string interface;
  // Numeric, without brackets: "10.0.0.2", "fd00::2".
  std::string address;
  bool up = true;
  bool loopback = false;
};

// As the flags give it; all empty: loopback.
struct NetworkRequest {
  // Numeric (brackets allowed) or a host name.
  std::string bind_address;
  // Its exact name.
  std::string interface;
  // "10.1.0.0/16", "fd00:1::/64": the interface is the one that has an address in it.
  std::string job_network;
};

// Unless chosen: loopback.
struct JobNetwork {
  std::string interface = "lo";
  // What ranks bind and peers dial; numeric, without brackets.
  std::string address = "127.0.0.1";
  bool loopback = true;

  [[nodiscard]] bool ipv6() const { return address.find(':') != std::string::npos; }
};

// All of this host, loopback among them, in the system's order.
absl::StatusOr<std::vector<InterfaceAddress>> ListInterfaces();

// "eth0 (10.0.0.2, fd00::2), eth1 (down), lo (127.0.0.1)".
std::string DescribeInterfaces(const std::vector<InterfaceAddress>& interfaces);

// A host name becomes the first of its addresses that this host has; everything else stays. Asks
// the system's resolver for a name.
//   NOT_FOUND  the name has no address, or none of this host
absl::StatusOr<NetworkRequest> ResolveBindAddress(NetworkRequest request,
                                                  const std::vector<InterfaceAddress>& interfaces);

// What is given must agree. IPv4 goes before IPv6 where both fit; a link-local address never fits,
// since peers would have to name their own interface with it. Pure. Messages name the flag, its
// value and the interfaces that there are.
//   INVALID_ARGUMENT  not an address or network; 0.0.0.0 and [::], which peers cannot dial
//   NOT_FOUND         no interface, or none that is up, fits; or more than one does
absl::StatusOr<JobNetwork> ChooseJobNetwork(const NetworkRequest& request,
                                            const std::vector<InterfaceAddress>& interfaces);

// For trainers: the interface and family that NCCL and Gloo take, NCCL's for exactly that name.
std::map<std::string, std::string> NetworkEnvironment(const JobNetwork& network);

// Ranks on several hosts need a network that all of them reach.
//   FAILED_PRECONDITION  this worker keeps to loopback and a peer is on another host; or a peer
//                        does, or is of the other address family: names the worker and the flags
absl::Status CheckPeers(const JobNetwork& network, const v1::StartRank& start);

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_JOB_NETWORK_H_
