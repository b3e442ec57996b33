#include "proto/support/spec_descriptors.h"

#include <google/protobuf/descriptor.pb.h>

#include <fstream>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "fsdp/v1/job.pb.h"

namespace fsdp::spec {
namespace {

using google::protobuf::Descriptor;

void CollectNames(const Descriptor& type, std::map<std::string, std::string>* names) {
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& field = *type.field(i);
    if (field.name() != field.json_name()) names->emplace(field.name(), field.json_name());
    if (field.message_type() != nullptr && !field.is_map()) {
      CollectNames(*field.message_type(), names);
    }
  }
}

// Comments of the proto speak of fields by their proto names; users know the JSON names.
std::string WithJsonNames(const std::string& text) {
  static const auto* const names = [] {
    auto* collected = new std::map<std::string, std::string>;
    CollectNames(*v1::TrainingJob::descriptor(), collected);
    return collected;
  }();
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() &&
           (absl::ascii_isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) {
      ++end;
    }
    if (end == i) {
      result.push_back(text[i++]);
      continue;
    }
    const std::string word = text.substr(i, end - i);
    const auto found = names->find(word);
    result += found == names->end() ? word : found->second;
    i = end;
  }
  return result;
}

}  // namespace

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
