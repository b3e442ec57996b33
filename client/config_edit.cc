// Edits of the config file, line by line: yaml-cpp would write it anew without its comments.

#include <algorithm>
#include <cctype>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/config_file.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

// Lines [begin, end): a key's line and what is indented below it.
struct Block {
  std::size_t begin = 0;
  std::size_t end = 0;
  // What stands behind "key:" on its line, without its comment.
  std::string value;
  std::string comment;
};

struct Range {
  std::size_t begin;
  std::size_t end;
};

std::size_t IndentOf(const std::string& line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

bool IsContent(const std::string& line) {
  const std::size_t first = line.find_first_not_of(" \t\r");
  return first != std::string::npos && line[first] != '#';
}

// Where a value's comment starts (with the blanks before it), else the line's end.
std::size_t CommentStart(const std::string& text, std::size_t from) {
  char quote = 0;
  for (std::size_t i = from; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == '\\' && quote == '"') ++i;
      if (c == quote) quote = 0;
    } else if ((c == '"' || c == '\'') && (i == from || text[i - 1] == ' ')) {
      quote = c;
    } else if (c == '#' && i > 0 && text[i - 1] == ' ') {
      return text.find_last_not_of(' ', i - 1) + 1;
    }
  }
  return text.size();
}

// Length of `key` (plain or quoted) and its colon at `indent`; 0 when the line has another.
std::size_t KeyLength(const std::string& line, std::size_t indent, const std::string& key) {
  for (const char* quote : {"", "\"", "'"}) {
    const std::string wanted = absl::StrCat(quote, key, quote, ":");
    if (line.compare(indent, wanted.size(), wanted) != 0) continue;
    const std::size_t end = indent + wanted.size();
    if (end == line.size() || line[end] == ' ' || line[end] == '\r') return wanted.size();
  }
  return 0;
}

// A scalar that YAML reads back as it is.
std::string ScalarText(const std::string& value) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || absl::StrContains("_./:@-+", std::string(1, char(c)));
  };
  const bool starts_well =
      !value.empty() &&
      (std::isalnum(static_cast<unsigned char>(value[0])) != 0 || value[0] == '/');
  if (starts_well && value.back() != ':' && std::all_of(value.begin(), value.end(), is_plain)) {
    return value;
  }
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

class Editor {
 public:
  Editor(const std::string& path, const std::string& text)
      : path_(path), lines_(absl::StrSplit(text, '\n')) {
    if (lines_.back().empty()) lines_.pop_back();
  }

  [[nodiscard]] std::string Text() const {
    return lines_.empty() ? "" : absl::StrCat(absl::StrJoin(lines_, "\n"), "\n");
  }

  void SetTop(const std::string& key, const std::string& value) {
    if (const auto block = Find({0, lines_.size()}, 0, key)) {
      SetLine(*block, 0, key, value);
      return;
    }
    // Above the contexts, where one looks for it.
    const auto contexts = Find({0, lines_.size()}, 0, "contexts");
    Insert(contexts ? contexts->begin : lines_.size(), absl::StrCat(key, ": ", ScalarText(value)));
  }

  void RemoveTop(const std::string& key) {
    if (const auto block = Find({0, lines_.size()}, 0, key)) Erase(*block);
  }

  absl::Status SetContext(const std::string& name, const ConfigChanges& changes) {
    ASSIGN_OR_RETURN(Block contexts, Open({0, lines_.size()}, 0, "contexts"));
    const std::size_t indent = ChildIndent(contexts, 2);
    ASSIGN_OR_RETURN(Block context, Open({contexts.begin + 1, contexts.end}, indent, name));
    const std::size_t key_indent = ChildIndent(context, indent + 2);
    for (const auto& [key, value] : changes) {
      const auto found = Find({context.begin + 1, context.end}, key_indent, key);
      if (found && value.has_value()) {
        SetLine(*found, key_indent, key, *value);
      } else if (found) {
        Erase(*found);
        context.end -= found->end - found->begin;
      } else if (value.has_value()) {
        Insert(context.end++,
               absl::StrCat(std::string(key_indent, ' '), key, ": ", ScalarText(*value)));
      }
    }
    return absl::OkStatus();
  }

  absl::Status RemoveContext(const std::string& name) {
    ASSIGN_OR_RETURN(const Block contexts, Open({0, lines_.size()}, 0, "contexts"));
    const auto context = Find({contexts.begin + 1, contexts.end}, ChildIndent(contexts, 2), name);
    if (context) Erase(*context);
    return absl::OkStatus();
  }

