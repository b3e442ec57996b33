#ifndef FSDPCTL_TESTS_UNIT_WORKER_TOKENIZE_SMALL_TOKENIZER_H_
#define FSDPCTL_TESTS_UNIT_WORKER_TOKENIZE_SMALL_TOKENIZER_H_

// A byte-level tokenizer.json by hand: ids 0..255 are the bytes, then one id for each merge, then
// the added tokens.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "worker/tokenize/byte_alphabet.h"

namespace fsdp {

// Merges are spelled: "Ġ t" makes " t".
inline nlohmann::json SmallTokenizer(const std::vector<std::string>& merges = {},
                                     const std::vector<std::string>& added = {}) {
  nlohmann::json vocab = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocab[SpellingOfByte(static_cast<std::uint8_t>(byte))] = byte;
  }
  for (const std::string& merge : merges) {
    std::string merged = merge;
    merged.erase(merged.find(' '), 1);
    vocab[merged] = vocab.size();
  }
  nlohmann::json tokens = nlohmann::json::array();
  for (const std::string& content : added) {
    tokens.push_back({{"id", vocab.size() + tokens.size()},
                      {"content", content},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", true}});
  }
  return {
      {"added_tokens", tokens},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_UNIT_WORKER_TOKENIZE_SMALL_TOKENIZER_H_
