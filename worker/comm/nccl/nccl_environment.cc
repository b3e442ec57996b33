#include "worker/comm/nccl/nccl_environment.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>  // setenv
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

void SetDefault(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), /*overwrite=*/0);
}

std::string TextOf(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
  } else if (address.sa_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  }
  return text;
}

// Empty: none.
absl::StatusOr<std::string> InterfaceOf(const std::string& address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return ErrnoToStatus(errno, "getifaddrs()");
  std::string name;
  for (const ifaddrs* entry = all; entry != nullptr && name.empty(); entry = entry->ifa_next) {
    if (entry->ifa_addr != nullptr && TextOf(*entry->ifa_addr) == address) name = entry->ifa_name;
  }
  ::freeifaddrs(all);
  return name;
}

}  // namespace

void PrepareNccl() { SetDefault("NCCL_LAUNCH_ORDER_IMPLICIT", "1"); }

void PrepareLocalNccl() {
  PrepareNccl();
  SetDefault("NCCL_SOCKET_IFNAME", "lo");
  SetDefault("NCCL_IB_DISABLE", "1");
}

void PrepareSharedDevice(int rank) {
  // By process too: a later epoch may number the ranks anew.
  SetDefault("NCCL_HOSTID", absl::StrCat("fsdp-shared-device-", rank, "-", ::getpid()));
  SetDefault("NCCL_IB_DISABLE", "1");
}

absl::Status PrepareNcclInterface(const std::string& address) {
  if (address.empty()) {
    SetDefault("NCCL_SOCKET_IFNAME", "lo");
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string name, InterfaceOf(address));
  if (name.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no network interface of this machine has the bind address ", address));
  }
  // "=": this name exactly, not what begins with it.
  SetDefault("NCCL_SOCKET_IFNAME", absl::StrCat("=", name));
  return absl::OkStatus();
}

}  // namespace fsdp
