#include "worker/train/rank_profiler.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/crc32c.h"
#include "proto/support/profile_options.h"
#include "proto/support/recording_pieces.h"
#include "proto/support/status.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/train/counted_recording.h"
#include "worker/train/trainer_report.h"

namespace fsdp {
namespace {

// Of a recording's limit, for the samples of hardware counters.
constexpr std::int64_t kSampleShare = 4;

std::int64_t NsOf(MonotonicTime time) { return absl::ToInt64Nanoseconds(time.since_start()); }

// A request's name as a number that survives a double: equal for equal names, never 0.
double NumberOf(const std::string& profile) {
  constexpr std::uint64_t kMantissa = (std::uint64_t{1} << 52) - 1;
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : profile) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return static_cast<double>((hash & kMantissa) + 1);
}

// The first piece makes the file anew.
absl::Status AppendPiece(const std::string& path, const v1::RankProfile& piece, bool first) {
  const std::string pieces = PiecesPath(path);
  std::ofstream file(pieces, std::ios::binary | (first ? std::ios::trunc : std::ios::app));
  file << RecordingPiece(piece) << std::flush;
  return file ? absl::OkStatus() : ErrnoToStatus(errno, absl::StrCat("write(", pieces, ")"));
}

absl::StatusOr<v1::RankProfile> ReadPieces(const std::string& path) {
  std::ifstream file(PiecesPath(path), std::ios::binary);
  return JoinRecordingPieces(std::string(std::istreambuf_iterator<char>(file), {}));
}

absl::Status WriteProfile(const std::string& path, const std::string& bytes) {
  BlobStore& store = BlobStore::Posix();
  ASSIGN_OR_RETURN(const auto writer, store.Create(path));
  RETURN_IF_ERROR(writer->Append(std::as_bytes(std::span(bytes))));
  return writer->Publish();
}

}  // namespace

struct RankProfiler::Recording {
  v1::TrainerProfile request;
  SpanRecorder spans;
  FamilyTable families_before{};
  std::int64_t last_sequence = 0;
  // All but what `spans` holds, of the step that is recorded; notes until they are written.
  v1::RankProfile head;
  int num_steps = 0;
  // Of all recorded steps together.
  FamilyTable families{};
  v1::DeviceCeilings ceilings;
  bool counted = false;  // a window is held for it
  std::future<absl::StatusOr<CounterReading>> reading;
  // Of the writer's thread: the first thing that went wrong.
  absl::Status written;
  MonotonicTime step_begin;

  Recording(v1::TrainerProfile asked, MonotonicTime since)
      : request(std::move(asked)), spans(NsOf(since), request.options().max_bytes()) {}
};

RankProfiler::RankProfiler(const RankSetup& setup, Engine& engine, const Device& device,
                           TrainerLink& link, const FlightRecorder& recorder,
                           RankCounters& counters)
    : setup_(setup),
      engine_(engine),
      device_(device),
      link_(link),
      flights_(recorder),
      counters_(counters) {}

RankProfiler::~RankProfiler() {
  if (recording_ != nullptr) engine_.RecordSpans(nullptr);
}

void RankProfiler::GiveUp(const std::string& why) {
  if (!waiting_.has_value()) return;
  SendFailed(waiting_->profile(), why);
  if (waiting_->options().counters()) counters_.Release();
  waiting_.reset();
}

void RankProfiler::Take() {
  std::optional<v1::TrainerProfile> request = link_.TakeProfile();
  if (!request.has_value()) return;
  if (recording_ != nullptr) {
    return SendFailed(request->profile(), "another profile of this rank is being recorded");
  }
  GiveUp("another profile was asked for");
  absl::StatusOr<v1::ProfileOptions> options =
      CheckProfileOptions(request->options(), setup_.world_size());
  if (!options.ok()) {
    return SendFailed(request->profile(), std::string(options.status().message()));
  }
  *request->mutable_options() = *std::move(options);
  waiting_ = std::move(request);
  if (waiting_->options().counters()) counters_.Hold();
  v1::TrainerProfileUpdate update;
  update.set_profile(waiting_->profile());
  update.set_state(v1::PROFILE_STATE_WAITING);
  Send(update);
}

double RankProfiler::Offer() {
  Take();
  if (!waiting_.has_value()) return 0;
  // A window takes a while to open; until then the training goes on as ever.
  if (waiting_->options().counters() && counters_.hold() == HoldState::kPending) return 0;
  return NumberOf(waiting_->profile());
}

