#include "proto/support/spec_document.h"

#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fsdp::spec {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Length of the well-formed UTF-8 sequence at the front of `text`, 0 when there is none.
std::size_t Utf8Length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!IsContinuation(text[i])) return 0;
  }
  // Over-long forms, surrogates and code points past U+10FFFF.
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;
  if (lead == 0xED && byte(1) >= 0xA0) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) >= 0x90) return 0;
  return length;
}

// Line and column of byte offsets; columns count characters.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {
    starts_.push_back(0);
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') starts_.push_back(i + 1);
    }
  }

  SourceMap::Place At(std::size_t line, std::size_t column_bytes) const {
    line = std::min(line, starts_.size() - 1);
    const std::size_t end = std::min(starts_[line] + column_bytes, text_.size());
    int column = 1;
    for (std::size_t i = starts_[line]; i < end; ++i) column += IsContinuation(text_[i]) ? 0 : 1;
    return {static_cast<int>(line) + 1, column, ""};
  }

  SourceMap::Place AtOffset(std::size_t offset) const {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), offset);
    const std::size_t line = static_cast<std::size_t>(after - starts_.begin()) - 1;
    return At(line, offset - starts_[line]);
  }

  SourceMap::Place AtMark(const YAML::Mark& mark) const {
    if (mark.is_null()) return {1, 1, ""};
    return At(static_cast<std::size_t>(mark.line), static_cast<std::size_t>(mark.column));
  }

 private:
  std::string_view text_;
  std::vector<std::size_t> starts_;
};

SpecIssue IssueAt(const SourceMap::Place& place, std::string message, std::string allowed = "") {
  SpecIssue issue;
  issue.line = place.line;
  issue.column = place.column;
  issue.message = std::move(message);
  issue.allowed = std::move(allowed);
  return issue;
}

// Bytes that no spec holds: malformed UTF-8 and control characters.
bool CheckBytes(std::string_view text, const Lines& lines, std::vector<SpecIssue>* issues) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = Utf8Length(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    if (length == 0) {
      issues->push_back(
          IssueAt(lines.AtOffset(i), absl::StrCat("byte 0x", absl::Hex(byte, absl::kZeroPad2),
                                                  " is not UTF-8; save the file as UTF-8")));
      return false;
    }
    if ((byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7F) {
      issues->push_back(IssueAt(
          lines.AtOffset(i),
          absl::StrCat("control character 0x", absl::Hex(byte, absl::kZeroPad2), "; remove it")));
      return false;
    }
    i += length;
  }
  return true;
}

// Does a null begin here that somebody wrote? The reader places a value that is missing at whatever
// comes next.
bool IsNullWord(std::string_view text) {
  const std::size_t end = text.find_first_of(" \t\r\n,]}#");
  const std::string_view word = text.substr(0, end);
  return word == "~" || word == "null" || word == "Null" || word == "NULL";
}

// Does the quote at the front of `text` have an end? yaml-cpp takes the end of the file for one.
// True also for block scalars, which have no quotes.
bool IsQuoteClosed(std::string_view text) {
  if (text.empty() || (text[0] != '"' && text[0] != '\'')) return true;
  const char quote = text[0];
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      // '' stands for one ' inside single quotes.
      if (quote == '"' || i + 1 >= text.size() || text[i + 1] != quote) return true;
      ++i;
    }
  }
  return false;
}

// The code unit of the \\uXXXX escape at the front of `text`; -1 when there is none.
int EscapedUnit(std::string_view text) {
  constexpr std::size_t kLength = 6;
  if (text.size() < kLength || !text.starts_with("\\u")) return -1;
  int unit = 0;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + kLength, unit, 16);
  return error == std::errc() && end == text.data() + kLength ? unit : -1;
}

// JSON writes characters beyond U+FFFF as two escapes (a surrogate pair), YAML as one \\UXXXXXXXX.
// Columns behind such a character are off by two.
std::string WithYamlEscapes(std::string_view json) {
  std::string yaml;
  for (std::size_t i = 0; i < json.size();) {
    const int high = EscapedUnit(json.substr(i));
    const int low = high < 0 ? -1 : EscapedUnit(json.substr(i + 6));
    if (high >= 0xD800 && high < 0xDC00 && low >= 0xDC00 && low < 0xE000) {
      absl::StrAppend(
          &yaml, "\\U",
          absl::Hex(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00), absl::kZeroPad8));
      i += 12;
    } else {
      // A backslash and what it escapes stay together: \\\\ud83d is no escape.
      const std::size_t length = json[i] == '\\' && i + 1 < json.size() ? 2 : 1;
      yaml.append(json.substr(i, length));
      i += length;
    }
  }
  return yaml;
}

