#include "worker/checkpoint/tensor_shapes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fsdp {
namespace {

// Names of one kind that a message lists.
constexpr std::size_t kMaxNamed = 4;

std::string Some(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kMaxNamed);
  std::string text = absl::StrJoin(names.begin(), names.begin() + static_cast<int>(shown), ", ");
  if (names.size() > shown) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

}  // namespace

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

absl::Status CompareShapes(const std::string& where, const TensorShapes& there,
                           std::span<const ShardTensor> wanted) {
  std::vector<std::string> missing;
  std::vector<std::string> misshapen;
  TensorShapes extra = there;
  for (const ShardTensor& tensor : wanted) {
    const auto found = there.find(tensor.name);
    extra.erase(tensor.name);
    if (found == there.end()) {
      missing.push_back(tensor.name);
    } else if (found->second != tensor.shape) {
      misshapen.push_back(absl::StrCat(tensor.name, " (", ShapeText(found->second),
                                       ", the model has ", ShapeText(tensor.shape), ")"));
    }
  }
  if (missing.empty() && misshapen.empty() && extra.empty()) return absl::OkStatus();
  std::string message = absl::StrCat(where, " is of another model:");
  if (!missing.empty()) absl::StrAppend(&message, " missing ", Some(missing), ";");
  if (!misshapen.empty()) absl::StrAppend(&message, " misshapen ", Some(misshapen), ";");
  if (!extra.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, shape] : extra) names.push_back(name);
    absl::StrAppend(&message, " extra ", Some(names), ";");
  }
  message.pop_back();
  return absl::InvalidArgumentError(message);
}

}  // namespace fsdp
