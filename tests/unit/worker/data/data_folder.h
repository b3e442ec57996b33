#ifndef FSDPCTL_TESTS_UNIT_WORKER_DATA_DATA_FOLDER_H_
#define FSDPCTL_TESTS_UNIT_WORKER_DATA_DATA_FOLDER_H_

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/temporary_folder.h"

namespace fsdp {

// As they lie in memory, little-endian.
template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A folder of the test's own for the files that it makes.
class DataFolderTest : public testing::Test {
 protected:
  [[nodiscard]] std::string Path(const std::string& name) const { return folder_.Path(name); }
  std::string Write(const std::string& name, const std::string& bytes) const {
    return folder_.Write(name, bytes);
  }

  const TemporaryFolder folder_;
  const std::string directory_ = folder_.path();
};

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_UNIT_WORKER_DATA_DATA_FOLDER_H_
