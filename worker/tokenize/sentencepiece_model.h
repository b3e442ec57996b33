#ifndef FSDPCTL_WORKER_TOKENIZE_SENTENCEPIECE_MODEL_H_
#define FSDPCTL_WORKER_TOKENIZE_SENTENCEPIECE_MODEL_H_

// libsentencepiece behind plain types: its header declares names of its own in namespace absl and
// compiles beside no header of Abseil. Thread-safe once loaded.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

class SentencePieceModel {
 public:
  // Null, with what is wrong in `error`, when `bytes` is no model.
  static std::unique_ptr<SentencePieceModel> Load(std::string_view bytes, std::string* error);
  ~SentencePieceModel();

  // Appends the ids of `text`; false, with `error`, when the library refuses.
  bool Encode(std::string_view text, std::vector<std::uint32_t>* ids, std::string* error) const;
  [[nodiscard]] int vocab_size() const;
  [[nodiscard]] std::optional<std::uint32_t> Find(const std::string& piece) const;
  [[nodiscard]] std::optional<std::uint32_t> end_of_text() const;

 private:
  struct Library;
  SentencePieceModel();
  std::unique_ptr<Library> library_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_SENTENCEPIECE_MODEL_H_
