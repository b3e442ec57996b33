// make_sentencepiece_model TYPE VOCAB_SIZE OUTPUT < sentences: for the tests that run executables.

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "tests/unit/worker/tokenize/sentencepiece_support.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: make_sentencepiece_model TYPE VOCAB_SIZE OUTPUT < sentences\n";
    return 2;
  }
  std::vector<std::string> sentences;
  for (std::string line; std::getline(std::cin, line);) sentences.push_back(line);
  const std::string model = fsdp::TrainSentencePiece(sentences, argv[1], std::atoi(argv[2]));
  std::ofstream file(argv[3], std::ios::binary);
  file << model;
  return model.empty() || !file.flush() ? 1 : 0;
}
