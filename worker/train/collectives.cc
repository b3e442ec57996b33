#include "worker/train/collectives.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "proto/support/status.h"
#include "worker/plan/shard_layout.h"
#include "worker/train/tool_flags.h"
#include "worker/train/tool_model.h"
#include "worker/train/trainer_errors.h"

namespace fsdp {
namespace {

struct UnitSize {
  std::string unit;
  std::int64_t count = 0;
  std::int64_t shard_elements = 0;
};

// The sizes that a step's collectives have, each once.
std::vector<UnitSize> SizesOf(const ModelConfig& model, int world_size) {
  std::vector<UnitSize> sizes;
  for (const UnitSpec& unit : UnitsOf(model)) {
    const std::int64_t elements = MakeShardLayout(unit, world_size).shard_elements;
    const auto same = std::find_if(sizes.begin(), sizes.end(), [&](const UnitSize& size) {
      return size.shard_elements == elements;
    });
    if (same == sizes.end()) {
      sizes.push_back({unit.name, 1, elements});
    } else {
      ++same->count;
    }
  }
  return sizes;
}

// One rank's part.
class CollectivesRun {
 public:
  CollectivesRun(const CollectivesOptions& options, LocalRank& rank)
      : options_(options), rank_(rank), device_(rank.device) {}
  ~CollectivesRun() {
    for (const auto& [communicator, buffer] : registered_) communicator->Deregister(*buffer);
  }

  absl::StatusOr<std::vector<UnitRate>> Run() {
    const std::vector<UnitSize> sizes = SizesOf(options_.model, options_.world_size);
    RETURN_IF_ERROR(Allocate(sizes));
    std::vector<UnitRate> rates;
    for (const UnitSize& size : sizes) {
      ASSIGN_OR_RETURN(UnitRate rate, Measure(size));
      rates.push_back(std::move(rate));
    }
    return rates;
  }

 private:
  absl::Status Allocate(const std::vector<UnitSize>& sizes) {
    std::int64_t elements = 0;
    for (const UnitSize& size : sizes) elements = std::max(elements, size.shard_elements);
    const std::int64_t whole = elements * options_.world_size;
    ASSIGN_OR_RETURN(weights_shard_, Buffer(*rank_.gather, elements, options_.parameter_dtype));
    ASSIGN_OR_RETURN(weights_, Buffer(*rank_.gather, whole, options_.parameter_dtype));
    ASSIGN_OR_RETURN(gradients_, Buffer(*rank_.scatter, whole, options_.reduce_dtype));
    ASSIGN_OR_RETURN(gradients_shard_, Buffer(*rank_.scatter, elements, options_.reduce_dtype));
    ASSIGN_OR_RETURN(begin_, device_.CreateEvent());
    ASSIGN_OR_RETURN(end_, device_.CreateEvent());
    ASSIGN_OR_RETURN(scattered_, device_.CreateEvent());
    return absl::OkStatus();
  }

  // What `communicator` moves.
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Buffer(Communicator& communicator,
                                                       std::int64_t elements, DType dtype) {
    const auto bytes = static_cast<std::size_t>(elements) * SizeOf(dtype);
    if (!communicator.wants_registration()) return device_.Allocate(bytes);
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> buffer, device_.AllocateShareable(bytes));
    RETURN_IF_ERROR(communicator.Register(*buffer));
    registered_.emplace_back(&communicator, buffer.get());
    return buffer;
  }

  absl::StatusOr<UnitRate> Measure(const UnitSize& size) {
    const std::int64_t shard = size.shard_elements;
    const std::int64_t whole = shard * options_.world_size;
    const auto gather = [&] {
      return rank_.gather->AllGather({weights_shard_->data(), options_.parameter_dtype, shard},
                                     {weights_->data(), options_.parameter_dtype, whole},
                                     device_.gather());
    };
    const auto scatter = [&] {
      return rank_.scatter->ReduceScatter({gradients_->data(), options_.reduce_dtype, whole},
                                          {gradients_shard_->data(), options_.reduce_dtype, shard},
                                          device_.scatter());
    };
    UnitRate rate;
    rate.unit = size.unit;
    rate.count = size.count;
    rate.gather_bytes = whole * static_cast<std::int64_t>(SizeOf(options_.parameter_dtype));
    rate.scatter_bytes = whole * static_cast<std::int64_t>(SizeOf(options_.reduce_dtype));
    ASSIGN_OR_RETURN(rate.gather_seconds, Time(gather));
    ASSIGN_OR_RETURN(rate.scatter_seconds, Time(scatter));
    ASSIGN_OR_RETURN(rate.both_seconds, Time([&]() -> absl::Status {
                       RETURN_IF_ERROR(gather());
                       return scatter();
                     }));
    return rate;
  }