 private:
  [[nodiscard]] std::optional<Block> Find(Range range, std::size_t indent,
                                          const std::string& key) const {
    for (std::size_t i = range.begin; i < range.end; ++i) {
      if (!IsContent(lines_[i]) || IndentOf(lines_[i]) != indent) continue;
      const std::size_t length = KeyLength(lines_[i], indent, key);
      if (length == 0) continue;
      Block block{.begin = i, .end = i + 1};
      for (std::size_t next = i + 1; next < range.end; ++next) {
        if (!IsContent(lines_[next])) continue;
        if (IndentOf(lines_[next]) <= indent) break;
        block.end = next + 1;
      }
      const std::size_t start = indent + length;
      const std::size_t comment = CommentStart(lines_[i], start);
      block.value =
          std::string(absl::StripAsciiWhitespace(lines_[i].substr(start, comment - start)));
      block.comment = lines_[i].substr(comment);
      return block;
    }
    return std::nullopt;
  }

  // A block whose entries are on lines of their own; made when it is missing.
  absl::StatusOr<Block> Open(Range range, std::size_t indent, const std::string& key) {
    const std::string head = absl::StrCat(std::string(indent, ' '), key, ":");
    auto block = Find(range, indent, key);
    if (!block) {
      // Behind the last content, so that comments of what follows stay with it.
      std::size_t at = range.end;
      while (at > range.begin && !IsContent(lines_[at - 1])) --at;
      Insert(at, head);
      return Block{.begin = at, .end = at + 1};
    }
    if (block->value == "{}" || block->value == "null" || block->value == "~") {
      lines_[block->begin] = absl::StrCat(head, block->comment);
    } else if (!block->value.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, ":", block->begin + 1, ": ", key, " is written as ", block->value,
                       "; write it as indented `key: value` lines, or change the file by hand"));
    }
    return *block;
  }

  [[nodiscard]] std::size_t ChildIndent(const Block& block, std::size_t fallback) const {
    for (std::size_t i = block.begin + 1; i < block.end; ++i) {
      if (IsContent(lines_[i])) return IndentOf(lines_[i]);
    }
    return fallback;
  }

  void SetLine(const Block& block, std::size_t indent, const std::string& key,
               const std::string& value) {
    lines_[block.begin] =
        absl::StrCat(std::string(indent, ' '), key, ": ", ScalarText(value), block.comment);
    // A value that went on below.
    lines_.erase(At(block.begin + 1), At(block.end));
  }

  void Insert(std::size_t at, std::string line) { lines_.insert(At(at), std::move(line)); }
  void Erase(const Block& block) { lines_.erase(At(block.begin), At(block.end)); }
  std::vector<std::string>::iterator At(std::size_t index) {
    return lines_.begin() + static_cast<std::ptrdiff_t>(index);
  }

  const std::string path_;
  std::vector<std::string> lines_;
};

// `text` when it says exactly what `wanted` does.
absl::StatusOr<std::string> Proven(const ConfigFile& wanted, std::string text) {
  const auto parsed = ParseConfig(wanted.path, text);
  if (parsed.ok() && *parsed == wanted) return text;
  return absl::FailedPreconditionError(
      absl::StrCat(wanted.path, " is written in a form that cannot be changed by lines; ",
                   "write it as indented `key: value` lines, or change it by hand"));
}

}  // namespace

absl::StatusOr<std::string> WithContext(const ConfigFile& file, const std::string& text,
                                        const std::string& name, const ConfigChanges& changes) {
  ConfigFile wanted = file;
  ConfigValues& values = wanted.contexts[name];
  for (const auto& [key, value] : changes) {
    if (value.has_value()) {
      values[key] = *value;
    } else {
      values.erase(key);
    }
  }
  Editor editor(file.path, text);
  RETURN_IF_ERROR(editor.SetContext(name, changes));
  return Proven(wanted, editor.Text());
}

absl::StatusOr<std::string> WithoutContext(const ConfigFile& file, const std::string& text,
                                           const std::string& name) {
  ConfigFile wanted = file;
  wanted.contexts.erase(name);
  Editor editor(file.path, text);
  RETURN_IF_ERROR(editor.RemoveContext(name));
  if (wanted.current_context == name) {
    wanted.current_context.clear();
    editor.RemoveTop("currentContext");
  }
  return Proven(wanted, editor.Text());
}

absl::StatusOr<std::string> WithCurrentContext(const ConfigFile& file, const std::string& text,
                                               const std::string& name) {
  ConfigFile wanted = file;
  wanted.current_context = name;
  Editor editor(file.path, text);
  if (name.empty()) {
    editor.RemoveTop("currentContext");
  } else {
    editor.SetTop("currentContext", name);
  }
  return Proven(wanted, editor.Text());
}

}  // namespace fsdp
