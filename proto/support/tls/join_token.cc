#include "proto/support/tls/join_token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/status.h"
#include "proto/support/tls/openssl.h"

namespace fsdp::tls {
namespace {

constexpr char kVersion[] = "fsdpjoin1";
constexpr std::size_t kIdDigits = 12;
constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kSecretCharacters = 43;
constexpr std::size_t kFingerprintDigits = 64;

absl::StatusOr<std::string> RandomBytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
    return OpensslToStatus("RAND_bytes");
  }
  return bytes;
}

bool IsHex(const std::string& text, std::size_t size) {
  return text.size() == size && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

absl::StatusOr<JoinToken> NewJoinToken(const std::string& authority_fingerprint) {
  ASSIGN_OR_RETURN(const std::string id, RandomBytes(kIdDigits / 2));
  ASSIGN_OR_RETURN(const std::string secret, RandomBytes(kSecretBytes));
  return JoinToken{absl::BytesToHexString(id), absl::WebSafeBase64Escape(secret),
                   authority_fingerprint};
}

std::string JoinTokenText(const JoinToken& token) {
  return absl::StrCat(kVersion, ".", token.id, ".", token.secret, ".", token.authority_fingerprint);
}

absl::StatusOr<JoinToken> ParseJoinToken(std::string_view text) {
  const std::vector<std::string> parts =
      absl::StrSplit(absl::StripAsciiWhitespace(ToAbsl(text)), '.');
  std::string secret;
  if (parts.size() == 4 && parts[0] == kVersion && IsHex(parts[1], kIdDigits) &&
      parts[2].size() == kSecretCharacters && absl::WebSafeBase64Unescape(parts[2], &secret) &&
      IsHex(parts[3], kFingerprintDigits)) {
    return JoinToken{parts[1], parts[2], parts[3]};
  }
  return absl::InvalidArgumentError(
      "no join token: want the one line that fsdpctl ca join-token printed (fsdpjoin1.…)");
}

std::string HashOfSecret(std::string_view secret) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_Digest(secret.data(), secret.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

bool SameHash(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace fsdp::tls
