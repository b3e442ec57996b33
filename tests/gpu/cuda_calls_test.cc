// cuda-calls-test [attention] [WORLD...]: what really reaches the driver.
//   attention  the kernels that are launched for a shape are those that Ops::ChosenAttention names,
//              also where cuDNN declines
//   WORLD      a training step of a rank gives out no memory and does not wait for the device
//              between its first and its last launch; its one wait is for the figures of the step
//              before. Ranks are processes that share devices where there are too few.
// Without arguments: attention 1 2. Prints a line per check; exits with 1 when one failed.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"
#include "tests/gpu/bench_support.h"
#include "tests/gpu/call_recorder.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/plan/model_config.h"
#include "worker/train/engine.h"
#include "worker/train/local_ranks.h"
#include "worker/train/trainer_backend.h"

namespace fsdp {
namespace {

using Calls = std::vector<DriverCall>;

// A recorder that sees nothing would find nothing wrong.
absl::Status CheckRecorder(CallRecorder& recorder, Device& device) {
  recorder.Start();
  ASSIGN_OR_RETURN(const auto buffer, device.Allocate(std::size_t{8} << 20));
  RETURN_IF_ERROR(device.Synchronize(device.compute()));
  const Calls calls = recorder.Take();
  const auto any = [&calls](auto is) { return std::any_of(calls.begin(), calls.end(), is); };
  if (any([](const DriverCall& call) { return call.Waits(); }) &&
      any([](const DriverCall& call) { return call.Allocates(); })) {
    return absl::OkStatus();
  }
  return absl::InternalError("the recorder missed an allocation or a wait");
}

// ---- attention ------------------------------------------------------------------------------

bool Launched(const Calls& calls, const char* part) {
  return std::any_of(calls.begin(), calls.end(), [part](const DriverCall& call) {
    return call.kernel.find(part) != std::string::npos;
  });
}

// What the launched kernels are, in the words of ChosenAttention. Names are mangled: a length
// stands before each, so that "13ForwardKernel" is no part of "18FlashForwardKernel".
std::string FamilyOf(const Calls& calls) {
  std::string found;
  if (Launched(calls, "cudnn")) found = "cudnn";
  if (Launched(calls, "18FlashForwardKernel") || Launched(calls, "22FlashKeyGradientKernel")) {
    absl::StrAppend(&found, "own tensor-core");
  }
  if (Launched(calls, "13ForwardKernel") || Launched(calls, "17KeyGradientKernel")) {
    absl::StrAppend(&found, "own fp32");
  }
  return found;
}

absl::Status CheckName(const std::string& named, const Calls& calls, const std::string& what) {
  const std::string launched = FamilyOf(calls);
  std::printf("  %s: %s\n", what.c_str(), named.c_str());
  if (!launched.empty() && named.rfind(launched, 0) == 0) return absl::OkStatus();
  std::vector<std::string> kernels;
  for (const DriverCall& call : calls) {
    if (call.Launches()) kernels.push_back(call.kernel);
  }
  return absl::InternalError(
      absl::StrCat(what, ": named ", named, ", launched ", absl::StrJoin(kernels, ", ")));
}

absl::Status CheckShape(CallRecorder& recorder, Device& device, const std::string& backend,
                        const AttentionShape& shape, DType dtype) {
  Ops& ops = device.ops();
  const std::string what = absl::StrCat(backend, " ", NameOf(dtype), " head size ", shape.head_dim,
                                        shape.documents ? " documents" : "");
  ASSIGN_OR_RETURN(const AttentionKernels named, ops.ChosenAttention(shape, dtype));
  bench::Arena arena(device);
  const std::int64_t rows = shape.batch * shape.seq;
  const std::int64_t out_cols = shape.num_heads * shape.head_dim;
  const std::int64_t cols = out_cols + 2 * shape.num_kv_heads * shape.head_dim;
  const Matrix qkv = arena.Random(dtype, rows, cols);
  const Matrix d_qkv = arena.Random(dtype, rows, cols);
  const Matrix out = arena.Random(dtype, rows, out_cols);
  const Matrix d_out = arena.Random(dtype, rows, out_cols);
  const Vector lse = arena.RandomVector(DType::kF32, rows * shape.num_heads);
  const std::span<std::byte> forward_scratch =
      arena.Bytes(ops.AttentionScratchBytes(shape, dtype, false));
  const std::span<std::byte> backward_scratch =
      arena.Bytes(ops.AttentionScratchBytes(shape, dtype, true));
  std::span<const std::int32_t> begins;
  if (shape.documents) {
    // All zeros: each sequence is one document.
    const auto count = static_cast<std::size_t>(rows);
    const std::span<std::byte> bytes = arena.Bytes(count * sizeof(std::int32_t));
    RETURN_IF_ERROR(device.Zero(bytes.data(), bytes.size(), device.compute()));
    begins = {reinterpret_cast<const std::int32_t*>(bytes.data()), count};
  }
  recorder.Start();
  RETURN_IF_ERROR(
      ops.AttentionForward(device.compute(), qkv, shape, begins, out, lse, forward_scratch));
  RETURN_IF_ERROR(CheckName(named.forward, recorder.Take(), absl::StrCat(what, " forward")));
  recorder.Start();
  RETURN_IF_ERROR(ops.AttentionBackward(device.compute(), d_out, qkv, out, lse, shape, begins,
                                        d_qkv, backward_scratch));
  RETURN_IF_ERROR(CheckName(named.backward, recorder.Take(), absl::StrCat(what, " backward")));
  return device.Synchronize(device.compute());
}

absl::Status CheckAttention() {
  ASSIGN_OR_RETURN(const auto recorder, CallRecorder::Create());
  const std::pair<const char*, AttentionBackend> backends[] = {{"auto", AttentionBackend::kAuto},
                                                               {"own", AttentionBackend::kOwn}};
  for (const auto& [name, backend] : backends) {
    ASSIGN_OR_RETURN(const auto device, CreateCudaDevice({.attention = backend}));
    RETURN_IF_ERROR(CheckRecorder(*recorder, *device));
    // cuDNN takes none whose head size is not a multiple of 8, our tensor-core kernels none above
    // 128.
    for (const std::int64_t head_dim : {17, 64, 128, 136}) {
      AttentionShape shape{
          .batch = 2, .seq = 96, .num_heads = 4, .num_kv_heads = 2, .head_dim = head_dim};
      for (const DType dtype : {DType::kBf16, DType::kF32}) {
        shape.documents = false;
        RETURN_IF_ERROR(CheckShape(*recorder, *device, name, shape, dtype));
        shape.documents = true;
        RETURN_IF_ERROR(CheckShape(*recorder, *device, name, shape, dtype));
      }
    }
  }
  return absl::OkStatus();
}

// ---- steps ----------------------------------------------------------------------------------

constexpr std::int64_t kSequences = 4;
constexpr std::int64_t kLength = 64;
// Plans are made in the first two steps, graphs captured in the next two (the figures of two steps
// alternate).
constexpr std::int64_t kWarmup = 8;
constexpr std::int64_t kSteps = 8;

absl::StatusOr<Plan> PlanOf(int world, Device& device) {
  v1::ModelSpec model;
  model.set_preset("llama-tiny");
  PlanInput input;
  ASSIGN_OR_RETURN(input.model, ResolveModel(model));
  input.world_size = world;
  input.sequence_length = kLength;
  input.global_batch = kSequences;
  return Engine::PlanFor(input, device);
}

std::string Histogram(const Calls& calls) {
  std::map<std::string, int> counts;
  for (const DriverCall& call : calls) ++counts[call.function];
  return absl::StrJoin(counts, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.first, " ", entry.second);
  });
}

