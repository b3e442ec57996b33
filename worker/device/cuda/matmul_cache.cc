#include "worker/device/cuda/matmul_cache.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace fsdp {
namespace {

constexpr char kHeader[] = "fsdpctl matmul algorithms 1";

}  // namespace

MatMulCache::MatMulCache(const std::string& directory, const std::string& device) {
  if (directory.empty()) return;
  const std::string model =
      absl::StrReplaceAll(absl::AsciiStrToLower(device), {{" ", "-"}, {"/", "-"}});
  path_ = absl::StrCat(directory, "/matmul-", model, "-cublaslt", cublasLtGetVersion(), ".txt");
  Read();
}

std::optional<cublasLtMatmulAlgo_t> MatMulCache::Find(const std::string& shape) const {
  const auto found = lines_.find(shape);
  if (found == lines_.end()) return std::nullopt;
  const std::string bytes = absl::HexStringToBytes(found->second);
  cublasLtMatmulAlgo_t algorithm;
  if (bytes.size() != sizeof(algorithm)) return std::nullopt;
  std::memcpy(&algorithm, bytes.data(), sizeof(algorithm));
  return algorithm;
}

void MatMulCache::Put(const std::string& shape, const cublasLtMatmulAlgo_t& algorithm) {
  const auto* bytes = reinterpret_cast<const char*>(&algorithm);
  lines_[shape] = absl::BytesToHexString({bytes, sizeof(algorithm)});
  if (!path_.empty()) Write();
}

void MatMulCache::Read() {
  std::ifstream file(path_);
  std::string line;
  if (!std::getline(file, line) || line != kHeader) return;
  while (std::getline(file, line)) {
    const std::size_t space = line.rfind(' ');
    if (space == std::string::npos) continue;
    const std::string hex = line.substr(space + 1);
    const bool whole = hex.size() == 2 * sizeof(cublasLtMatmulAlgo_t) &&
                       hex.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (whole) lines_[line.substr(0, space)] = hex;
  }
}

void MatMulCache::Write() const {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  const std::string partial = absl::StrCat(path_, ".", getpid());
  {
    std::ofstream file(partial, std::ios::trunc);
    file << kHeader << '\n';
    for (const auto& [shape, hex] : lines_) file << shape << ' ' << hex << '\n';
    if (!file.flush()) {
      std::filesystem::remove(partial, error);
      return;
    }
  }
  std::filesystem::rename(partial, path_, error);
  if (error) std::filesystem::remove(partial, error);
}

}  // namespace fsdp
