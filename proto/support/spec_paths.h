#ifndef FSDPCTL_PROTO_SUPPORT_SPEC_PATHS_H_
#define FSDPCTL_PROTO_SUPPORT_SPEC_PATHS_H_

// Which fields of a job spec name files, and the folders that those may lie in. Every string of the
// spec is in one of two tables: a path or not; a test walks the descriptors, so that a new one
// cannot be forgotten.
//
// Thread rule: pure functions and constant data, but for PathRoots::CheckOnDisk, which looks at the
// file system. A PathRoots does not change.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/v1/job.pb.h"

namespace fsdp {

// By JSON names, as spec_fields.h writes them: "spec.data.mixture[].path".
std::span<const std::string_view> PathFields();
std::span<const std::string_view> TextFieldsWithoutPath();

struct SpecPath {
  // "spec.data.mixture[2].path"
  std::string field;
  std::string value;
};

// The paths that a job names, in the order of the spec: not the empty ones, nor words that stand
// for no file ("bytes" of data.tokenizer). Of spec.env the values with a slash in them.
std::vector<SpecPath> PathsOf(const v1::TrainingJob& job);

// The folders that jobs may use. None: anywhere.
class PathRoots {
 public:
  PathRoots() = default;
  //   INVALID_ARGUMENT  a root that is not absolute, or has "..", names what
  static absl::StatusOr<PathRoots> Create(const std::vector<std::string>& roots);

  [[nodiscard]] bool empty() const { return roots_.empty(); }

  // By its text alone: absolute, without "..", in one of the roots.
  //   INVALID_ARGUMENT  says field, value, roots
  [[nodiscard]] absl::Status CheckText(const SpecPath& path) const;

  // Also on this machine's disk, with symbolic links resolved: the path, what a glob in it finds,
  // and the files of a folder. What does not exist (yet) counts by its nearest parent that does.
  // Whoever can write in a root can change a link later: roots are for people who trust each other.
  //   PERMISSION_DENIED  a link leads out of the roots
  //   as CheckText
  [[nodiscard]] absl::Status CheckOnDisk(const SpecPath& path) const;

 private:
  [[nodiscard]] bool Contains(std::string_view normal_path) const;
  [[nodiscard]] absl::Status CheckResolved(const SpecPath& path, const std::string& file) const;

  // Normal, without a slash at the end.
  std::vector<std::string> roots_;
  // With their own links resolved, as far as they exist.
  std::vector<std::string> real_roots_;
};

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_SPEC_PATHS_H_
