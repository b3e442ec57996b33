#ifndef FSDPCTL_WORKER_TOKENIZE_PRE_TOKENIZER_H_
#define FSDPCTL_WORKER_TOKENIZE_PRE_TOKENIZER_H_

// Cuts text into pieces that no merge crosses, by the patterns of a tokenizer.json: PCRE2 with JIT.
//
// Thread rule: a PreTokenizer is thread-safe; a Cutter is one thread's and outlived by it.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp {

// GPT-2's pattern, which the ByteLevel pre-tokenizer stands for.
extern const char kGpt2Pattern[];

class PreTokenizer {
 public:
  struct Rule {
    // Oniguruma's syntax.
    std::string pattern;
    // What no match covers is a piece (Isolated), or is dropped (Removed, inverted).
    bool keeps_rest = true;
  };

  // Each rule cuts the pieces of the one before; without rules the text is one piece.
  //   UNIMPLEMENTED, INVALID_ARGUMENT  a pattern that cannot be run; names it
  static absl::StatusOr<std::shared_ptr<const PreTokenizer>> Create(const std::vector<Rule>& rules);
  ~PreTokenizer();
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  // True when there is always a cut between an ASCII letter and a newline, whatever else the text
  // holds: long documents may then be cut there and tokenized in parts. Known of the patterns of
  // GPT-2, Llama 3 and Qwen.
  [[nodiscard]] bool cuts_before_newlines() const { return cuts_before_newlines_; }

 private:
  friend class Cutter;
  struct Compiled;
  PreTokenizer() = default;

  std::vector<std::unique_ptr<Compiled>> rules_;
  bool cuts_before_newlines_ = false;
};

class Cutter {
 public:
  explicit Cutter(std::shared_ptr<const PreTokenizer> pre_tokenizer);
  ~Cutter();
  Cutter(const Cutter&) = delete;
  Cutter& operator=(const Cutter&) = delete;

  using Sink = std::function<void(std::string_view)>;

  // Hands the pieces of `text` (valid UTF-8) to `sink`, in order.
  //   INTERNAL  PCRE2 gives up (a pattern that needs too much stack); names the pattern
  absl::Status Cut(std::string_view text, const Sink& sink);

 private:
  struct State;
  // By rule `index` and those behind it.
  absl::Status CutFrom(std::size_t index, std::string_view text, const Sink& sink);

  const std::shared_ptr<const PreTokenizer> pre_tokenizer_;
  // A rule's matches are done with one by one, so each rule has its own.
  std::vector<std::unique_ptr<State>> states_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_PRE_TOKENIZER_H_