bool RankProfiler::IsAsked(int rank) const {
  const auto& ranks = waiting_->options().ranks();
  return ranks.empty() || std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

void RankProfiler::OnOffers(std::span<const double> offers) {
  if (!waiting_.has_value()) return;
  const double mine = NumberOf(waiting_->profile());
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    if (IsAsked(static_cast<int>(rank)) && offers[rank] != mine) return;
  }
  starts_ = true;
}

void RankProfiler::Start(MonotonicTime since) {
  starts_ = false;
  recording_ = std::make_shared<Recording>(*std::exchange(waiting_, std::nullopt), since);
  std::set<std::string, std::less<>> units;
  for (const StagePlan& stage : setup_.plan.stages) units.insert(stage.name);
  recording_->spans.SetUnits(std::move(units));
  recording_->families_before = engine_.families();
  recording_->last_sequence = flights_.last_sequence();
  v1::RankProfile& head = recording_->head;
  const v1::EpochKey& key = setup_.assignment.key();
  head.set_format(1);
  head.set_job(key.job());
  head.set_attempt(key.attempt());
  head.set_epoch(key.epoch());
  head.set_rank(key.rank());
  head.set_world_size(setup_.world_size());
  for (const v1::RankPeer& peer : setup_.assignment.peers()) {
    if (peer.rank() != key.rank()) continue;
    head.set_worker(peer.worker());
    head.set_host(peer.host());
  }
  head.set_device(device_.name());
  head.set_begin_ns(NsOf(since));
  const absl::Duration ago = Clock::Real().Now() - since;
  const absl::Time begin = Clock::Real().WallNow() - ago;
  head.mutable_begin_time()->set_seconds(absl::ToUnixSeconds(begin));
  head.mutable_begin_time()->set_nanos(
      static_cast<std::int32_t>(absl::ToUnixNanos(begin) % 1'000'000'000));
  const bool host_timed = device_.kind() == DeviceKind::kCpu;
  head.set_timing(host_timed ? v1::PROFILE_TIMING_HOST : v1::PROFILE_TIMING_EVENTS);
  if (!host_timed) {
    head.add_notes(
        "launches ran one by one between events, without graphs: a step takes longer than one that "
        "is not recorded");
  }
  if (recording_->request.options().counters()) {
    recording_->counted = counters_.hold() == HoldState::kOpen;
    if (!recording_->counted) {
      head.add_notes(absl::StrCat("without hardware counters: ", counters_.RefusedBecause()));
    }
  }
  head.set_counter_source(v1::METRIC_SOURCE_ANALYTIC);
  head.set_dtype(NameOf(setup_.plan.input.parameter_dtype));
  head.set_model_flops_per_step(setup_.plan.model_flops_per_step);
  head.set_version(FSDP_VERSION);
  engine_.RecordSpans(&recording_->spans);
}

void RankProfiler::BeginStep(std::int64_t step, MonotonicTime since) {
  if (starts_ && recording_ == nullptr) Start(since);
  if (recording_ == nullptr) return;
  recording_->spans.SetStep(step);
  recording_->step_begin = since;
}

void RankProfiler::AddHostSpan(std::string_view name, MonotonicTime begin) {
  if (recording_ == nullptr) return;
  recording_->spans.Add({.track = v1::PROFILE_TRACK_HOST,
                         .begin_ns = NsOf(begin),
                         .end_ns = NsOf(Clock::Real().Now()),
                         .name = name});
}

void RankProfiler::EndStep(const v1::StepReport& report, MonotonicTime end,
                           const v1::DeviceCeilings& ceilings) {
  if (recording_ == nullptr) return;
  Recording& recording = *recording_;
  recording.last_sequence = recording.spans.AddCollectives(flights_, recording.last_sequence);
  recording.spans.AddCounter("memory", "bytes", NsOf(end),
                             static_cast<double>(report.memory_now_bytes()));
  v1::RankProfile& head = recording.head;
  v1::ProfileStep& step = *head.add_steps();
  step.set_step(report.metrics().step());
  step.set_begin_ns(NsOf(recording.step_begin) - head.begin_ns());
  step.set_duration_ns(NsOf(end) - NsOf(recording.step_begin));
  *step.mutable_phases() = report.metrics().phases();
  step.set_loss(report.metrics().loss());
  head.set_end_ns(NsOf(end));
  if (head.first_step() == 0) head.set_first_step(step.step());
  head.set_last_step(step.step());
  head.set_memory_peak_bytes(report.memory_peak_bytes());
  const bool bf16 = setup_.plan.input.parameter_dtype == DType::kBf16;
  head.set_flops_ceiling(bf16 ? ceilings.bf16_flops_per_second()
                              : ceilings.fp32_flops_per_second());
  head.set_bytes_ceiling(ceilings.copy_bytes_per_second());
  recording.families = Difference(engine_.families(), recording.families_before);
  recording.ceilings = ceilings;
  head.clear_families();
  // Of what a rank leaves that is killed; counters come with the end of the recording.
  AddFamilies(setup_, recording.families, ceilings, {}, head.mutable_families());
  ++recording.num_steps;
  WriteStep();
  if (recording.num_steps >= recording.request.options().steps()) return Finish("");
  v1::TrainerProfileUpdate update;
  update.set_profile(recording.request.profile());
  update.set_state(v1::PROFILE_STATE_RECORDING);
  update.set_steps(recording.num_steps);
  Send(update);
}

void RankProfiler::WriteStep() {
  v1::RankProfile piece = recording_->spans.Take();
  piece.MergeFrom(recording_->head);
  recording_->head.clear_steps();
  recording_->head.clear_notes();
  const bool first = recording_->num_steps == 1;
  writer_.Run([recording = recording_, piece = std::move(piece), first] {
    if (!recording->written.ok()) return;
    recording->written = AppendPiece(recording->request.path(), piece, first);
  });
}

void RankProfiler::Close(const std::string& why) {
  GiveUp(why);
  if (recording_ == nullptr) return;
  if (recording_->num_steps == 0) {
    engine_.RecordSpans(nullptr);
    if (recording_->counted) counters_.Release();
    SendFailed(recording_->request.profile(), why);
    recording_.reset();
    return;
  }
  Finish(absl::StrCat(why, ": ", recording_->num_steps, " of ",
                      recording_->request.options().steps(), " steps are recorded"));
}

void RankProfiler::Finish(const std::string& note) {
  engine_.RecordSpans(nullptr);
  // What ended with the last step may still have been recorded after it.
  v1::RankProfile rest = recording_->spans.Take();
  if (!note.empty()) rest.add_notes(note);
  if (recording_->counted) recording_->reading = counters_.Release();
  writer_.Run([this, recording = std::exchange(recording_, nullptr), rest = std::move(rest)] {
    const std::string& path = recording->request.path();
    absl::Status& written = recording->written;
    if (written.ok()) written = AppendPiece(path, rest, /*first=*/false);
    absl::StatusOr<v1::RankProfile> profile = ReadPieces(path);
    written.Update(profile.status());
    if (written.ok() && recording->counted) AddCounters(*recording, &*profile);
    std::string bytes;
    if (written.ok()) {
      bytes = profile->SerializeAsString();
      written = WriteProfile(path, bytes);
    }
    std::error_code ignored;
    std::filesystem::remove(PiecesPath(path), ignored);
    if (!written.ok()) {
      return SendFailed(recording->request.profile(),
                        absl::StrCat("writing ", path, ": ", written.message()));
    }
    v1::TrainerProfileUpdate update;
    update.set_profile(recording->request.profile());
    update.set_state(v1::PROFILE_STATE_DONE);
    update.set_steps(recording->num_steps);
    update.set_size_bytes(static_cast<std::int64_t>(bytes.size()));
    update.set_crc32c(Crc32c(std::as_bytes(std::span(bytes))));
    Send(update);
  });
}

void RankProfiler::AddCounters(Recording& recording, v1::RankProfile* profile) const {
  const absl::StatusOr<CounterReading> reading = recording.reading.get();
  if (!reading.ok()) {
    profile->add_notes(absl::StrCat("without hardware counters: ", reading.status().message()));
    return;
  }
  const MeasuredTable measured =
      AddSamples(*reading, recording.request.options().max_bytes() / kSampleShare, profile);
  profile->clear_families();
  AddFamilies(setup_, recording.families, recording.ceilings, measured,
              profile->mutable_families());
}

void RankProfiler::SendFailed(const std::string& profile, const std::string& why) {
  v1::TrainerProfileUpdate update;
  update.set_profile(profile);
  update.set_state(v1::PROFILE_STATE_FAILED);
  update.set_message(why);
  Send(update);
}

// A link that is gone ends the training by itself.
void RankProfiler::Send(const v1::TrainerProfileUpdate& update) {
  v1::TrainerToDaemon message;
  *message.mutable_profile() = update;
  link_.Send(message).IgnoreError();
}

}  // namespace fsdp
