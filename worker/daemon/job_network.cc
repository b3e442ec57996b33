#include "worker/daemon/job_network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"

namespace fsdp::daemon {
namespace {

// An address in network byte order; 4 or 16 bytes.
struct Bytes {
  std::array<std::uint8_t, 16> value{};
  int size = 0;
};

std::optional<Bytes> ParseNumeric(const std::string& text) {
  Bytes bytes;
  if (::inet_pton(AF_INET, text.c_str(), bytes.value.data()) == 1) {
    bytes.size = 4;
  } else if (::inet_pton(AF_INET6, text.c_str(), bytes.value.data()) == 1) {
    bytes.size = 16;
  } else {
    return std::nullopt;
  }
  return bytes;
}

std::string Format(const Bytes& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(bytes.size == 4 ? AF_INET : AF_INET6, bytes.value.data(), text, sizeof text);
  return text;
}

bool IsLinkLocal(const Bytes& bytes) {
  if (bytes.size == 4) return bytes.value[0] == 169 && bytes.value[1] == 254;
  return bytes.value[0] == 0xfe && (bytes.value[1] & 0xc0) == 0x80;
}

struct Network {
  Bytes base;
  int prefix_length = 0;

  // `bytes` with what lies beyond the prefix cleared.
  [[nodiscard]] Bytes Masked(Bytes bytes) const {
    for (int i = 0; i < bytes.size; ++i) {
      const int kept = std::clamp(prefix_length - 8 * i, 0, 8);
      bytes.value[i] &= static_cast<std::uint8_t>(0xff00 >> kept);
    }
    return bytes;
  }
  [[nodiscard]] bool Has(const Bytes& bytes) const {
    return bytes.size == base.size && Masked(bytes).value == base.value;
  }
};

absl::StatusOr<Network> ParseNetwork(const std::string& text) {
  const auto bad = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("--job-network=", text, ": ", why));
  };
  const std::size_t slash = text.find('/');
  const std::optional<Bytes> base = ParseNumeric(text.substr(0, slash));
  Network network;
  if (slash == std::string::npos || !base ||
      !absl::SimpleAtoi(text.substr(slash + 1), &network.prefix_length) ||
      network.prefix_length < 0 || network.prefix_length > 8 * base->size) {
    return bad("use a network as ADDRESS/BITS, such as 10.1.0.0/16 or fd00:1::/64");
  }
  network.base = network.Masked(*base);
  if (network.base.value != base->value) {
    return bad(absl::StrCat("has bits beyond its prefix; write ", Format(network.base), "/",
                            network.prefix_length));
  }
  return network;
}

// Whoever asks for a loopback address by name or number gets it; by network or default too.
bool Fits(const InterfaceAddress& candidate, const NetworkRequest& request,
          const std::optional<Network>& network) {
  const std::optional<Bytes> bytes = ParseNumeric(candidate.address);
  if (!candidate.up || !bytes) return false;
  if (!request.interface.empty() && candidate.interface != request.interface) return false;
  if (network && !network->Has(*bytes)) return false;
  if (!request.bind_address.empty()) {
    const std::optional<Bytes> wanted = ParseNumeric(request.bind_address);
    return wanted && wanted->size == bytes->size && wanted->value == bytes->value;
  }
  return !IsLinkLocal(*bytes);
}

std::string Describe(const NetworkRequest& request) {
  std::vector<std::string> given;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) given.push_back(absl::StrCat("--", flag, "=", value));
  };
  add("bind-address", request.bind_address);
  add("interface", request.interface);
  add("job-network", request.job_network);
  return absl::StrJoin(given, " ");
}

