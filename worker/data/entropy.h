#ifndef FSDPCTL_WORKER_DATA_ENTROPY_H_
#define FSDPCTL_WORKER_DATA_ENTROPY_H_

// What a run of tokens costs to code without a model, in nats per token: the yardstick that a loss
// is held against.

#include <cstdint>
#include <span>

namespace fsdp {

// With c(a) the times a occurs, c(a, b) the times b follows a, over the N tokens themselves:
struct EntropyStats {
  std::int64_t num_tokens = 0;  // N
  // -sum_a c(a)/N ln(c(a)/N)
  double unigram = 0;
  // H(next | current) = -sum_ab c(a,b)/(N-1) ln(c(a,b)/c'(a)), c'(a) = sum_b c(a,b). It is what the
  // best table of followers, fitted to this very text, would reach.
  double bigram_conditional = 0;
};

// Sorts a copy of the pairs: O(N log N) time, 8 bytes a token.
EntropyStats ComputeEntropy(std::span<const std::uint32_t> tokens);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_ENTROPY_H_
