#ifndef FSDPCTL_WORKER_TRAIN_ORACLE_H_
#define FSDPCTL_WORKER_TRAIN_ORACLE_H_

// Replays an oracle file with the engine and compares: `fsdp-trainer oracle FILE`.
//
// Tolerances in fp32: loss of every step 2e-5 relative; every first-step gradient 1e-5 norm-wise;
// grad norm of every step 1e-3 relative; final weights 1e-4 norm-wise, all concatenated and per
// tensor, there without the rows of key biases: the softmax cancels those, so their true gradient
// is zero and Adam turns rounding into steps. In bf16 the yardstick is the peer's own bf16 run: the
// root mean square over steps of |ours - fp32| is between 0.2 and 1.5 times that of |theirs -
// fp32|.

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fsdp/v1/job.pb.h"
#include "worker/device/dtype.h"
#include "worker/train/local_ranks.h"
#include "worker/train/oracle_file.h"

namespace fsdp {

struct OracleOptions {
  int world_size = 1;
  CommunicatorKind communicator = CommunicatorKind::kInProcess;
  DType parameter_dtype = DType::kF32;  // or kBf16
  DType reduce_dtype = DType::kF32;
  std::int64_t micro_batch = 0;
  v1::RecomputePolicy recompute = v1::RECOMPUTE_POLICY_AUTO;
  bool reshard_after_forward = true;
  int prefetch = 1;
  int num_communicators = 2;
};

struct OracleReport {
  std::string file, precision, communicator;
  int world_size = 1;
  std::int64_t steps = 0;
  double loss_error = 0;  // largest relative, over the steps
  double grad_norm_error = 0;
  double gradient_error = 0;  // worst first-step gradient, norm-wise
  std::string worst_gradient;
  double final_error = 0;         // all weights as one vector
  double final_tensor_error = 0;  // worst tensor
  std::string worst_final;
  double bf16_rms = 0, peer_bf16_rms = 0;  // bf16 only
  std::vector<double> losses;
  // What is beyond its tolerance, in words; empty: passed.
  std::vector<std::string> failures;

  [[nodiscard]] bool passed() const { return failures.empty(); }
  // One line.
  [[nodiscard]] std::string ToJson() const;
};

// Errors are those of the run itself; figures beyond tolerance are in the report.
absl::StatusOr<OracleReport> RunOracle(const OracleFile& oracle, const OracleOptions& options,
                                       const LocalBackend& backend);

// What `fsdp-trainer oracle --help` prints.
extern const char kOracleUsage[];

// `fsdp-trainer oracle FILE [--local-ranks N] [--communicator gloo|in_process|nccl] [--device D]
// [--precision fp32|bf16] [--reduce fp32|bf16] [--micro-batch N] [--recompute P] [--prefetch 0|1]
// [--communicators 1|2] [--no-reshard]`: prints the line; returns the exit code (0 passed, 1 beyond
// tolerance or failed, 2 usage or no such file).
int OracleMain(std::span<const std::string> arguments, const LocalBackend& backend);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_ORACLE_H_
