#ifndef FSDPCTL_PROTO_SUPPORT_ADDRESS_LIST_H_
#define FSDPCTL_PROTO_SUPPORT_ADDRESS_LIST_H_

// The addresses of one service whose servers stand in for each other: "a:7070,b:7070". "unix:/path"
// stands alone. Pure.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "proto/support/listen_address.h"

namespace fsdp {

// Not empty; what is not there is an empty address.
inline std::vector<std::string> SplitAddresses(std::string_view list) {
  std::vector<std::string> addresses;
  while (!list.starts_with("unix:")) {
    const std::size_t comma = list.find(',');
    if (comma == std::string_view::npos) break;
    addresses.emplace_back(list.substr(0, comma));
    list.remove_prefix(comma + 1);
  }
  addresses.emplace_back(list);
  return addresses;
}

// Only this machine reaches any of them.
inline bool AllLoopback(std::string_view list) {
  const std::vector<std::string> addresses = SplitAddresses(list);
  return std::all_of(addresses.begin(), addresses.end(), [](const std::string& address) {
    return address.starts_with("unix:") || IsLoopback(address);
  });
}

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_ADDRESS_LIST_H_
