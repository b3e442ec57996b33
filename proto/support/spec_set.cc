// --set path=value: changes the untyped document, so that overrides and file take the same road.
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/support/spec_decode.h"
#include "proto/support/spec_names.h"

namespace fsdp::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

SpecIssue SetIssue(const std::string& set_text, std::string field, std::string message) {
  SpecIssue issue;
  issue.field = std::move(field);
  issue.message = std::move(message);
  issue.set_text = Shorten(set_text, 200);
  return issue;
}

// Where a path leads: the keys to walk, and the field at its end (null: an entry of a map).
struct Target {
  std::vector<std::string> keys;
  const FieldDescriptor* field = nullptr;
};

// Resolves dotted names against the message; false with an issue when one does not exist.
bool Resolve(const std::string& set_text, const std::string& path, Target* target,
             std::vector<SpecIssue>* issues) {
  std::vector<std::string> names = absl::StrSplit(path, '.');
  const Descriptor* type = v1::TrainingJob::descriptor();
  const std::vector<std::string> top = JsonNames(*type);
  const bool is_short = std::find(top.begin(), top.end(), names.front()) == top.end();
  if (is_short) names.insert(names.begin(), "spec");
  std::string walked;
  for (std::size_t i = 0; i < names.size(); ++i) {
    target->field = FindByJsonName(*type, names[i]);
    absl::StrAppend(&walked, i == 0 ? "" : ".", Shorten(names[i], 64));
    if (target->field == nullptr) {
      issues->push_back(SetIssue(set_text, walked, ""));
      DescribeUnknownKey(*v1::TrainingJob::descriptor(), *type, names[i], &issues->back());
      // A short path may have meant "metadata".
      if (is_short && i == 1 && issues->back().suggestion.empty()) {
        issues->back().suggestion = NearestName(names[i], top);
      }
      return false;
    }
    target->keys.push_back(names[i]);
    if (i + 1 == names.size()) return true;
    if (target->field->is_map()) {
      // A label's key may hold dots: the rest of the path is the key.
      const std::vector<std::string> rest(names.begin() + static_cast<long>(i) + 1, names.end());
      target->keys.push_back(absl::StrJoin(rest, "."));
      target->field = nullptr;
      return true;
    }
    if (target->field->message_type() == nullptr || target->field->is_repeated()) {
      issues->push_back(SetIssue(set_text, walked,
                                 target->field->is_repeated()
                                     ? "is a list; set it as a whole: [...]"
                                     : "has no fields of its own"));
      return false;
    }
    type = target->field->message_type();
  }
  return false;
}

// Every node of a --set's value is placed at the --set.
void MarkPlaces(const SourceMap::Place& place, SpecNode* node) {
  node->place = place;
  for (Member& member : node->members) {
    member.place = place;
    MarkPlaces(place, &member.value);
  }
  for (SpecNode& item : node->items) MarkPlaces(place, &item);
}

SpecNode ReadValue(const std::string& text, const Target& target, const SpecOptions& limits,
                   std::vector<SpecIssue>* issues) {
  const bool is_text =
      target.field == nullptr ||
      (target.field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && !target.field->is_repeated());
  const bool is_structure =
      target.field != nullptr && (target.field->is_repeated() || target.field->message_type());
  if (is_structure) return ReadDocument(text, limits, issues);
  SpecNode node;
  node.kind = SpecNode::Kind::kScalar;
  node.text = text;
  node.quoted = is_text;
  return node;
}

// The member `key` of `node`, made when absent; a node that is no map becomes one.
Member* MemberOf(const std::string& key, const SourceMap::Place& place, SpecNode* node) {
  node->kind = SpecNode::Kind::kMap;
  const auto found = std::find_if(node->members.begin(), node->members.end(),
                                  [&](const Member& member) { return member.key == key; });
  if (found != node->members.end()) return &*found;
  node->members.push_back(Member{key, place, SpecNode{}});
  node->members.back().value.place = place;
  return &node->members.back();
}

}  // namespace

void ApplySet(const std::string& set_text, const SpecOptions& limits, SpecNode* root,
              std::vector<SpecIssue>* issues) {
  const std::size_t equals = set_text.find('=');
  if (equals == std::string::npos || equals == 0) {
    issues->push_back(SetIssue(set_text, "", "must be path=value, as train.globalBatch=8"));
    return;
  }
  // The same bytes are refused here as in a file; strings do not pass through the YAML reader.
  std::vector<SpecIssue> found;
  if (!CheckText(set_text, limits, &found)) {
    issues->push_back(SetIssue(set_text, "", found.front().message));
    return;
  }
  Target target;
  if (!Resolve(set_text, set_text.substr(0, equals), &target, issues)) return;

  const std::string text = set_text.substr(equals + 1);
  const SourceMap::Place place = {0, 0, Shorten(set_text, 200)};
  SpecNode value = text.empty() ? SpecNode{} : ReadValue(text, target, limits, &found);
  for (const SpecIssue& issue : found) {
    issues->push_back(SetIssue(set_text, absl::StrJoin(target.keys, "."), issue.message));
  }
  if (!found.empty()) return;
  MarkPlaces(place, &value);

  SpecNode* node = root;
  for (std::size_t i = 0; i + 1 < target.keys.size(); ++i) {
    node = &MemberOf(target.keys[i], place, node)->value;
  }
  // Nothing after the = means "as if not written", also for what the file has.
  if (text.empty()) {
    std::erase_if(node->members,
                  [&](const Member& member) { return member.key == target.keys.back(); });
    return;
  }
  Member* member = MemberOf(target.keys.back(), place, node);
  member->place = place;
  member->value = std::move(value);
}

}  // namespace fsdp::spec
