#ifndef FSDPCTL_TESTS_UNIT_WORKER_TOKENIZE_SENTENCEPIECE_SUPPORT_H_
#define FSDPCTL_TESTS_UNIT_WORKER_TOKENIZE_SENTENCEPIECE_SUPPORT_H_

// libsentencepiece's trainer and decoder behind plain types (its headers do not compile beside
// Abseil's).

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// A model of `type` ("unigram", "bpe") with `vocab_size` pieces; empty when the trainer fails.
std::string TrainSentencePiece(const std::vector<std::string>& sentences, const std::string& type,
                               int vocab_size);

std::string DecodeSentencePiece(const std::string& model, const std::vector<std::uint32_t>& ids);

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_UNIT_WORKER_TOKENIZE_SENTENCEPIECE_SUPPORT_H_
