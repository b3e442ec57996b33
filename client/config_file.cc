#include "client/config_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"
#include "proto/support/suggest.h"

namespace fsdp {
namespace {

constexpr char kCurrentContext[] = "currentContext";
constexpr char kContexts[] = "contexts";
constexpr std::size_t kMaxContextName = 63;

// Reads one file; yaml-cpp's exceptions end in ParseConfig.
class ConfigReader {
 public:
  explicit ConfigReader(ConfigFile* file) : file_(*file) {
    setting_keys_.reserve(SettingKeys().size());
    for (const auto& key : SettingKeys()) setting_keys_.emplace_back(key.file_key);
    top_keys_ = setting_keys_;
    top_keys_.emplace_back(kCurrentContext);
    top_keys_.emplace_back(kContexts);
  }

  absl::Status Read(const YAML::Node& root) {
    if (root.IsNull()) return absl::OkStatus();
    if (!root.IsMap()) {
      return absl::InvalidArgumentError(absl::StrCat(file_.path, ": must be `key: value` lines"));
    }
    for (const auto& entry : root) {
      const std::string key = entry.first.as<std::string>();
      RETURN_IF_ERROR(CheckKey(entry.first, key, top_keys_));
      if (key == kContexts) {
        RETURN_IF_ERROR(ReadContexts(entry.second));
      } else if (key == kCurrentContext) {
        ASSIGN_OR_RETURN(file_.current_context, Scalar(entry.first, key, entry.second));
      } else {
        ASSIGN_OR_RETURN(file_.values[key], Scalar(entry.first, key, entry.second));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadContexts(const YAML::Node& contexts) {
    if (contexts.IsNull()) return absl::OkStatus();
    if (!contexts.IsMap()) return Error(contexts, "contexts must be `name:` entries");
    for (const auto& context : contexts) {
      const std::string name = context.first.as<std::string>();
      if (const auto valid = CheckContextName(name); !valid.ok()) {
        return Error(context.first, std::string(valid.message()));
      }
      if (file_.contexts.count(name) > 0) {
        return Error(context.first, absl::StrCat("context \"", name, "\" is there twice"));
      }
      RETURN_IF_ERROR(ReadContext(context.first, context.second, &file_.contexts[name]));
    }
    return absl::OkStatus();
  }

  absl::Status ReadContext(const YAML::Node& name, const YAML::Node& node, ConfigValues* values) {
    if (node.IsNull()) return absl::OkStatus();
    if (!node.IsMap()) {
      return Error(name, absl::StrCat("context \"", name.as<std::string>(),
                                      "\" must be `key: value` lines"));
    }
    for (const auto& entry : node) {
      const std::string key = entry.first.as<std::string>();
      RETURN_IF_ERROR(CheckKey(entry.first, key, setting_keys_));
      ASSIGN_OR_RETURN((*values)[key], Scalar(entry.first, key, entry.second));
    }
    return absl::OkStatus();
  }

  absl::Status CheckKey(const YAML::Node& node, const std::string& key,
                        const std::vector<std::string>& known) const {
    if (std::find(known.begin(), known.end(), key) != known.end()) return absl::OkStatus();
    return Error(node, absl::StrCat("unknown key \"", key, "\"", DidYouMean(key, known)));
  }

  absl::StatusOr<std::string> Scalar(const YAML::Node& where, const std::string& key,
                                     const YAML::Node& value) const {
    if (!value.IsScalar()) return Error(where, absl::StrCat(key, " must be one value"));
    return value.as<std::string>();
  }

  [[nodiscard]] absl::Status Error(const YAML::Node& node, const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.path, ":", node.Mark().line + 1, ": ", what));
  }

  ConfigFile& file_;
  std::vector<std::string> setting_keys_;
  std::vector<std::string> top_keys_;
};

absl::Status WriteAll(int fd, const std::string& text, const std::string& path) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t size = write(fd, text.data() + done, text.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return ErrnoToStatus(errno, absl::StrCat("write(", path, ")"));
    done += static_cast<std::size_t>(size);
  }
  if (fsync(fd) != 0) return ErrnoToStatus(errno, absl::StrCat("fsync(", path, ")"));
  return absl::OkStatus();
}

// Folders on the way to the file, each for its owner alone.
absl::Status MakeFolders(const std::filesystem::path& folder) {
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return absl::OkStatus();
  RETURN_IF_ERROR(MakeFolders(folder.parent_path()));
  if (mkdir(folder.c_str(), S_IRWXU) == 0 || errno == EEXIST) return absl::OkStatus();
  return ErrnoToStatus(errno, absl::StrCat("mkdir(", folder.string(), ")"));
}

}  // namespace

const std::vector<SettingKey>& SettingKeys() {
  static const auto& keys = *new std::vector<SettingKey>{
      kServerKey,         kCallTimeoutKey, kReconnectKey,     kColorKey,     kTlsCaKey,
      kTlsCertificateKey, kTlsKeyKey,      kTlsServerNameKey, kTokenFileKey, kPlaintextTokenKey};
  return keys;
}

ConfigLocation FindConfig(const std::optional<std::string>& flag,
                          const EnvironmentFn& environment) {
  if (flag.has_value()) return {*flag, true};
  if (const auto named = environment("FSDPCTL_CONFIG")) return {*named, true};
  if (const auto xdg = environment("XDG_CONFIG_HOME")) {
    return {absl::StrCat(*xdg, "/fsdpctl/config.yaml"), false};
  }
  if (const auto home = environment("HOME")) {
    return {absl::StrCat(*home, "/.config/fsdpctl/config.yaml"), false};
  }
  return {};
}

absl::StatusOr<std::string> ReadConfigText(const ConfigLocation& location) {
  if (location.path.empty()) return "";
  std::ifstream in(location.path);
  if (!in) {
    if (!location.must_exist) return "";
    return absl::NotFoundError(absl::StrCat("cannot read the config file ", location.path));
  }
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

absl::StatusOr<ConfigFile> ParseConfig(const std::string& path, const std::string& text) {
  ConfigFile file;
  file.path = path;
  try {
    RETURN_IF_ERROR(ConfigReader(&file).Read(YAML::Load(text)));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", error.mark.line + 1, ": ", error.msg));
  }
  return file;
}

absl::Status CheckContextName(const std::string& name) {
  const auto is_good = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  };
  if (!name.empty() && name.size() <= kMaxContextName &&
      std::isalnum(static_cast<unsigned char>(name[0])) != 0 &&
      std::all_of(name.begin(), name.end(), is_good)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("context name \"", name, "\" must be 1 to ", kMaxContextName,
                   " letters, digits, dots, dashes and underscores, a letter or digit first"));
}

std::string ContextHint(const ConfigFile& file, const std::string& name) {
  std::vector<std::string> names;
  names.reserve(file.contexts.size());
  for (const auto& [known, values] : file.contexts) names.push_back(known);
  if (names.empty()) return "; there is none: fsdpctl context set NAME server=HOST:PORT";
  std::string hint = DidYouMean(name, names);
  if (!hint.empty()) return hint;
  return absl::StrCat("; there ", names.size() == 1 ? "is " : "are ", absl::StrJoin(names, ", "));
}

absl::Status WriteConfig(const std::string& path, const std::string& text) {
  std::error_code error;
  std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  if (error) target = path;
  RETURN_IF_ERROR(MakeFolders(target.parent_path()));
  std::string temporary = absl::StrCat(target.string(), ".XXXXXX");
  // mkstemp makes it 0600.
  const int fd = mkstemp(temporary.data());
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", temporary, ")"));
  absl::Status status = WriteAll(fd, text, temporary);
  close(fd);
  if (status.ok() && std::rename(temporary.c_str(), target.c_str()) != 0) {
    status = ErrnoToStatus(errno, absl::StrCat("rename(", target.string(), ")"));
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace fsdp
