// The link between daemon and trainer, both directions: bytes cut anywhere give the same messages
// as bytes in one piece, and what parses is what was sent.

#include <algorithm>
#include <string>
#include <vector>

#include "fsdp/v1/trainer.pb.h"
#include "proto/support/framed_socket.h"
#include "tests/fuzz/fuzz_support.h"

namespace fsdp {
namespace {

// The payloads of `bytes` that arrive `piece` at a time, and why there are no more.
std::vector<std::string> Decode(std::string_view bytes, std::size_t piece, absl::Status* end) {
  FrameDecoder decoder;
  std::vector<std::string> payloads;
  while (true) {
    auto payload = decoder.Next();
    if (!payload.ok()) {
      *end = payload.status();
      fuzz::Require(decoder.Next().status() == *end, "a link that is corrupt stays so");
      return payloads;
    }
    if (payload->has_value()) {
      payloads.push_back(*std::move(*payload));
      continue;
    }
    if (bytes.empty()) return payloads;
    decoder.Append(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
}

template <typename Message>
void Parse(const std::string& payload) {
  Message message;
  if (!ParsePayload(payload, &message).ok()) return;
  const auto frame = EncodeFrame(message);
  fuzz::Require(frame.ok(), "a message that came over the link can be sent over it");
  const std::vector<std::string> again = fuzz::Frames(*frame);
  fuzz::Require(again.size() == 1 && again[0] == message.SerializeAsString(),
                "a frame holds its message");
}

}  // namespace
}  // namespace fsdp

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return fsdp::fuzz::MutateFrames(fsdp::v1::TrainerToDaemon::default_instance(), data, size,
                                  max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fsdp::fuzz::Text(data, size);
  absl::Status whole_end;
  absl::Status cut_end;
  const auto whole = fsdp::Decode(bytes, std::max<std::size_t>(size, 1), &whole_end);
  fsdp::fuzz::Require(whole == fsdp::Decode(bytes, 3, &cut_end) && whole_end == cut_end,
                      "how bytes are cut changes nothing");
  for (const std::string& payload : whole) {
    fsdp::Parse<fsdp::v1::TrainerToDaemon>(payload);
    fsdp::Parse<fsdp::v1::DaemonToTrainer>(payload);
  }
  return 0;
}
