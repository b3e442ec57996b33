#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "proto/support/status.h"
#include "worker/comm/rendezvous_store.h"

namespace fsdp {
namespace {

class DirectoryStore final : public RendezvousStore {
 public:
  explicit DirectoryStore(std::string directory) : directory_(std::move(directory)) {}

  absl::Status Put(const std::string& name, const std::string& value) override {
    const std::string path = PathOf(name);
    const std::string temporary = absl::StrCat(path, ".tmp.", ::getpid());
    {
      std::ofstream file(temporary, std::ios::binary);
      file << value;
      if (!file.flush()) {
        return absl::UnavailableError(absl::StrCat("cannot write ", temporary));
      }
    }
    if (std::rename(temporary.c_str(), path.c_str()) != 0) {
      return absl::UnavailableError(
          std::string(ErrnoToStatus(errno, absl::StrCat("rename(", path, ")")).message()));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Get(const std::string& name, absl::Duration timeout) override {
    const std::string path = PathOf(name);
    const absl::Time deadline = absl::Now() + timeout;
    for (;;) {
      std::ifstream file(path, std::ios::binary);
      if (file) {
        std::ostringstream value;
        value << file.rdbuf();
        return value.str();
      }
      if (::access(directory_.c_str(), F_OK) != 0) {
        return absl::UnavailableError(
            absl::StrCat("the rendezvous folder ", directory_, " is gone: the launcher ended"));
      }
      if (absl::Now() >= deadline) {
        return absl::DeadlineExceededError(
            absl::StrFormat("no \"%s\" within %s", name, absl::FormatDuration(timeout)));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

 private:
  // Keys have slashes; file names must not.
  [[nodiscard]] std::string PathOf(const std::string& name) const {
    std::string file;
    for (const char c : name) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      if (plain) {
        file.push_back(c);
      } else {
        absl::StrAppendFormat(&file, "_%02x", static_cast<unsigned char>(c));
      }
    }
    return absl::StrCat(directory_, "/", file);
  }

  std::string directory_;
};

}  // namespace

std::unique_ptr<RendezvousStore> CreateDirectoryStore(const std::string& directory) {
  return std::make_unique<DirectoryStore>(directory);
}

}  // namespace fsdp