// One step's calls: nothing is given out, and the only wait comes when everything is on its way.
absl::Status CheckStep(const Calls& calls) {
  std::vector<std::string> wrong;
  int waits = 0;
  int launches = 0;
  for (const DriverCall& call : calls) {
    if (call.Allocates()) wrong.push_back(absl::StrCat(call.function, " in a step"));
    if (call.Waits()) ++waits;
    if (!call.Launches()) continue;
    ++launches;
    if (waits > 0) wrong.push_back(absl::StrCat(call.function, " after a wait"));
  }
  if (launches == 0) wrong.push_back("no launch");
  if (waits != 1) wrong.push_back(absl::StrCat(waits, " waits instead of 1"));
  if (wrong.empty()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(absl::StrJoin(wrong, "; "), "; all calls: ", Histogram(calls)));
}

absl::Status CheckSteps(int world, bool graphs, LocalRank& rank, CallRecorder& recorder) {
  ASSIGN_OR_RETURN(const Plan plan, PlanOf(world, rank.device));
  EngineOptions options;
  options.synchronous = false;
  options.graphs = graphs;
  ASSIGN_OR_RETURN(const auto engine,
                   Engine::Create(plan, options, rank.device, rank.gather, rank.scatter));
  RETURN_IF_ERROR(engine->InitializeWeights(1));
  const auto share = plan.split.Share(rank.rank);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(share.count * kLength));
  std::mt19937 random(static_cast<unsigned>(rank.rank));
  std::int64_t last_result = 0;
  Calls calls;
  for (std::int64_t step = 1; step <= kWarmup + kSteps; ++step) {
    for (std::int32_t& token : tokens) {
      token = static_cast<std::int32_t>(random() % plan.input.model.vocab_size);
    }
    recorder.Start();
    ASSIGN_OR_RETURN(const StepResult result, engine->Step({step, 1e-3, tokens, tokens}));
    calls = recorder.Take();
    last_result = result.step;
    if (step > kWarmup) RETURN_IF_ERROR(Annotate(CheckStep(calls), absl::StrCat("step ", step)));
  }
  // The figures that the wait was for.
  if (last_result != kWarmup + kSteps - 1) {
    return absl::InternalError(absl::StrCat("the last step returned those of ", last_result));
  }
  if (rank.rank == 0) {
    std::printf("  a step %s: %s\n", graphs ? "with graphs" : "without graphs",
                Histogram(calls).c_str());
  }
  return engine->Flush().status();
}

