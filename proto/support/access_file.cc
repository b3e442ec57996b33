#include "proto/support/access_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"
#include "proto/support/suggest.h"

namespace fsdp {
namespace {

constexpr std::size_t kMaxNameChars = 63;
constexpr std::size_t kHashChars = 64;
// RFC 5280: at most 20 octets.
constexpr std::size_t kMaxSerialChars = 40;

constexpr std::array<std::pair<Role, std::string_view>, 5> kRoles = {
    {{Role::kViewer, "viewer"},
     {Role::kSubmitter, "submitter"},
     {Role::kOperator, "operator"},
     {Role::kAdmin, "admin"},
     {Role::kWorker, "worker"}}};

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsHex(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return IsDigit(c) || (c >= 'a' && c <= 'f'); });
}

// Lower-case, without colons.
std::string AllHexDigits(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != ':') digits += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  return digits;
}

// One parse: where it is in the file goes into every message.
class Parser {
 public:
  explicit Parser(const std::string& file) : file_(file) {}

  absl::StatusOr<AccessFile> Parse(const YAML::Node& root) {
    RETURN_IF_ERROR(CheckKeys(root, "the file", {"identities", "revoked"}));
    const YAML::Node list = root["identities"];
    if (!list || !list.IsSequence()) {
      return Error(list ? list : root, "identities", "must be a list, of one entry per identity");
    }
    AccessFile access;
    for (const YAML::Node& node : list) {
      ASSIGN_OR_RETURN(AccessEntry entry, ParseEntry(node));
      RETURN_IF_ERROR(CheckOnce(node, entry));
      access.entries.push_back(std::move(entry));
    }
    ASSIGN_OR_RETURN(access.revoked, ParseRevoked(root));
    return access;
  }

 private:
  absl::Status Error(const YAML::Node& at, std::string_view field, std::string_view problem) const {
    const YAML::Mark mark = at.Mark();
    return absl::InvalidArgumentError(absl::StrCat(file_, ":", mark.line + 1, ":", mark.column + 1,
                                                   ": ", ToAbsl(field), ": ", ToAbsl(problem)));
  }

