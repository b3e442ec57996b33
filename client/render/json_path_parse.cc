#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/render/json_path_parts.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

using Step = JsonPath::Step;
using Part = JsonPath::Part;

// Deeper templates are nobody's wish, and each level is a call.
constexpr int kMaxDepth = 32;

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  // Until the end, or inside a range until its {end}.
  absl::StatusOr<std::vector<Part>> Parts(bool in_range) {
    if (++depth_ > kMaxDepth) return Error("ranges are nested too deeply");
    const std::size_t begin = at_;
    std::vector<Part> parts;
    while (at_ < text_.size()) {
      if (text_[at_] != '{') {
        const std::size_t brace = std::min(text_.find('{', at_), text_.size());
        parts.push_back({.kind = Part::Kind::kText, .text = text_.substr(at_, brace - at_)});
        at_ = brace;
        continue;
      }
      ++at_;
      SkipBlanks();
      if (TakeWord("end")) {
        if (!in_range) return Error("{end} without {range ...}");
        RETURN_IF_ERROR(Take('}', "after end"));
        --depth_;
        return parts;
      }
      ASSIGN_OR_RETURN(Part part, Braces());
      parts.push_back(std::move(part));
    }
    if (in_range) return ErrorAt(begin, "this {range ...} has no {end}");
    --depth_;
    return parts;
  }

 private:
  // Behind "{".
  absl::StatusOr<Part> Braces() {
    Part part;
    if (Peek() == '"' || Peek() == '\'') {
      ASSIGN_OR_RETURN(part.text, Quoted());
      RETURN_IF_ERROR(Take('}', "after the text"));
      return part;
    }
    if (TakeWord("range")) {
      part.kind = Part::Kind::kRange;
      ASSIGN_OR_RETURN(JsonSteps path, Path());
      part.paths.push_back(std::move(path));
      RETURN_IF_ERROR(Take('}', "after the range's path"));
      ASSIGN_OR_RETURN(part.inside, Parts(true));
      return part;
    }
    part.kind = Part::Kind::kValues;
    do {
      ASSIGN_OR_RETURN(JsonSteps path, Path());
      part.paths.push_back(std::move(path));
      SkipBlanks();
    } while (TakeCharacter(','));
    RETURN_IF_ERROR(Take('}', "after the path"));
    return part;
  }

  // "$" or "@", then steps; at least one of them.
  absl::StatusOr<JsonSteps> Path() {
    SkipBlanks();
    const bool rooted = TakeCharacter('$') || TakeCharacter('@');
    JsonSteps steps;
    while (Peek() == '.' || Peek() == '[') {
      if (Peek() == '.' && at_ + 1 < text_.size() && text_[at_ + 1] == '[') ++at_;
      if (Peek() == '.' && (at_ + 1 == text_.size() || !StartsStep(text_[at_ + 1]))) {
        // A lone dot is the whole.
        if (!steps.empty() || rooted || (at_ + 1 < text_.size() && text_[at_ + 1] == '.')) break;
        ++at_;
        return steps;
      }
      ASSIGN_OR_RETURN(Step step, NextStep());
      steps.push_back(std::move(step));
    }
    if (Peek() == '.') {
      return Error(at_ + 1 < text_.size() && text_[at_ + 1] == '.'
                       ? ".. (search at any depth) is not in this subset; write the whole path"
                       : "a field's name must follow the dot");
    }
    if (steps.empty() && !rooted) {
      return Error("a path must begin with a dot, as in {.state}; text is quoted, as in {\"\\n\"}");
    }
    return steps;
  }

  static bool StartsStep(char c) { return IsNameCharacter(c) || c == '*'; }

  absl::StatusOr<Step> NextStep() {
    Step step{.position = at_ + 1};
    if (TakeCharacter('.')) {
      if (TakeCharacter('*')) {
        step.kind = Step::Kind::kAll;
        return step;
      }
      while (at_ < text_.size() && IsNameCharacter(text_[at_])) step.name += text_[at_++];
      return step;
    }
    ++at_;
    RETURN_IF_ERROR(Bracket(&step));
    RETURN_IF_ERROR(Take(']', "to close the ["));
    return step;
  }

  absl::Status Bracket(Step* step) {
    SkipBlanks();
    if (TakeCharacter('*')) {
      step->kind = Step::Kind::kAll;
      return absl::OkStatus();
    }
    if (Peek() == '"' || Peek() == '\'') {
      ASSIGN_OR_RETURN(step->name, Quoted());
      return absl::OkStatus();
    }
    if (TakeCharacter('?')) {
      step->kind = Step::Kind::kFilter;
      return Filter(&step->filter);
    }
    step->kind = Step::Kind::kIndex;
    ASSIGN_OR_RETURN(step->first, Index());
    SkipBlanks();
    if (TakeCharacter(':')) {
      step->kind = Step::Kind::kSlice;
      ASSIGN_OR_RETURN(step->end, Index());
      SkipBlanks();
    }
    if (step->kind == Step::Kind::kIndex && !step->first.has_value()) {
      return Error("must be a number, a slice such as 1:3, *, ?(...) or a quoted name");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<std::ptrdiff_t>> Index() {
    SkipBlanks();
    const std::size_t begin = at_;
    if (Peek() == '-') ++at_;
    while (std::isdigit(static_cast<unsigned char>(Peek())) != 0) ++at_;
    if (at_ == begin) return std::optional<std::ptrdiff_t>();
    int number = 0;
    if (!absl::SimpleAtoi(text_.substr(begin, at_ - begin), &number)) {
      return ErrorAt(begin, "is not a position in a list");
    }
    return std::optional<std::ptrdiff_t>(number);
  }

  absl::Status Filter(JsonFilter* filter) {
    RETURN_IF_ERROR(Take('(', "after ?"));
    SkipBlanks();
    if (Peek() != '@') return Error("a condition begins with @, as in ?(@.state==\"RUNNING\")");
    if (++depth_ > kMaxDepth) return Error("conditions are nested too deeply");
    ASSIGN_OR_RETURN(filter->left, Path());
    --depth_;
    SkipBlanks();
    for (const char* op : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (text_.compare(at_, std::string(op).size(), op) != 0) continue;
      filter->op = op;
      at_ += filter->op.size();
      break;
    }
    if (!filter->op.empty()) {
      ASSIGN_OR_RETURN(filter->right, Literal());
    }
    return Take(')', "to close the condition");
  }

  absl::StatusOr<nlohmann::ordered_json> Literal() {
    SkipBlanks();
    if (Peek() == '"' || Peek() == '\'') {
      ASSIGN_OR_RETURN(std::string text, Quoted());
      return nlohmann::ordered_json(text);
    }
    if (TakeWord("true")) return nlohmann::ordered_json(true);
    if (TakeWord("false")) return nlohmann::ordered_json(false);
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (IsNameCharacter(text_[at_]) || text_[at_] == '.' || text_[at_] == '+')) {
      ++at_;
    }
    double number = 0;
    if (!absl::SimpleAtod(text_.substr(begin, at_ - begin), &number)) {
      return ErrorAt(begin, "must be a number, true, false or a quoted text");
    }
    return nlohmann::ordered_json(number);
  }

  // "..." or '...' with \n, \t, \r, \\ and \quote.
  absl::StatusOr<std::string> Quoted() {
    const std::size_t begin = at_;
    const char quote = text_[at_++];
    std::string value;
    while (at_ < text_.size() && text_[at_] != quote) {
      char c = text_[at_++];
      if (c == '\\' && at_ < text_.size()) {
        const char escaped = text_[at_++];
        if (escaped == 'n') {
          c = '\n';
        } else if (escaped == 't') {
          c = '\t';
        } else if (escaped == 'r') {
          c = '\r';
        } else if (escaped == '\\' || escaped == '"' || escaped == '\'') {
          c = escaped;
        } else {
          return ErrorAt(at_ - 2, "is no escape; use \\n, \\t, \\r, \\\\, \\\" or \\'");
        }
      }
      value += c;
    }
    if (at_ == text_.size()) return ErrorAt(begin, "this quote is not closed");
    ++at_;
    return value;
  }

  [[nodiscard]] char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void SkipBlanks() {
    while (Peek() == ' ') ++at_;
  }
  bool TakeCharacter(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  // A whole word, not the beginning of another.
  bool TakeWord(const std::string& word) {
    if (text_.compare(at_, word.size(), word) != 0) return false;
    const std::size_t end = at_ + word.size();
    if (end < text_.size() && IsNameCharacter(text_[end])) return false;
    at_ = end;
    return true;
  }
  absl::Status Take(char c, const char* where) {
    SkipBlanks();
    if (TakeCharacter(c)) return absl::OkStatus();
    return Error(absl::StrCat("needs ", std::string(1, c), " ", where));
  }
  [[nodiscard]] absl::Status Error(const std::string& what) const { return ErrorAt(at_, what); }
  [[nodiscard]] absl::Status ErrorAt(std::size_t at, const std::string& what) const {
    const std::string found =
        at >= text_.size() ? "the end" : absl::StrCat("\"", text_.substr(at, 12), "\"");
    return absl::InvalidArgumentError(
        absl::StrCat("jsonpath at ", at + 1, ", ", found, ": ", what));
  }

  const std::string& text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<JsonPath::Part>> ParseJsonPathParts(const std::string& text) {
  if (text.find('{') == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("jsonpath \"", text, "\" names no value: write ",
                                                   "paths in braces, as in '{.state}'"));
  }
  return Parser(text).Parts(false);
}

}  // namespace fsdp
