#include "worker/data/batch_source.h"

#include "absl/strings/str_format.h"

namespace fsdp {

absl::Status CheckRead(std::int64_t position, std::size_t num_tokens, std::size_t num_targets,
                       std::size_t num_begins, std::int64_t sequence_length) {
  if (position >= 0 && num_tokens == num_targets && (num_begins == 0 || num_begins == num_tokens) &&
      num_tokens % static_cast<std::size_t>(sequence_length) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("position %d with %d tokens, %d targets and %d document begins of sequences "
                      "of %d",
                      position, num_tokens, num_targets, num_begins, sequence_length));
}

}  // namespace fsdp
