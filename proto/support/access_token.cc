#include "proto/support/access_token.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr std::size_t kRandomBytes = 32;
constexpr std::size_t kLeastChars = 20;
constexpr std::size_t kMostChars = 512;

}  // namespace

std::string NewToken() {
  std::array<unsigned char, kRandomBytes> random{};
  FSDP_CHECK(RAND_bytes(random.data(), static_cast<int>(random.size())) == 1,
             "the system has no random bytes");
  const absl::string_view bytes(reinterpret_cast<const char*>(random.data()), random.size());
  std::string text = absl::WebSafeBase64Escape(bytes);
  return absl::StrCat("fsdp_", text);
}

std::string TokenHash(std::string_view token) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  FSDP_CHECK(
      EVP_Digest(token.data(), token.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1,
      "SHA-256 is not available");
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

bool IsTokenText(std::string_view text) {
  return text.size() >= kLeastChars && text.size() <= kMostChars &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostChars + 3, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad() || (file.gcount() == 0 && errno != 0)) {
    return ErrnoToStatus(errno, absl::StrCat("cannot read the token file ", path));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (IsTokenText(text)) return text;
  return absl::InvalidArgumentError(absl::StrCat("the token file ", path, " holds no token (",
                                                 text.size(), " bytes): want one ",
                                                 "line as `fsdpctl admin create-token` prints it"));
}

}  // namespace fsdp