// Builds the tree from parse events. After a limit is hit the remaining events are ignored.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, const Lines& lines, const SpecOptions& limits,
              std::vector<SpecIssue>* issues)
      : text_(text), lines_(lines), limits_(limits), issues_(issues) {}

  // The document; nothing when a limit cut it off, as what is missing would be misjudged.
  SpecNode Take() { return stopped_ ? SpecNode{} : std::move(root_); }
  [[nodiscard]] bool stopped() const { return stopped_; }

  [[nodiscard]] const SourceMap::Place& start() const { return start_; }

  void OnDocumentStart(const YAML::Mark& mark) override { start_ = lines_.AtMark(mark); }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    SpecNode node = NodeAt(mark, anchor, "");
    node.explicit_null = IsNullWord(text_.substr(OffsetOf(mark)));
    Close(std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Report(lines_.AtMark(mark), "aliases (*name) are not used in specs; write the value out");
    SpecNode node;
    node.place = lines_.AtMark(mark);
    Close(std::move(node));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    SpecNode node = NodeAt(mark, anchor, tag);
    node.kind = SpecNode::Kind::kScalar;
    node.text = value;
    node.quoted = tag == "!";
    if (node.quoted && !IsQuoteClosed(text_.substr(OffsetOf(mark)))) {
      Stop(node.place, "syntax: the quote that begins here is never closed");
    }
    Close(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, SpecNode::Kind::kList);
  }
  void OnSequenceEnd() override { CloseOpen(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, SpecNode::Kind::kMap);
  }
  void OnMapEnd() override { CloseOpen(); }

 private:
  // A map or list whose end has not come yet, with the key that waits for its value.
  struct Frame {
    SpecNode node;
    bool has_key = false;
    SpecNode key;
  };

  void Report(const SourceMap::Place& place, std::string message) {
    if (!stopped_) issues_->push_back(IssueAt(place, std::move(message)));
  }
  void Stop(const SourceMap::Place& place, std::string message) {
    Report(place, std::move(message));
    stopped_ = true;
  }

  [[nodiscard]] std::size_t OffsetOf(const YAML::Mark& mark) const {
    return std::min(static_cast<std::size_t>(std::max(mark.pos, 0)), text_.size());
  }

  SpecNode NodeAt(const YAML::Mark& mark, YAML::anchor_t anchor, const std::string& tag) {
    SpecNode node;
    node.place = lines_.AtMark(mark);
    if (anchor != 0) {
      Report(node.place, "anchors (&name) are not used in specs; remove it");
    }
    if (!tag.empty() && tag != "?" && tag != "!") {
      Report(node.place, "tags (!name) are not used in specs; remove it");
    }
    if (++num_nodes_ > limits_.max_nodes) {
      Stop(node.place, absl::StrCat("more than ", limits_.max_nodes, " values in one document"));
    }
    return node;
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            SpecNode::Kind kind) {
    SpecNode node = NodeAt(mark, anchor, tag);
    node.kind = kind;
    if (static_cast<int>(stack_.size()) >= limits_.max_depth) {
      Stop(node.place, absl::StrCat("nested more than ", limits_.max_depth, " deep"));
    }
    // Once stopped, only the balance of starts and ends still matters.
    if (stopped_) {
      ++ignored_depth_;
      return;
    }
    stack_.push_back(Frame{std::move(node), false, {}});
  }

  void CloseOpen() {
    if (ignored_depth_ > 0) {
      --ignored_depth_;
      return;
    }
    SpecNode node = std::move(stack_.back().node);
    stack_.pop_back();
    Attach(std::move(node));
  }

  void Close(SpecNode node) {
    if (!stopped_) Attach(std::move(node));
  }

  void Attach(SpecNode node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = stack_.back();
    if (frame.node.kind == SpecNode::Kind::kList) {
      frame.node.items.push_back(std::move(node));
    } else if (!frame.has_key) {
      if (node.kind == SpecNode::Kind::kMap || node.kind == SpecNode::Kind::kList) {
        Report(node.place, "a key must be a name, not a list or an object");
      }
      frame.key = std::move(node);
      frame.has_key = true;
    } else {
      const bool is_name = frame.key.kind == SpecNode::Kind::kScalar;
      const bool is_null = frame.key.kind == SpecNode::Kind::kNull;
      if (is_null && !frame.key.explicit_null) {
        Report(frame.key.place, "a key is missing here; is there a comma too many?");
      } else if (is_name || is_null) {
        std::string key = is_name ? std::move(frame.key.text) : "null";
        frame.node.members.push_back(Member{std::move(key), frame.key.place, std::move(node)});
      }
      frame.has_key = false;
    }
  }

  std::string_view text_;
  const Lines& lines_;
  const SpecOptions& limits_;
  std::vector<SpecIssue>* issues_;
  std::vector<Frame> stack_;
  SourceMap::Place start_;
  SpecNode root_;
  int num_nodes_ = 0;
  int ignored_depth_ = 0;
  bool stopped_ = false;
};

}  // namespace

bool CheckText(std::string_view text, const SpecOptions& limits, std::vector<SpecIssue>* issues) {
  if (text.size() > limits.max_bytes) {
    issues->push_back(IssueAt(
        {1, 1, ""}, absl::StrCat(text.size(), " bytes; at most ", limits.max_bytes, " are read")));
    return false;
  }
  return CheckBytes(text, Lines(text), issues);
}

SpecNode ReadDocument(std::string_view text, const SpecOptions& limits,
                      std::vector<SpecIssue>* issues) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (!CheckText(text, limits, issues)) return {};
  std::string rewritten;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') {
    rewritten = WithYamlEscapes(text);
    text = rewritten;
  }

  const Lines lines(text);
  TreeBuilder builder(text, lines, limits, issues);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return {};
    SpecNode root = builder.Take();
    std::vector<SpecIssue> ignored;
    TreeBuilder rest(text, lines, limits, &ignored);
    if (parser.HandleNextDocument(rest)) {
      issues->push_back(
          IssueAt(rest.start(), "a second document (---) begins; a file holds one job"));
    }
    return root;
  } catch (const YAML::Exception& error) {
    if (!builder.stopped()) {
      issues->push_back(IssueAt(lines.AtMark(error.mark), absl::StrCat("syntax: ", error.msg)));
    }
  }
  return builder.Take();
}

}  // namespace fsdp::spec
