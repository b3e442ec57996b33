#ifndef FSDPCTL_TESTS_CONTRACT_PROTO_TRANSCRIPTS_FILL_MESSAGE_H_
#define FSDPCTL_TESTS_CONTRACT_PROTO_TRANSCRIPTS_FILL_MESSAGE_H_

// Messages with every field set, to values that tell fields apart.

#include <google/protobuf/message.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp::transcripts {

// As many messages of the type as it takes to show every member of its oneofs, all other fields set
// in each. The same on every call.
std::vector<std::unique_ptr<google::protobuf::Message>> FilledMessages(const std::string& type);

}  // namespace fsdp::transcripts

#endif  // FSDPCTL_TESTS_CONTRACT_PROTO_TRANSCRIPTS_FILL_MESSAGE_H_