  absl::Status CheckKeys(const YAML::Node& node, std::string_view what,
                         const std::vector<std::string>& known) const {
    if (!node.IsMap()) return Error(node, what, "must be `key: value` lines");
    std::map<std::string, int> seen;
    for (const auto& entry : node) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        return Error(entry.first, key,
                     absl::StrCat("unknown key; known are ", absl::StrJoin(known, ", "),
                                  DidYouMean(key, known)));
      }
      if (seen[key]++ > 0) return Error(entry.first, key, "is given twice");
    }
    return absl::OkStatus();
  }

  // Empty when the key is absent.
  absl::StatusOr<std::string> Text(const YAML::Node& node, const char* key) const {
    const YAML::Node value = node[key];
    if (!value) return std::string();
    if (!value.IsScalar() || value.Scalar().empty()) return Error(value, key, "must be one value");
    return value.Scalar();
  }

  absl::StatusOr<AccessEntry> ParseEntry(const YAML::Node& node) const {
    RETURN_IF_ERROR(
        CheckKeys(node, "identities", {"name", "tokenSha256", "certificate", "expires", "grants"}));
    AccessEntry entry;
    ASSIGN_OR_RETURN(entry.name, Text(node, "name"));
    if (!IsSubjectName(entry.name)) {
      return Error(node["name"] ? node["name"] : node, "name",
                   absl::StrCat("'", entry.name.substr(0, 100), "': want 1-", kMaxNameChars,
                                " characters of [A-Za-z0-9._@-], other than anonymous"));
    }
    ASSIGN_OR_RETURN(entry.token_sha256, Text(node, "tokenSha256"));
    ASSIGN_OR_RETURN(entry.certificate, Text(node, "certificate"));
    if (entry.token_sha256.empty() == entry.certificate.empty()) {
      return Error(node, entry.name, "wants tokenSha256 or certificate, one of the two");
    }
    if (!entry.token_sha256.empty()) RETURN_IF_ERROR(CheckHash(node["tokenSha256"]));
    ASSIGN_OR_RETURN(entry.expires, Time(node, "expires"));
    ASSIGN_OR_RETURN(entry.grants, ParseGrants(node, entry.name));
    return entry;
  }

  // What is there instead may be a token that was pasted: it is not repeated.
  absl::Status CheckHash(const YAML::Node& node) const {
    const std::string& hash = node.Scalar();
    if (hash.size() == kHashChars && IsHex(hash)) return absl::OkStatus();
    return Error(node, "tokenSha256",
                 absl::StrCat("is no hash (", hash.size(), " characters): want ", kHashChars,
                              " of [0-9a-f], as `fsdpctl admin create-token` prints them"));
  }

  // Never, when the key is absent.
  absl::StatusOr<absl::Time> Time(const YAML::Node& node, const char* key) const {
    ASSIGN_OR_RETURN(const std::string text, Text(node, key));
    if (text.empty()) return absl::InfiniteFuture();
    absl::Time time;
    std::string error;
    if (absl::ParseTime(absl::RFC3339_full, text, &time, &error)) return time;
    return Error(node[key], key,
                 absl::StrCat("'", text.substr(0, 100),
                              "': want a time with its zone, such as 2027-01-01T00:00:00Z"));
  }

  absl::StatusOr<std::vector<Grant>> ParseGrants(const YAML::Node& node,
                                                 const std::string& name) const {
    const YAML::Node list = node["grants"];
    if (!list || !list.IsSequence() || list.size() == 0) {
      return Error(list ? list : node, "grants",
                   absl::StrCat("of ", name, ": want a list such as [{role: viewer}]"));
    }
    std::vector<Grant> grants;
    grants.reserve(list.size());
    for (const YAML::Node& entry : list) {
      ASSIGN_OR_RETURN(grants.emplace_back(), ParseGrant(entry));
    }
    return grants;
  }

  absl::StatusOr<Grant> ParseGrant(const YAML::Node& node) const {
    RETURN_IF_ERROR(CheckKeys(node, "grants", {"role", "queues"}));
    ASSIGN_OR_RETURN(const std::string name, Text(node, "role"));
    const std::optional<Role> role = RoleFromName(name);
    if (!role) {
      std::vector<std::string> names;
      names.reserve(kRoles.size());
      for (const auto& [known, text] : kRoles) names.emplace_back(text);
      return Error(node["role"] ? node["role"] : node, "role",
                   absl::StrCat("'", name.substr(0, 100), "' is none of ",
                                absl::StrJoin(names, ", "), DidYouMean(name, names)));
    }
    Grant grant{.role = *role, .queues = {}};
    const YAML::Node queues = node["queues"];
    if (!queues) return grant;
    if (*role == Role::kAdmin || *role == Role::kWorker) {
      return Error(queues, "queues",
                   absl::StrCat("a grant of ", name, " is for all queues: leave them out"));
    }
    if (!queues.IsSequence() || queues.size() == 0) {
      return Error(queues, "queues", "want a list such as [research], or no key for every queue");
    }
    for (const YAML::Node& queue : queues) {
      if (!queue.IsScalar() || !IsQueueName(queue.Scalar())) {
        return Error(queue, "queues",
                     absl::StrCat("'", queue.IsScalar() ? queue.Scalar().substr(0, 100) : "",
                                  "' is no queue's name: want 1-63 of a-z, 0-9 and -, a letter "
                                  "first, no - last"));
      }
      grant.queues.push_back(queue.Scalar());
    }
    return grant;
  }

  absl::StatusOr<std::vector<RevokedCertificate>> ParseRevoked(const YAML::Node& root) const {
    std::vector<RevokedCertificate> revoked;
    const YAML::Node list = root["revoked"];
    if (!list) return revoked;
    if (!list.IsSequence()) {
      return Error(list, "revoked", "must be a list, of one entry per certificate");
    }
    for (const YAML::Node& node : list) {
      ASSIGN_OR_RETURN(revoked.emplace_back(), ParseRevokedEntry(node));
    }
    return revoked;
  }

  absl::StatusOr<RevokedCertificate> ParseRevokedEntry(const YAML::Node& node) const {
    RETURN_IF_ERROR(
        CheckKeys(node, "revoked", {"certificate", "serial", "fingerprint", "issuedBefore"}));
    RevokedCertificate entry;
    ASSIGN_OR_RETURN(entry.certificate, Text(node, "certificate"));
    ASSIGN_OR_RETURN(const std::string serial, Text(node, "serial"));
    ASSIGN_OR_RETURN(const std::string fingerprint, Text(node, "fingerprint"));
    if ((entry.certificate.empty() ? 0 : 1) + (serial.empty() ? 0 : 1) +
            (fingerprint.empty() ? 0 : 1) !=
        1) {
      return Error(node, "revoked",
                   "an entry wants certificate, serial or fingerprint, one of them");
    }
    // It would shut out everybody, the one who wrote it included.
    if (entry.certificate == "*") {
      return Error(node["certificate"], "certificate",
                   "'*' names every certificate: name a URI or common name, or how it begins");
    }
    if (!serial.empty()) {
      entry.serial = HexDigits(serial);
      if (!IsHex(entry.serial) || entry.serial.size() > kMaxSerialChars) {
        return Error(node["serial"], "serial",
                     absl::StrCat("'", serial.substr(0, 100),
                                  "': want hexadecimal digits, as `fsdpctl ca show` prints them, "
                                  "in quotes"));
      }
    }
    if (!fingerprint.empty()) {
      constexpr std::string_view kPrefix = "sha256:";
      entry.fingerprint = AllHexDigits(fingerprint.starts_with(kPrefix)
                                           ? std::string_view(fingerprint).substr(kPrefix.size())
                                           : std::string_view(fingerprint));
      if (!IsHex(entry.fingerprint) || entry.fingerprint.size() != kHashChars) {
        return Error(node["fingerprint"], "fingerprint",
                     absl::StrCat("'", fingerprint.substr(0, 100),
                                  "': want the SHA-256 that `fsdpctl ca show` prints: sha256: and ",
                                  kHashChars, " hexadecimal digits"));
      }
    }
    ASSIGN_OR_RETURN(entry.issued_before, Time(node, "issuedBefore"));
    if (node["issuedBefore"] && entry.certificate.empty()) {
      return Error(node["issuedBefore"], "issuedBefore",
                   "goes with certificate alone: a serial or fingerprint is of one certificate");
    }
    return entry;
  }

  absl::Status CheckOnce(const YAML::Node& node, const AccessEntry& entry) {
    const bool token = !entry.token_sha256.empty();
    const std::string& credential = token ? entry.token_sha256 : entry.certificate;
    const auto [other, added] = owners_.emplace(credential, entry.name);
    if (added) return absl::OkStatus();
    return Error(node, token ? "tokenSha256" : "certificate",
                 absl::StrCat("of ", entry.name, " is that of ", other->second,
                              " too: give each entry its own"));
  }

  const std::string& file_;
  std::map<std::string, std::string> owners_;
};

}  // namespace

