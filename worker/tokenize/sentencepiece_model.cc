#include "worker/tokenize/sentencepiece_model.h"

#include <sentencepiece_processor.h>

namespace fsdp {

struct SentencePieceModel::Library {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceModel::SentencePieceModel() : library_(std::make_unique<Library>()) {}
SentencePieceModel::~SentencePieceModel() = default;

std::unique_ptr<SentencePieceModel> SentencePieceModel::Load(std::string_view bytes,
                                                             std::string* error) {
  std::unique_ptr<SentencePieceModel> model(new SentencePieceModel);
  const auto status = model->library_->processor.LoadFromSerializedProto(bytes);
  if (status.ok() && model->vocab_size() > 0) return model;
  *error = status.ok() ? "it has no pieces" : status.ToString();
  return nullptr;
}

bool SentencePieceModel::Encode(std::string_view text, std::vector<std::uint32_t>* ids,
                                std::string* error) const {
  std::vector<int> pieces;
  const auto status = library_->processor.Encode(text, &pieces);
  if (!status.ok()) {
    *error = status.ToString();
    return false;
  }
  ids->insert(ids->end(), pieces.begin(), pieces.end());
  return true;
}

int SentencePieceModel::vocab_size() const { return library_->processor.GetPieceSize(); }

std::optional<std::uint32_t> SentencePieceModel::Find(const std::string& piece) const {
  const int id = library_->processor.PieceToId(piece);
  // What is no piece has the id of <unk>.
  if (id < 0 || library_->processor.IdToPiece(id) != piece) return std::nullopt;
  return static_cast<std::uint32_t>(id);
}

std::optional<std::uint32_t> SentencePieceModel::end_of_text() const {
  const int id = library_->processor.eos_id();
  if (id < 0) return std::nullopt;
  return static_cast<std::uint32_t>(id);
}

}  // namespace fsdp
