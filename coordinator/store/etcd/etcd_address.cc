#include "coordinator/store/etcd/etcd_address.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace fsdp::coordinator {
namespace {

constexpr std::string_view kScheme = "etcd://";
constexpr char kDefaultPrefix[] = "/fsdp";

bool IsHostPort(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  int port = 0;
  return colon != std::string::npos && colon > 0 &&
         text.find_first_of(" \t\r\n/@") == std::string::npos &&
         absl::SimpleAtoi(text.substr(colon + 1), &port) && port >= 1 && port <= 65535;
}

bool IsPrefix(std::string_view text) {
  return text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") ==
         std::string_view::npos;
}

}  // namespace

bool IsEtcdAddress(std::string_view text) { return text.starts_with(kScheme); }

absl::StatusOr<EtcdAddress> ParseEtcdAddress(const std::string& text) {
  const auto bad = [&text](const std::string& problem) {
    return absl::InvalidArgumentError(
        absl::StrCat(text, ": ", problem, "; want etcd://HOST:PORT[,HOST:PORT...][/PREFIX]"));
  };
  if (!IsEtcdAddress(text)) return bad("does not begin with etcd://");
  const std::string rest = text.substr(kScheme.size());
  const std::size_t slash = rest.find('/');
  EtcdAddress address;
  address.members = absl::StrSplit(rest.substr(0, slash), ',');
  for (const std::string& member : address.members) {
    if (!IsHostPort(member)) return bad(absl::StrCat("'", member, "' is no HOST:PORT"));
  }
  address.prefix = slash == std::string::npos ? "" : rest.substr(slash);
  while (address.prefix.ends_with('/')) address.prefix.pop_back();
  if (address.prefix.empty()) address.prefix = kDefaultPrefix;
  if (!IsPrefix(address.prefix)) {
    return bad(absl::StrCat("the prefix ", address.prefix,
                            " has characters other than letters, digits, '.', '_', '-' and '/'"));
  }
  return address;
}

}  // namespace fsdp::coordinator
