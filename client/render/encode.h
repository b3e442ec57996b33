#ifndef FSDPCTL_CLIENT_RENDER_ENCODE_H_
#define FSDPCTL_CLIENT_RENDER_ENCODE_H_

// Messages as JSON and YAML: the proto JSON form, so any protobuf library reads it back.

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
