#include "worker/tokenize/pre_tokenizer.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/tokenize/pattern.h"
#include "worker/tokenize/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace fsdp {

const char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwenPattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::size_t kStackBytes = 32 << 10;
constexpr std::size_t kMaxStackBytes = 8 << 20;

bool IsKnownPattern(const std::string& pattern) {
  return pattern == kGpt2Pattern || pattern == kLlama3Pattern || pattern == kQwenPattern;
}

std::string Pcre2Message(int error) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(error, text, sizeof(text)) < 0) return absl::StrCat("error ", error);
  return reinterpret_cast<const char*>(text);
}

template <auto Destroy>
struct Pcre2Deleter {
  template <typename T>
  void operator()(T* object) const {
    Destroy(object);
  }
};
using CodePtr = std::unique_ptr<pcre2_code, Pcre2Deleter<pcre2_code_free>>;
using MatchDataPtr = std::unique_ptr<pcre2_match_data, Pcre2Deleter<pcre2_match_data_free>>;
using ContextPtr = std::unique_ptr<pcre2_match_context, Pcre2Deleter<pcre2_match_context_free>>;
using StackPtr = std::unique_ptr<pcre2_jit_stack, Pcre2Deleter<pcre2_jit_stack_free>>;

}  // namespace

struct PreTokenizer::Compiled {
  Rule rule;
  CodePtr code;
  // pcre2_match, or without its checks when there is machine code.
  decltype(&pcre2_match) match;
};

PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<std::shared_ptr<const PreTokenizer>> PreTokenizer::Create(
    const std::vector<Rule>& rules) {
  std::shared_ptr<PreTokenizer> made(new PreTokenizer);
  for (const Rule& rule : rules) {
    ASSIGN_OR_RETURN(const std::string pattern, PatternForPcre2(rule.pattern));
    int error = 0;
    std::size_t where = 0;
    // Multi-line for $, which is the end of any line in Ruby's syntax.
    CodePtr code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                               PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &where, nullptr));
    if (code == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("the pattern ", rule.pattern, ": ",
                                                     Pcre2Message(error), " (byte ", where, " of ",
                                                     pattern, ")"));
    }
    // Without JIT (another processor) pcre2_match interprets: the same pieces, slower.
    const bool has_jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;
    made->rules_.push_back(std::make_unique<Compiled>(
        Compiled{rule, std::move(code), has_jit ? pcre2_jit_match : pcre2_match}));
  }
  made->cuts_before_newlines_ = rules.size() == 1 && IsKnownPattern(rules[0].pattern);
  return std::shared_ptr<const PreTokenizer>(std::move(made));
}

struct Cutter::State {
  MatchDataPtr match{pcre2_match_data_create(/*ovecsize=*/1, nullptr)};
  ContextPtr context{pcre2_match_context_create(nullptr)};
  StackPtr stack{pcre2_jit_stack_create(kStackBytes, kMaxStackBytes, nullptr)};
};

Cutter::Cutter(std::shared_ptr<const PreTokenizer> pre_tokenizer)
    : pre_tokenizer_(std::move(pre_tokenizer)) {
  for (std::size_t i = 0; i < pre_tokenizer_->rules_.size(); ++i) {
    states_.push_back(std::make_unique<State>());
    pcre2_jit_stack_assign(states_[i]->context.get(), nullptr, states_[i]->stack.get());
  }
}

Cutter::~Cutter() = default;

absl::Status Cutter::CutFrom(std::size_t index, std::string_view text, const Sink& sink) {
  if (index == states_.size()) {
    sink(text);
    return absl::OkStatus();
  }
  const PreTokenizer::Compiled& rule = *pre_tokenizer_->rules_[index];
  const State& state = *states_[index];
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const std::size_t* range = pcre2_get_ovector_pointer(state.match.get());
  std::size_t done = 0;
  std::size_t from = 0;
  while (from < text.size()) {
    const int found = rule.match(rule.code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                 state.match.get(), state.context.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return absl::InternalError(
          absl::StrCat("the pattern ", rule.rule.pattern, ": ", Pcre2Message(found)));
    }
    const std::size_t begin = range[0];
    const std::size_t end = range[1];
    if (begin > done && rule.rule.keeps_rest) {
      RETURN_IF_ERROR(CutFrom(index + 1, text.substr(done, begin - done), sink));
    }
    if (end > begin) RETURN_IF_ERROR(CutFrom(index + 1, text.substr(begin, end - begin), sink));
    done = from = end;
    if (end >= text.size()) break;
    // An empty match cuts as well; the next one begins behind a character.
    if (begin == end) from += DecodeUtf8(text.substr(end)).size;
  }
  if (done == text.size() || !rule.rule.keeps_rest) return absl::OkStatus();
  return CutFrom(index + 1, text.substr(done), sink);
}

absl::Status Cutter::Cut(std::string_view text, const Sink& sink) {
  return text.empty() ? absl::OkStatus() : CutFrom(0, text, sink);
}

}  // namespace fsdp
