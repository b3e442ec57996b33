#include "coordinator/store/etcd/etcd_keys.h"

#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {

std::string EtcdKeys::Number(std::int64_t number) { return absl::StrFormat("%016x", number); }

std::string EtcdKeys::Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-') {
      escaped += c;
    } else {
      absl::StrAppendFormat(&escaped, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return escaped;
}

std::string EtcdKeys::Unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ec == std::errc()) {
      plain += static_cast<char>(value);
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::int64_t EtcdKeys::NumberOf(std::string_view key) {
  key.remove_prefix(key.rfind('/') + 1);
  std::int64_t number = 0;
  std::from_chars(key.data(), key.data() + key.size(), number, 16);
  return number;
}

std::string EtcdKeys::EndOf(std::string prefix) {
  // Prefixes end with '/'.
  ++prefix.back();
  return prefix;
}

}  // namespace fsdp::coordinator
