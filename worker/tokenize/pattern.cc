#include "worker/tokenize/pattern.h"

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ";
constexpr std::string_view kGroups[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Walks over one pattern. Offsets are bytes.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (!AtEnd()) RETURN_IF_ERROR(Next());
    return std::move(out_);
  }

 private:
  [[nodiscard]] bool AtEnd() const { return at_ >= pattern_.size(); }
  [[nodiscard]] std::string_view Rest() const { return pattern_.substr(at_); }

  void Copy(std::size_t count) {
    out_.append(pattern_.substr(at_, count));
    at_ += count;
  }

  [[nodiscard]] absl::Status Refuse(std::string_view construct) const {
    return absl::UnimplementedError(absl::StrCat("the construct ", ToAbsl(construct), " at byte ",
                                                 at_, " of the pattern ", ToAbsl(pattern_),
                                                 " is not supported"));
  }
  [[nodiscard]] absl::Status Unfinished(const char* what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("the pattern ", ToAbsl(pattern_), " ends inside ", what));
  }

  absl::Status Next() {
    switch (pattern_[at_]) {
      case '\\':
        return Escape();
      case '[':
        return Class();
      case '(':
        return Group();
      case '{':
        return Repeat();
      case '^':  // The start of any line there, of the text here.
        return Refuse("^");
      default:
        Copy(1);
        return absl::OkStatus();
    }
  }

  absl::Status Group() {
    if (Rest().rfind("(?", 0) != 0) {
      Copy(1);
      return absl::OkStatus();
    }
    for (const std::string_view group : kGroups) {
      if (Rest().rfind(group, 0) != 0) continue;
      Copy(group.size());
      return absl::OkStatus();
    }
    return Refuse(Rest().substr(0, 3));
  }

  // {n}, {n,} and {n,m} mean the same; {,m} does not, nor does a + after one.
  absl::Status Repeat() {
    const std::size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) return Unfinished("a {repetition}");
    const std::string_view inside = pattern_.substr(at_ + 1, close - at_ - 1);
    const bool plain = !inside.empty() && IsDigit(inside[0]) &&
                       inside.find_first_not_of("0123456789,") == std::string_view::npos;
    const bool stacked = close + 1 < pattern_.size() && pattern_[close + 1] == '+';
    if (!plain || stacked) return Refuse(pattern_.substr(at_, close + 1 - at_ + (stacked ? 1 : 0)));
    Copy(close + 1 - at_);
    return absl::OkStatus();
  }

  // Bracket expressions without nesting, intersections and POSIX names.
  absl::Status Class() {
    Copy(1);
    if (!AtEnd() && pattern_[at_] == '^') Copy(1);
    if (!AtEnd() && pattern_[at_] == ']') return Refuse("] at the start of a class");
    while (!AtEnd() && pattern_[at_] != ']') {
      if (pattern_[at_] == '[') return Refuse("[ in a class");
      if (Rest().rfind("&&", 0) == 0) return Refuse("&&");
      if (pattern_[at_] == '\\') {
        RETURN_IF_ERROR(Escape());
      } else {
        Copy(1);
      }
    }
    if (AtEnd()) return Unfinished("a [class]");
    Copy(1);
    return absl::OkStatus();
  }

  absl::Status Escape() {
    if (at_ + 1 >= pattern_.size()) return Unfinished("an escape");
    const char escaped = pattern_[at_ + 1];
    switch (escaped) {
      // PCRE2's own \s takes U+180E too, which has not been a space since Unicode 6.3.
      case 's':
        return Replace("\\p{White_Space}");
      case 'S':
        return Replace("\\P{White_Space}");
      case 'd':
        return Replace("\\p{Nd}");
      case 'D':
        return Replace("\\P{Nd}");
      case 'p':
      case 'P':
        return Property();
      case 'r':
      case 'n':
      case 't':
      case 'f':
        Copy(2);
        return absl::OkStatus();
      default:
        if (kPunctuation.find(escaped) == std::string_view::npos) {
          return Refuse(pattern_.substr(at_, 2));
        }
        Copy(2);
        return absl::OkStatus();
    }
  }

  absl::Status Replace(std::string_view by) {
    out_.append(by);
    at_ += 2;
    return absl::OkStatus();
  }

  // General categories are the same. Of a script's name PCRE2 would also take the characters that
  // the script shares with others; sc: asks for the script alone.
  absl::Status Property() {
    const std::size_t close = pattern_.find('}', at_);
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || close == std::string_view::npos) {
      return Refuse(pattern_.substr(at_, 3));
    }
    const std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    if (name.empty() || name.find_first_of("^&:=") != std::string_view::npos) {
      return Refuse(pattern_.substr(at_, close + 1 - at_));
    }
    absl::StrAppend(&out_, ToAbsl(pattern_.substr(at_, 3)), name.size() > 2 ? "sc:" : "",
                    ToAbsl(name), "}");
    at_ = close + 1;
    return absl::OkStatus();
  }

  const std::string_view pattern_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> PatternForPcre2(std::string_view pattern) {
  return Translator(pattern).Run();
}

std::string QuotedPattern(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    if (kPunctuation.find(c) != std::string_view::npos) quoted.push_back('\\');
    quoted.push_back(c);
  }
  return quoted;
}

}  // namespace fsdp