  // Seconds of one `issue`, which uses the gather stream, the scatter stream or both.
  absl::StatusOr<double> Time(const std::function<absl::Status()>& issue) {
    for (std::int64_t i = 0; i < options_.warmup; ++i) RETURN_IF_ERROR(issue());
    // All ranks begin at once, in both streams.
    RETURN_IF_ERROR(rank_.scatter->Barrier(device_.scatter()));
    RETURN_IF_ERROR(device_.Record(*scattered_, device_.scatter()));
    RETURN_IF_ERROR(device_.Wait(device_.gather(), *scattered_));
    RETURN_IF_ERROR(rank_.gather->Barrier(device_.gather()));
    RETURN_IF_ERROR(device_.Record(*begin_, device_.gather()));
    RETURN_IF_ERROR(device_.Wait(device_.scatter(), *begin_));
    for (std::int64_t i = 0; i < options_.rounds; ++i) RETURN_IF_ERROR(issue());
    RETURN_IF_ERROR(device_.Record(*scattered_, device_.scatter()));
    RETURN_IF_ERROR(device_.Wait(device_.gather(), *scattered_));
    RETURN_IF_ERROR(device_.Record(*end_, device_.gather()));
    RETURN_IF_ERROR(device_.Synchronize(device_.gather()));
    RETURN_IF_ERROR(device_.Synchronize(device_.scatter()));
    RETURN_IF_ERROR(rank_.gather->Health());
    RETURN_IF_ERROR(rank_.scatter->Health());
    ASSIGN_OR_RETURN(const double seconds, device_.ElapsedSeconds(*begin_, *end_));
    return seconds / static_cast<double>(options_.rounds);
  }

  const CollectivesOptions& options_;
  LocalRank& rank_;
  Device& device_;
  std::unique_ptr<DeviceBuffer> weights_shard_, weights_, gradients_, gradients_shard_;
  std::vector<std::pair<Communicator*, const DeviceBuffer*>> registered_;
  std::unique_ptr<Event> begin_, end_, scattered_;
};

absl::StatusOr<CollectivesOptions> ParseOptions(std::span<const std::string> arguments,
                                                const LocalBackend& backend) {
  ASSIGN_OR_RETURN(
      const ToolFlags flags,
      ToolFlags::Parse(arguments,
                       {"model", "layers", "vocab", "dim", "heads", "precision", "reduce", "rounds",
                        "warmup", "local-ranks", "communicator", "nccl-registration", "device"},
                       {}));
  if (!flags.positional().empty()) {
    return absl::InvalidArgumentError("collectives takes no argument " + flags.positional()[0]);
  }
  CollectivesOptions options;
  ASSIGN_OR_RETURN(options.model, ModelFromFlags(flags));
  ASSIGN_OR_RETURN(const std::string precision,
                   flags.Choice("precision", "bf16", {"fp32", "bf16"}));
  ASSIGN_OR_RETURN(const std::string reduce, flags.Choice("reduce", "fp32", {"fp32", "bf16"}));
  ASSIGN_OR_RETURN(const std::int64_t ranks, flags.Integer("local-ranks", 2, 2, 256));
  ASSIGN_OR_RETURN(options.rounds, flags.Integer("rounds", options.rounds, 1, 1 << 20));
  ASSIGN_OR_RETURN(options.warmup, flags.Integer("warmup", options.warmup, 0, 1 << 20));
  ASSIGN_OR_RETURN(options.communicator,
                   ParseCommunicatorKind(flags.Text("communicator", DefaultCommunicator(backend))));
  ASSIGN_OR_RETURN(options.registration, ParseBufferRegistration(flags.Text(
                                             "nccl-registration", NameOf(kDefaultRegistration))));
  options.parameter_dtype = precision == "bf16" ? DType::kBf16 : DType::kF32;
  options.reduce_dtype = reduce == "bf16" ? DType::kBf16 : DType::kF32;
  options.world_size = static_cast<int>(ranks);
  RETURN_IF_ERROR(CheckCommunicator(options.communicator, options.world_size, backend));
  return options;
}

double Rounded(double value) { return std::round(value * 100) / 100; }

}  // namespace

