#include "worker/comm/communicator.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fsdp {
namespace {

constexpr char kPeerPayload[] = "fsdp/peer";

}  // namespace

absl::Status WithPeer(absl::Status status, int peer) {
  status.SetPayload(kPeerPayload, absl::Cord(absl::StrCat(peer)));
  return status;
}

std::optional<int> PeerOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPeerPayload);
  int peer = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &peer)) return std::nullopt;
  return peer;
}

}  // namespace fsdp
