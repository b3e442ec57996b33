#ifndef FSDPCTL_PROTO_SUPPORT_SPEC_PATH_H_
#define FSDPCTL_PROTO_SUPPORT_SPEC_PATH_H_

// A field's place in the message, as users read it and as the rule table keys it.

#include <google/protobuf/descriptor.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace fsdp::spec {

struct FieldPath {
  std::string shown;  // spec.data.mixture[0].weight, metadata.labels["team"]
  std::string rule;   // spec.data.mixture[].weight, metadata.labels{}

  [[nodiscard]] FieldPath Child(const google::protobuf::FieldDescriptor& field) const {
    return {Join(shown, field.json_name()), Join(rule, field.json_name())};
  }
  [[nodiscard]] FieldPath Item(int index) const {
    return {absl::StrCat(shown, "[", index, "]"), rule + "[]"};
  }
  [[nodiscard]] FieldPath Entry(const std::string& key) const {
    return {absl::StrCat(shown, "[\"", key, "\"]"), rule + "{}"};
  }

 private:
  static std::string Join(const std::string& parent, const std::string& name) {
    return parent.empty() ? name : absl::StrCat(parent, ".", name);
  }
};

}  // namespace fsdp::spec

#endif  // FSDPCTL_PROTO_SUPPORT_SPEC_PATH_H_
