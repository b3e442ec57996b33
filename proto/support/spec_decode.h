#ifndef FSDPCTL_PROTO_SUPPORT_SPEC_DECODE_H_
#define FSDPCTL_PROTO_SUPPORT_SPEC_DECODE_H_

// From untyped nodes to the message, by reflection, with every problem of names and types; and the
// --set values, which change the nodes before they are decoded.
//
// Thread rule: pure functions.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "proto/support/spec.h"
#include "proto/support/spec_document.h"

namespace fsdp::spec {

// Of every key that is no field's.
inline constexpr char kUnknownKey[] = "unknown key";

// Says in `issue` that `type` has no field `key`: what was probably meant (a near name, or the one
// place of the document, a `root`, that has it), else what is allowed.
void DescribeUnknownKey(const google::protobuf::Descriptor& root,
                        const google::protobuf::Descriptor& type, const std::string& key,
                        SpecIssue* issue);

// Applies one "path=value" to the document. Problems are appended to `issues`.
void ApplySet(const std::string& set_text, const SpecOptions& limits, SpecNode* root,
              std::vector<SpecIssue>* issues);

// Reads `root` into `job`; what has no problem is set. Places go to `source`.
void DecodeJob(const SpecNode& root, v1::TrainingJob* job, SourceMap* source,
               std::vector<SpecIssue>* issues);
// The same for another kind of document, whose fields' rules begin with `rule_root`.
void DecodeDocument(const SpecNode& root, const std::string& rule_root,
                    google::protobuf::Message* message, SourceMap* source,
                    std::vector<SpecIssue>* issues);

}  // namespace fsdp::spec

#endif  // FSDPCTL_PROTO_SUPPORT_SPEC_DECODE_H_