absl::Status NothingFits(const NetworkRequest& request,
                         const std::vector<InterfaceAddress>& interfaces) {
  const auto named = [&](const InterfaceAddress& one) {
    return one.interface == request.interface;
  };
  std::string why = "no address of this host fits";
  if (!request.interface.empty() && std::ranges::none_of(interfaces, named)) {
    why = "this host has no such interface";
  } else if (!request.interface.empty() && request.bind_address.empty() &&
             request.job_network.empty()) {
    const bool up = std::ranges::any_of(
        interfaces, [&](const InterfaceAddress& one) { return named(one) && one.up; });
    why = up ? "the interface has no address that peers could dial (a link-local one will not do)"
             : "the interface is down";
  } else if (!request.bind_address.empty() && request.interface.empty() &&
             request.job_network.empty()) {
    why = "is not an address of this host";
  }
  return absl::NotFoundError(
      absl::StrCat(Describe(request), ": ", why, "; it has ", DescribeInterfaces(interfaces)));
}

// The system's loopback, whatever its interface is called and where 127.0.0.1 is not on it.
JobNetwork Loopback(const std::vector<InterfaceAddress>& interfaces) {
  JobNetwork network;
  const auto pick = [&](std::string_view address) {
    const auto found = std::ranges::find_if(interfaces, [&](const InterfaceAddress& one) {
      return one.loopback && one.up && one.address == address;
    });
    if (found == interfaces.end()) return false;
    network.interface = found->interface;
    network.address = found->address;
    return true;
  };
  if (!pick("127.0.0.1")) pick("::1");
  return network;
}

std::string NumericText(const sockaddr& address) {
  char text[NI_MAXHOST] = "";
  const socklen_t size = address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (::getnameinfo(&address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  // Without the scope of a link-local address.
  return std::string(text, std::strcspn(text, "%"));
}

}  // namespace

absl::StatusOr<std::vector<InterfaceAddress>> ListInterfaces() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return ErrnoToStatus(errno, "getifaddrs()");
  const absl::Cleanup free_all = [&] { ::freeifaddrs(all); };
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    InterfaceAddress one{.interface = entry->ifa_name,
                         .up = (entry->ifa_flags & IFF_UP) != 0,
                         .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0};
    const int family = entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    if (family == AF_INET || family == AF_INET6) one.address = NumericText(*entry->ifa_addr);
    found.push_back(std::move(one));
  }
  // The link layer's entry stays only for an interface that has no other.
  const std::vector<InterfaceAddress> entries = found;
  std::erase_if(found, [&](const InterfaceAddress& one) {
    return one.address.empty() && std::ranges::any_of(entries, [&](const InterfaceAddress& other) {
             return other.interface == one.interface && !other.address.empty();
           });
  });
  return found;
}

std::string DescribeInterfaces(const std::vector<InterfaceAddress>& interfaces) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<std::string>> notes;
  for (const InterfaceAddress& one : interfaces) {
    if (!notes.contains(one.interface)) {
      names.push_back(one.interface);
      if (!one.up) notes[one.interface].push_back("down");
    }
    std::vector<std::string>& note = notes[one.interface];
    if (!one.address.empty()) note.push_back(one.address);
  }
  if (names.empty()) return "no interface";
  return absl::StrJoin(names, ", ", [&](std::string* out, const std::string& name) {
    const std::vector<std::string>& note = notes[name];
    absl::StrAppend(out, name, " (", note.empty() ? "no address" : absl::StrJoin(note, ", "), ")");
  });
}