absl::Status CheckWorld(int world) {
  LocalRanksOptions options;
  options.world_size = world;
  options.communicator = CommunicatorKind::kNccl;
  const LocalBackend backend = MakeTrainerBackend().local;
  return RunLocalRanks(options, backend, [&](LocalRank& rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto recorder, CallRecorder::Create());
    RETURN_IF_ERROR(CheckRecorder(*recorder, rank.device));
    RETURN_IF_ERROR(CheckSteps(world, /*graphs=*/true, rank, *recorder));
    return CheckSteps(world, /*graphs=*/false, rank, *recorder);
  });
}

// In a process of its own: ranks are forked before there is a context.
bool Passes(const std::string& what, const std::function<absl::Status()>& check) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const absl::Status status = check();
    if (!status.ok()) std::printf("  %s\n", status.ToString().c_str());
    std::fflush(nullptr);
    _exit(status.ok() ? 0 : 1);
  }
  int state = 0;
  const bool passed = child > 0 && waitpid(child, &state, 0) == child && WIFEXITED(state) &&
                      WEXITSTATUS(state) == 0;
  std::printf("driver calls, %s: %s\n", what.c_str(), passed ? "passed" : "FAILED");
  return passed;
}

int Main(std::vector<std::string> parts) {
  if (parts.empty()) parts = {"attention", "1", "2"};
  bool passed = true;
  for (const std::string& part : parts) {
    if (part == "attention") {
      passed = Passes(part, CheckAttention) && passed;
      continue;
    }
    const int world = std::atoi(part.c_str());
    if (world < 1) {
      std::fprintf(stderr, "cuda-calls-test: '%s' is neither \"attention\" nor a world size\n",
                   part.c_str());
      return 2;
    }
    passed = Passes(absl::StrCat("step at world ", world), [world] { return CheckWorld(world); }) &&
             passed;
  }
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) { return fsdp::Main({argv + 1, argv + argc}); }