const char kCollectivesUsage[] =
    R"(Usage: fsdp-trainer collectives --model NAME|FILE --local-ranks N [FLAGS]

Times gathers and scatters of each size of unit that the model has, alone and side by side, and
prints one JSON line: "..._us" each, "..._GBps" of the bus as nccl-tests counts it, which is bytes
of the unit / seconds x (N - 1) / N.

  --layers L --vocab V --dim D --heads H   instead of the model's
  --local-ranks N                       ranks on this machine, 2 or more (2)
  --precision fp32|bf16                 of gathered parameters (bf16)
  --reduce fp32|bf16                    of scattered gradients (fp32)
  --rounds R --warmup W                 of each: timed (20), and before them (5)
  --communicator gloo|in_process|nccl   how they talk (gloo; nccl with --device cuda)
  --nccl-registration none|local|window|window-ce   as for bench (none)
  --device cpu|cuda                     (cpu)

Exit codes: 0 done, 2 usage, 1, 3 and 12 to 14 as fsdp-trainer --help says.
)";

std::string CollectivesReport::ToJson() const {
  nlohmann::ordered_json json;
  json["model"] = options.model.name;
  json["world"] = options.world_size;
  json["nccl_registration"] = NameOf(options.registration);
  json["rounds"] = options.rounds;
  json["units"] = nlohmann::ordered_json::array();
  for (const UnitRate& rate : rates) {
    nlohmann::ordered_json unit = {{"unit", rate.unit}, {"count", rate.count}};
    const auto add = [&](const std::string& name, std::int64_t bytes, double seconds) {
      const auto total = static_cast<double>(bytes);
      unit[name + "_MB"] = Rounded(total / 1e6);
      unit[name + "_us"] = Rounded(seconds * 1e6);
      unit[name + "_GBps"] = Rounded(BusBytesPerSecond(total, seconds) / 1e9);
    };
    add("gather", rate.gather_bytes, rate.gather_seconds);
    add("scatter", rate.scatter_bytes, rate.scatter_seconds);
    add("both", rate.gather_bytes + rate.scatter_bytes, rate.both_seconds);
    json["units"].push_back(std::move(unit));
  }
  return json.dump();
}

absl::StatusOr<CollectivesReport> MeasureCollectives(const CollectivesOptions& options,
                                                     const LocalBackend& backend) {
  CollectivesReport report;
  report.options = options;
  LocalRanksOptions ranks;
  ranks.world_size = options.world_size;
  ranks.communicator = options.communicator;
  ranks.registration = options.registration;
  RETURN_IF_ERROR(RunLocalRanks(ranks, backend, [&](LocalRank& rank) -> absl::Status {
    ASSIGN_OR_RETURN(std::vector<UnitRate> rates, CollectivesRun(options, rank).Run());
    if (rank.rank == 0) report.rates = std::move(rates);
    return absl::OkStatus();
  }));
  return report;
}

int CollectivesMain(std::span<const std::string> arguments, const LocalBackend& backend) {
  const absl::StatusOr<CollectivesOptions> options = ParseOptions(arguments, backend);
  if (!options.ok()) {
    std::fprintf(stderr, "collectives: %s\n", std::string(options.status().message()).c_str());
    return static_cast<int>(TrainerExit::kUsage);
  }
  const absl::StatusOr<CollectivesReport> report = MeasureCollectives(*options, backend);
  if (!report.ok()) {
    std::fprintf(stderr, "collectives: %s\n", std::string(report.status().message()).c_str());
    return static_cast<int>(ExitOf(report.status()));
  }
  std::printf("%s\n", report->ToJson().c_str());
  return static_cast<int>(TrainerExit::kDone);
}

}  // namespace fsdp