absl::StatusOr<NetworkRequest> ResolveBindAddress(NetworkRequest request,
                                                  const std::vector<InterfaceAddress>& interfaces) {
  std::string& host = request.bind_address;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty() || ParseNumeric(host)) return request;
  // Every host of a cluster calls itself that.
  if (host == "localhost") {
    host = Loopback(interfaces).address;
    return request;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* all = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &all);
  if (error != 0) {
    return absl::NotFoundError(absl::StrCat("--bind-address=", host, ": ", ::gai_strerror(error),
                                            "; give an address of this host, which has ",
                                            DescribeInterfaces(interfaces)));
  }
  const absl::Cleanup free_all = [&] { ::freeaddrinfo(all); };
  std::vector<std::string> resolved;
  for (const addrinfo* entry = all; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    resolved.push_back(NumericText(*entry->ai_addr));
  }
  for (const std::string& address : resolved) {
    NetworkRequest numeric = request;
    numeric.bind_address = address;
    if (ChooseJobNetwork(numeric, interfaces).ok()) return numeric;
  }
  return absl::NotFoundError(absl::StrCat(
      "--bind-address=", host, " is ", absl::StrJoin(resolved, ", "),
      ", which is not an address of this host; it has ", DescribeInterfaces(interfaces)));
}

absl::StatusOr<JobNetwork> ChooseJobNetwork(const NetworkRequest& request,
                                            const std::vector<InterfaceAddress>& interfaces) {
  std::optional<Network> network;
  if (!request.job_network.empty()) {
    ASSIGN_OR_RETURN(network, ParseNetwork(request.job_network));
  }
  if (request.bind_address == "0.0.0.0" || request.bind_address == "::") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--bind-address=", request.bind_address, ": peers must be told one address; this host has ",
        DescribeInterfaces(interfaces)));
  }
  if (Describe(request).empty()) return Loopback(interfaces);
  std::vector<InterfaceAddress> fitting;
  for (const InterfaceAddress& one : interfaces) {
    if (Fits(one, request, network)) fitting.push_back(one);
  }
  if (fitting.empty()) return NothingFits(request, interfaces);
  const InterfaceAddress first = fitting.front();
  for (const InterfaceAddress& other : fitting) {
    if (other.interface == first.interface) continue;
    return absl::NotFoundError(absl::StrCat(Describe(request), ": fits ",
                                            DescribeInterfaces(fitting),
                                            "; add --interface to say which"));
  }
  const auto v4 = std::ranges::find_if(fitting, [](const InterfaceAddress& one) {
    return one.address.find(':') == std::string::npos;
  });
  const InterfaceAddress& chosen = v4 == fitting.end() ? first : *v4;
  return JobNetwork{chosen.interface, chosen.address, chosen.loopback};
}

std::map<std::string, std::string> NetworkEnvironment(const JobNetwork& network) {
  return {// "=": this name exactly, not what begins with it.
          {"NCCL_SOCKET_IFNAME", absl::StrCat("=", network.interface)},
          {"NCCL_SOCKET_FAMILY", network.ipv6() ? "AF_INET6" : "AF_INET"},
          {"GLOO_SOCKET_IFNAME", network.interface}};
}

absl::Status CheckPeers(const JobNetwork& network, const v1::StartRank& start) {
  const auto self = std::ranges::find_if(
      start.peers(), [&](const v1::RankPeer& peer) { return peer.rank() == start.key().rank(); });
  if (self == start.peers().end()) return absl::OkStatus();
  for (const v1::RankPeer& peer : start.peers()) {
    if (peer.host() == self->host()) continue;
    const std::optional<Bytes> address = ParseNumeric(peer.address());
    if (!address) continue;
    const bool peer_is_loopback =
        address->size == 4 ? address->value[0] == 127 : peer.address() == "::1";
    if (network.loopback || peer_is_loopback) {
      const v1::RankPeer& wrong = network.loopback ? *self : peer;
      return absl::FailedPreconditionError(absl::StrCat(
          wrong.worker(), " keeps its ranks to loopback (", wrong.address(),
          "), which the ranks on other hosts cannot reach: start fsdp-worker there with "
          "--job-network, --interface or --bind-address"));
    }
    if ((address->size == 16) == network.ipv6()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        self->worker(), " takes ranks at ", network.address, " and ", peer.worker(), " at ",
        peer.address(), ": one is IPv4 and the other IPv6; start both with --job-network of one"));
  }
  return absl::OkStatus();
}

}  // namespace fsdp::daemon
