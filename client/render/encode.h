#ifndef FSDPCTL_CLIENT_RENDER_ENCODE_H_
#define FSDPCTL_CLIENT_RENDER_ENCODE_H_

// Messages as JSON and YAML for programs, by one rule everywhere: keys and times as in the proto's
// JSON form; enum values without their prefix (RUNNING; in a job's spec in lower case, as it is
// written there); numbers and bools always there, also when 0 or false, unless the proto marks them
// `optional`; numbers past 2^53 as strings; absent: what is not known, empty or not given. A spec
// holds only what was given or filled in, and can be submitted again.

#include <google/protobuf/message.h>

#include <string>
#include <vector>

namespace fsdp {

// Indented, with a final newline.
std::string ToJson(const google::protobuf::Message& message);
// On one line, with a final newline (JSON Lines).
std::string ToJsonLine(const google::protobuf::Message& message);
// The same document as YAML, keys in the order of the proto.
std::string ToYaml(const google::protobuf::Message& message);

// {"KEY": [...]} of several messages.
std::string ListToJson(const std::string& key,
                       const std::vector<const google::protobuf::Message*>& messages);
std::string ListToYaml(const std::string& key,
                       const std::vector<const google::protobuf::Message*>& messages);

// Any JSON text as YAML; the text must be valid JSON.
std::string JsonToYaml(const std::string& json);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_RENDER_ENCODE_H_
