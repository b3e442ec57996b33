#ifndef FSDPCTL_WORKER_TRAIN_TRAINER_REPORT_H_
#define FSDPCTL_WORKER_TRAIN_TRAINER_REPORT_H_

// What a rank says about its steps: records for the control plane, lines for people.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/v1/trainer.pb.h"
#include "worker/profile/family_recorder.h"
#include "worker/profile/flight_recorder.h"
#include "worker/train/engine.h"
#include "worker/train/rank_counters.h"
#include "worker/train/trainer_setup.h"

namespace fsdp {

// Seconds that the trainer itself spent since the report before.
struct TrainerSeconds {
  double total = 0;  // from report to report
  double data = 0;
  double agree = 0;  // waiting for what the peers want; counts as exposed gathering
  double evaluate = 0;
  double checkpoint = 0;
};

struct StepFacts {
  StepResult result;
  double lr = 0;
  TrainerSeconds seconds;
  std::optional<double> validation_loss;
  std::vector<v1::EvaluationLoss> evaluations;
  std::vector<std::int64_t> memory_peak_bytes;         // by rank
  double flops = 0;                                    // that this rank did, recomputation included
  std::map<std::string, CollectiveTotal> collectives;  // since the start
  bool final = false;
  bool rolled_back = false;
};

// `ceilings` may be empty: then families carry no verdict. `device`: its name, for the peak that
// MFU and HFU are relative to.
v1::StepReport MakeStepReport(const RankSetup& setup, const Engine& engine, const StepFacts& facts,
                              const v1::DeviceCeilings& ceilings, const RankCounters& counters,
                              const std::string& device);

void AddFamilies(const RankSetup& setup, const FamilyTable& table,
                 const v1::DeviceCeilings& ceilings, const MeasuredTable& measured,
                 google::protobuf::RepeatedPtrField<v1::FamilyVerdict>* out);

// What each source of a mixture gave up to `position`; nothing without a mixture.
void AddDataSources(const DataSet& data, std::int64_t position,
                    google::protobuf::RepeatedPtrField<v1::DataSourceUse>* out);
// "web 1792 tokens (0.35 passes), code 512 tokens (1.20 passes)"; empty without a mixture.
std::string DataSourcesText(const DataSet& data, std::int64_t position);

v1::CollectiveDump MakeCollectiveDump(const FlightRecorder& recorder);

// "2.0794", or "nan" whatever its sign.
std::string FormatLoss(double loss);

// "Step | Loss | Peak memory per rank", and a row of that table.
std::string TableHeader();
std::string TableRow(std::int64_t step, double loss, std::int64_t memory_peak_bytes);
// Whether rank 0 prints a row for this step: at most about 200 rows a job, first and last included.
bool IsPrinted(std::int64_t step, std::int64_t total_steps);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TRAINER_REPORT_H_
