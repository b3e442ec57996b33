#ifndef FSDPCTL_PROTO_SUPPORT_SPEC_DOCUMENT_H_
#define FSDPCTL_PROTO_SUPPORT_SPEC_DOCUMENT_H_

// A YAML or JSON document (JSON is read as the YAML that it is) as a tree of untyped nodes that
// know where they were written. The only file that meets yaml-cpp and its exceptions.
//
// Thread rule: pure functions.

#include <string>
#include <string_view>
#include <vector>

#include "proto/support/spec.h"

namespace fsdp::spec {

struct Member;

struct SpecNode {
  enum class Kind { kNull, kScalar, kMap, kList };
  Kind kind = Kind::kNull;
  SourceMap::Place place;
  // Scalars only.
  std::string text;
  bool quoted = false;
  // Of a null: written as "null" or "~", not left empty.
  bool explicit_null = false;
  std::vector<Member> members;
  std::vector<SpecNode> items;
};

// A key and its value; `place` is the key's.
struct Member {
  std::string key;
  SourceMap::Place place;
  SpecNode value;
};

// Reads one document. Problems (bytes that are not UTF-8, syntax, anchors, aliases, tags, keys that
// are not scalars, more than one document, limits) are appended to `issues`; the result then holds
// what was read before them. An empty text is a null node.
SpecNode ReadDocument(std::string_view text, const SpecOptions& limits,
                      std::vector<SpecIssue>* issues);

// The checks of ReadDocument that need no syntax: size, UTF-8, control characters.
bool CheckText(std::string_view text, const SpecOptions& limits, std::vector<SpecIssue>* issues);

}  // namespace fsdp::spec

#endif  // FSDPCTL_PROTO_SUPPORT_SPEC_DOCUMENT_H_
