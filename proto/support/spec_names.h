#ifndef FSDPCTL_PROTO_SUPPORT_SPEC_NAMES_H_
#define FSDPCTL_PROTO_SUPPORT_SPEC_NAMES_H_

// Names as users write them: enum values without their prefix, nearest names for "did you mean".
//
// Thread rule: pure functions.

#include <google/protobuf/descriptor.h>

#include <string>
#include <string_view>
#include <vector>

namespace fsdp::spec {

// "bf16" for PRECISION_D_TYPE_BF16; the number when the value is not known.
std::string ShortEnumName(const google::protobuf::EnumDescriptor& type, int number);

// All values but the unspecified one, in the order of the proto.
std::vector<std::string> ShortEnumNames(const google::protobuf::EnumDescriptor& type);

// By short or full name in any case; null for unknown names and the unspecified value.
const google::protobuf::EnumValueDescriptor* FindEnumValue(
    const google::protobuf::EnumDescriptor& type, std::string_view name);

// Fields of an object as users write them, in the order of the proto.
std::vector<std::string> JsonNames(const google::protobuf::Descriptor& type);
// Null when there is none.
const google::protobuf::FieldDescriptor* FindByJsonName(const google::protobuf::Descriptor& type,
                                                        std::string_view name);

// The name nearest to `name` by edits (insert, delete, replace, swap), case and _ - ignored; empty
// when none is near enough to be meant.
std::string NearestName(std::string_view name, const std::vector<std::string>& names);

// `text` with the job's proto field names (num_heads) replaced by their JSON names (numHeads), as
// users know them.
std::string WithJsonNames(const std::string& text);

// For messages: at most `max_bytes`, cut at a character, with "..." when cut; control characters
// escaped.
std::string Shorten(std::string_view text, std::size_t max_bytes = 80);

}  // namespace fsdp::spec

#endif  // FSDPCTL_PROTO_SUPPORT_SPEC_NAMES_H_
