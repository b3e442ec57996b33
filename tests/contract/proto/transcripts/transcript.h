#ifndef FSDPCTL_TESTS_CONTRACT_PROTO_TRANSCRIPTS_TRANSCRIPT_H_
#define FSDPCTL_TESTS_CONTRACT_PROTO_TRANSCRIPTS_TRANSCRIPT_H_

// A recorded conversation: NAME.binpb holds the messages as bytes of the release that recorded
// them, each behind its length (varint), and NAME.textproto the same messages as text, each behind
// a line
// "#: full.message.Name". The bytes are the truth; the text names their types and says what today's
// code must read out of them.

#include <google/protobuf/message.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp::transcripts {

struct Frame {
  std::string type;   // "fsdp.v1.CreateJobRequest"
  std::string bytes;  // without the length
  std::string text;
};

struct Transcript {
  std::string name;  // of the files, without extension
  std::vector<Frame> frames;
};

//   NOT_FOUND  one of the two files is missing
//   DATA_LOSS  a frame is cut off, or the files hold different numbers of messages
absl::StatusOr<Transcript> ReadTranscript(const std::string& folder, const std::string& name);
absl::Status WriteTranscript(const std::string& folder, const Transcript& transcript);

Frame MakeFrame(const google::protobuf::Message& message);

// Does today's code still understand the frame?
//   NOT_FOUND            there is no such message type any more
//   DATA_LOSS            the bytes do not parse
//   FAILED_PRECONDITION  a field is not known any more, or the bytes come out differently, or the
//                        text does not parse, or says something else than the bytes
absl::Status Replay(const Frame& frame);

// An empty message of a linked-in type; null for unknown names.
std::unique_ptr<google::protobuf::Message> NewMessage(const std::string& type);

// Bytes with map entries in the order of their keys.
std::string DeterministicBytes(const google::protobuf::Message& message);

}  // namespace fsdp::transcripts

#endif  // FSDPCTL_TESTS_CONTRACT_PROTO_TRANSCRIPTS_TRANSCRIPT_H_
