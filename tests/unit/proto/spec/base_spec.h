#ifndef FSDPCTL_TESTS_UNIT_PROTO_SPEC_BASE_SPEC_H_
#define FSDPCTL_TESTS_UNIT_PROTO_SPEC_BASE_SPEC_H_

// A small valid spec and its edits by line.

#include <sstream>
#include <string>
#include <vector>

namespace fsdp::spec_testing {

inline const std::vector<std::string>& BaseLines() {
  static const std::vector<std::string> lines = {
      "apiVersion: fsdp.v1",     // 1
      "kind: TrainingJob",       // 2
      "metadata:",               // 3
      "  name: job",             // 4
      "spec:",                   // 5
      "  model:",                // 6
      "    family: llama",       // 7
      "    vocabSize: 256",      // 8
      "    dim: 64",             // 9
      "    numLayers: 2",        // 10
      "    numHeads: 4",         // 11
      "    mlpDim: 128",         // 12
      "  data:",                 // 13
      "    source: synthetic",   // 14
      "    sequenceLength: 32",  // 15
      "  train:",                // 16
      "    globalBatch: 8",      // 17
      "  limits:",               // 18
      "    maxSteps: 10",        // 19
      "",                        // 20
  };
  return lines;
}

// The base with line `line` (from 1) replaced by `text`, which may hold several lines.
inline std::string WithLine(int line, const std::string& text) {
  std::string spec;
  for (std::size_t i = 0; i < BaseLines().size(); ++i) {
    spec += static_cast<int>(i) + 1 == line ? text : BaseLines()[i];
    spec += "\n";
  }
  return spec;
}

inline std::string BaseSpec() { return WithLine(0, ""); }

}  // namespace fsdp::spec_testing

#endif  // FSDPCTL_TESTS_UNIT_PROTO_SPEC_BASE_SPEC_H_
