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

const char* NameOf(BufferRegistration registration) {
  switch (registration) {
    case BufferRegistration::kNone:
      return "none";
    case BufferRegistration::kLocal:
      return "local";
    case BufferRegistration::kWindow:
      return "window";
    case BufferRegistration::kWindowCopyEngine:
      return "window-ce";
  }
  return "unknown";
}

absl::StatusOr<BufferRegistration> ParseBufferRegistration(const std::string& name) {
  for (const auto registration :
       {BufferRegistration::kNone, BufferRegistration::kLocal, BufferRegistration::kWindow,
        BufferRegistration::kWindowCopyEngine}) {
    if (name == NameOf(registration)) return registration;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("registration \"", name, "\" is none of none, local, window, window-ce"));
}

}  // namespace fsdp
