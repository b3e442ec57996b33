#include "tests/unit/worker/tokenize/sentencepiece_support.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

namespace fsdp {
namespace {

class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& sentences) : sentences_(sentences) {}
  [[nodiscard]] bool done() const override { return at_ == sentences_.size(); }
  void Next() override { ++at_; }
  [[nodiscard]] const std::string& value() const override { return sentences_[at_]; }
  [[nodiscard]] sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& sentences_;
  std::size_t at_ = 0;
};

}  // namespace

std::string TrainSentencePiece(const std::vector<std::string>& sentences, const std::string& type,
                               int vocab_size) {
  std::string model;
  const std::string arguments = "--model_type=" + type +
                                " --byte_fallback=true --hard_vocab_limit=false"
                                " --minloglevel=2 --vocab_size=" +
                                std::to_string(vocab_size);
  Sentences iterator(sentences);
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &iterator, &model);
  return status.ok() ? model : "";
}

std::string DecodeSentencePiece(const std::string& model, const std::vector<std::uint32_t>& ids) {
  sentencepiece::SentencePieceProcessor processor;
  std::string text;
  if (!processor.LoadFromSerializedProto(model).ok()) return "";
  if (!processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text).ok()) return "";
  return text;
}

}  // namespace fsdp
