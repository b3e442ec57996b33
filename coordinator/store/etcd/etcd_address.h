#ifndef FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_ADDRESS_H_
#define FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_ADDRESS_H_

// "etcd://HOST:PORT,HOST:PORT/PREFIX": the members of an etcd, and where in it a coordinator's keys
// are. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace fsdp::coordinator {

struct EtcdAddress {
  // "host:port", at least one.
  std::vector<std::string> members;
  // "/fsdp" unless given; begins with '/', does not end with one.
  std::string prefix;
};

bool IsEtcdAddress(std::string_view text);
//   INVALID_ARGUMENT  malformed: the message says what is wanted
absl::StatusOr<EtcdAddress> ParseEtcdAddress(const std::string& text);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_ADDRESS_H_
