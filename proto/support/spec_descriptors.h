#ifndef FSDPCTL_PROTO_SUPPORT_SPEC_DESCRIPTORS_H_
#define FSDPCTL_PROTO_SUPPORT_SPEC_DESCRIPTORS_H_

// The job proto with its comments, which compiled-in descriptors do not have. Only the generators
// of the JSON Schema and the reference page use it.
//
// Thread rule: one thread. Lifetime: descriptors live as long as the object.

#include <google/protobuf/descriptor.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace fsdp::spec {

class SpecDescriptors {
 public:
  // From a FileDescriptorSet with imports and source information (protoc --descriptor_set_out).
  //   NOT_FOUND         there is no such file
  //   INVALID_ARGUMENT  it is no descriptor set, or has no fsdp.v1.TrainingJob
  static absl::StatusOr<std::unique_ptr<SpecDescriptors>> Load(const std::string& path);

  [[nodiscard]] const google::protobuf::Descriptor& job() const { return *job_; }

 private:
  SpecDescriptors() = default;
  google::protobuf::DescriptorPool pool_;
  const google::protobuf::Descriptor* job_ = nullptr;
};

// The comment above a declaration as one paragraph; empty when there is none.
template <typename Declaration>
std::string CommentOf(const Declaration& declaration);

// The JSON Schema (draft 7) and the reference page, both ending in a newline.
std::string JobSchema(const SpecDescriptors& descriptors);
std::string JobReference(const SpecDescriptors& descriptors);

}  // namespace fsdp::spec

#endif  // FSDPCTL_PROTO_SUPPORT_SPEC_DESCRIPTORS_H_