std::string_view RoleName(Role role) {
  return std::find_if(kRoles.begin(), kRoles.end(), [&](const auto& r) { return r.first == role; })
      ->second;
}

std::optional<Role> RoleFromName(std::string_view name) {
  for (const auto& [role, text] : kRoles) {
    if (text == name) return role;
  }
  return std::nullopt;
}

bool IsSubjectName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameChars && name != "anonymous" &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return IsLower(c) || IsDigit(c) || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' ||
                  c == '@' || c == '-';
         });
}

bool IsQueueName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameChars && IsLower(name.front()) &&
         name.back() != '-' && std::all_of(name.begin(), name.end(), [](char c) {
           return IsLower(c) || IsDigit(c) || c == '-';
         });
}

std::string HexDigits(std::string_view text) {
  const std::string digits = AllHexDigits(text);
  return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
}

// yaml-cpp throws; nothing of it leaves this function.
absl::StatusOr<AccessFile> ParseAccessFile(const std::string& text, const std::string& file) {
  try {
    return Parser(file).Parse(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ":", error.mark.line + 1, ":", error.mark.column + 1, ": ", error.msg));
  }
}

std::string RenderAccessEntry(const AccessEntry& entry) {
  std::string text = absl::StrCat("  - name: \"", entry.name, "\"\n");
  if (!entry.token_sha256.empty()) {
    absl::StrAppend(&text, "    tokenSha256: \"", entry.token_sha256, "\"\n");
  }
  if (!entry.certificate.empty()) {
    absl::StrAppend(&text, "    certificate: \"", entry.certificate, "\"\n");
  }
  if (entry.expires != absl::InfiniteFuture()) {
    absl::StrAppend(&text, "    expires: \"",
                    absl::FormatTime(absl::RFC3339_sec, entry.expires, absl::UTCTimeZone()),
                    "\"\n");
  }
  absl::StrAppend(&text, "    grants:\n");
  for (const Grant& grant : entry.grants) {
    const std::string queues =
        grant.queues.empty() ? ""
                             : absl::StrCat(", queues: [", absl::StrJoin(grant.queues, ", "), "]");
    absl::StrAppend(&text, "      - {role: ", ToAbsl(RoleName(grant.role)), queues, "}\n");
  }
  return text;
}

}  // namespace fsdp
