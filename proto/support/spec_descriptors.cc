#include "proto/support/spec_descriptors.h"

#include <google/protobuf/descriptor.pb.h>

#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/support/spec_names.h"

namespace fsdp::spec {

absl::StatusOr<std::unique_ptr<SpecDescriptors>> SpecDescriptors::Load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  google::protobuf::FileDescriptorSet set;
  if (!set.ParseFromIstream(&file)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is no file descriptor set"));
  }
  auto descriptors = std::unique_ptr<SpecDescriptors>(new SpecDescriptors);
  for (const auto& proto : set.file()) descriptors->pool_.BuildFile(proto);
  descriptors->job_ = descriptors->pool_.FindMessageTypeByName("fsdp.v1.TrainingJob");
  if (descriptors->job_ == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has no fsdp.v1.TrainingJob"));
  }
  return descriptors;
}

template <typename Declaration>
std::string CommentOf(const Declaration& declaration) {
  google::protobuf::SourceLocation location;
  if (!declaration.GetSourceLocation(&location)) return "";
  std::vector<std::string> lines = absl::StrSplit(location.leading_comments, '\n');
  for (std::string& line : lines) absl::StripAsciiWhitespace(&line);
  std::string paragraph = absl::StrJoin(lines, " ");
  absl::StripAsciiWhitespace(&paragraph);
  return WithJsonNames(paragraph);
}

template std::string CommentOf(const google::protobuf::Descriptor&);
template std::string CommentOf(const google::protobuf::FieldDescriptor&);
template std::string CommentOf(const google::protobuf::EnumValueDescriptor&);

}  // namespace fsdp::spec
