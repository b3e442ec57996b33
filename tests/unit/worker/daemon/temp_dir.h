#ifndef FSDPCTL_TESTS_UNIT_WORKER_DAEMON_TEMP_DIR_H_
#define FSDPCTL_TESTS_UNIT_WORKER_DAEMON_TEMP_DIR_H_

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace fsdp::daemon {

// A fresh directory that goes with the object.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "fsdp_test_XXXXXX").string();
    path_ = ::mkdtemp(name.data()) == nullptr ? "/nonexistent" : name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_TESTS_UNIT_WORKER_DAEMON_TEMP_DIR_H_
