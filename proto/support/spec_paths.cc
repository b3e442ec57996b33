#include "proto/support/spec_paths.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

constexpr auto kPathFields = std::to_array<std::string_view>({
    "spec.model.configPath",
    "spec.model.initFrom",
    "spec.data.path",
    "spec.data.validationPath",
    "spec.data.tokenizer",
    "spec.data.mixture[].path",
    "spec.data.evaluationSets[].path",
    "spec.data.cacheDir",
    "spec.checkpoint.dir",
    "spec.checkpoint.resumeFrom",
    // NCCL_DEBUG_FILE, NCCL_TOPO_FILE and their like.
    "spec.env{}",
});

constexpr auto kOtherTexts = std::to_array<std::string_view>({
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.labels{}",
    "spec.queue",
    "spec.model.preset",
    "spec.data.mixture[].name",
    "spec.data.evaluationSets[].name",
    "spec.data.textField",
    "spec.checkpoint.bestBy",
    "spec.failurePolicy.rules[].logRegex",
    // What they set is looked at in each task's own spec.
    "spec.array.set[]",
    "spec.array.parameters[].name",
    "spec.array.parameters[].values[]",
});

// Of data.tokenizer: no file.
constexpr std::string_view kBytes = "bytes";
constexpr std::size_t kMaxFiles = 100'000;

bool IsGlob(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

void AddPath(std::vector<SpecPath>& paths, std::string field, const std::string& value) {
  if (!value.empty()) paths.push_back({std::move(field), value});
}

void AddSets(std::vector<SpecPath>& paths, const std::string& list,
             const google::protobuf::RepeatedPtrField<v1::DataMixture>& sets) {
  for (int i = 0; i < sets.size(); ++i) {
    AddPath(paths, absl::StrCat(list, "[", i, "].path"), sets[i].path());
  }
}

// "/a/b" of "/a//b/./"; empty unless it is absolute and has no "..".
std::string Normal(std::string_view text) {
  const fs::path path(text);
  if (!path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end()) return "";
  std::string normal = path.lexically_normal().string();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

// The nearest parent that exists with links resolved, and the rest behind it.
std::string Resolved(const fs::path& path) {
  std::error_code error;
  const fs::path resolved = fs::weakly_canonical(path, error);
  return error ? "" : Normal(resolved.string());
}

}  // namespace

std::span<const std::string_view> PathFields() { return kPathFields; }
std::span<const std::string_view> TextFieldsWithoutPath() { return kOtherTexts; }

std::vector<SpecPath> PathsOf(const v1::TrainingJob& job) {
  const v1::JobSpec& spec = job.spec();
  std::vector<SpecPath> paths;
  AddPath(paths, "spec.model.configPath", spec.model().config_path());
  AddPath(paths, "spec.model.initFrom", spec.model().init_from());
  AddPath(paths, "spec.data.path", spec.data().path());
  AddPath(paths, "spec.data.validationPath", spec.data().validation_path());
  if (spec.data().tokenizer() != kBytes) {
    AddPath(paths, "spec.data.tokenizer", spec.data().tokenizer());
  }
  AddSets(paths, "spec.data.mixture", spec.data().mixture());
  AddSets(paths, "spec.data.evaluationSets", spec.data().evaluation_sets());
  AddPath(paths, "spec.data.cacheDir", spec.data().cache_dir());
  AddPath(paths, "spec.checkpoint.dir", spec.checkpoint().dir());
  AddPath(paths, "spec.checkpoint.resumeFrom", spec.checkpoint().resume_from());
  const std::map<std::string, std::string> env(spec.env().begin(), spec.env().end());
  for (const auto& [name, value] : env) {
    if (absl::StrContains(value, "/"))
      AddPath(paths, absl::StrCat("spec.env[\"", name, "\"]"), value);
  }
  return paths;
}

absl::StatusOr<PathRoots> PathRoots::Create(const std::vector<std::string>& roots) {
  PathRoots made;
  for (const std::string& root : roots) {
    std::string normal = Normal(root);
    if (normal.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--allow-path=", root, ": want an absolute folder without \"..\", such as /data"));
    }
    std::string real = Resolved(normal);
    made.real_roots_.push_back(real.empty() ? normal : std::move(real));
    made.roots_.push_back(std::move(normal));
  }
  return made;
}

bool PathRoots::Contains(std::string_view normal_path) const {
  const auto in = [&](const std::string& root) {
    if (root == "/") return true;
    return normal_path.starts_with(root) &&
           (normal_path.size() == root.size() || normal_path[root.size()] == '/');
  };
  return std::any_of(roots_.begin(), roots_.end(), in) ||
         std::any_of(real_roots_.begin(), real_roots_.end(), in);
}

absl::Status PathRoots::CheckText(const SpecPath& path) const {
  if (empty()) return absl::OkStatus();
  const std::string normal = Normal(path.value);
  // A library that a plug-in's variable names would run in the trainer.
  const bool code = absl::StrContains(path.field, "PLUGIN");
  if (!normal.empty() && !code && Contains(normal)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path.field, " = \"", path.value.substr(0, 200), "\": ",
                   code ? "may not name a file, which would be run"
                        : "must be an absolute path without \"..\" in ",
                   code ? "" : absl::StrJoin(roots_, " or "),
                   code ? "" : ", where jobs may read and write here"));
}

absl::Status PathRoots::CheckResolved(const SpecPath& path, const std::string& file) const {
  const std::string real = Resolved(file);
  const bool in_real = std::any_of(real_roots_.begin(), real_roots_.end(), [&](const auto& root) {
    return root == "/" || real == root || real.starts_with(root + "/");
  });
  if (!real.empty() && in_real) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(path.field, " = \"", path.value.substr(0, 200), "\": ", file, " leads to ",
                   real.empty() ? "where nobody may look" : real, ", which is in none of ",
                   absl::StrJoin(roots_, ", "), ": copy it there instead of linking it"));
}

absl::Status PathRoots::CheckOnDisk(const SpecPath& path) const {
  if (empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckText(path));
  std::vector<std::string> files;
  std::error_code error;
  if (IsGlob(path.value) && !fs::exists(path.value, error)) {
    glob_t found{};
    if (::glob(path.value.c_str(), 0, nullptr, &found) == 0) {
      files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    }
    ::globfree(&found);
  } else {
    files.push_back(path.value);
    for (fs::directory_iterator entry(path.value, error), end; !error && entry != end;
         entry.increment(error)) {
      if (files.size() > kMaxFiles) break;
      if (entry->is_symlink(error)) files.push_back(entry->path().string());
    }
  }
  for (const std::string& file : files) RETURN_IF_ERROR(CheckResolved(path, file));
  return absl::OkStatus();
}

}  // namespace fsdp
