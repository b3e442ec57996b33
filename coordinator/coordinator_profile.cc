// Profiles of running jobs, and what their ranks' collectives are doing.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/coordinator.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/profile_options.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

absl::Status NoSuchProfile(const JobId& job, const std::string& profile) {
  return WithInfo(
      absl::NotFoundError(absl::StrCat(JobName(job), " has no profile \"", profile.substr(0, 100),
                                       "\" (the last ", ProfileSessions::kMaxKept,
                                       " are known, until the coordinator is restarted)")),
      "PROFILE_NOT_FOUND", {{"job", JobName(job)}, {"profile", profile.substr(0, 100)}});
}

v1::EpochKey KeyOf(const v1::Job& job, int rank) {
  v1::EpochKey key;
  key.set_job(job.name());
  key.set_attempt(job.attempt());
  key.set_epoch(job.epoch());
  key.set_rank(rank);
  return key;
}

}  // namespace

absl::StatusOr<JobRuntime*> Coordinator::RunningJob(const JobId& id) {
  RETURN_IF_ERROR(CheckServing());
  JobRuntime* job = Find(id);
  if (job == nullptr) return NoSuchJob(id.value());
  const bool live = job->job().state() == v1::JOB_STATE_RUNNING &&
                    job->record.phase() == records::EPOCH_PHASE_LIVE;
  if (live) return job;
  if (IsArray(*job)) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        job->job().name(), " is an array: look into one of its tasks, such as ",
                        job->job().name(), "-0")),
                    "JOB_IS_ARRAY", {{"job", job->job().name()}});
  }
  return WithInfo(
      absl::FailedPreconditionError(absl::StrCat(
          job->job().name(), " is ", StateName(job->job().state()),
          job->job().state() == v1::JOB_STATE_RUNNING ? " and its ranks are being stopped" : "",
          ": only a job whose ranks train can be looked into")),
      "JOB_STATE_CONFLICT",
      {{"job", job->job().name()},
       {"state", StateName(job->job().state())},
       {"wanted", "running"}});
}

absl::StatusOr<v1::ProfileJobResponse> Coordinator::ProfileJob(
    const CallerIdentity& /*caller*/, const v1::ProfileJobRequest& request) {
  const std::lock_guard lock(mutex_);
  const JobId id = JobIdFromName(request.name());
  ASSIGN_OR_RETURN(JobRuntime * job, RunningJob(id));
  absl::StatusOr<v1::ProfileOptions> options =
      CheckProfileOptions(request.options(), job->record.members_size());
  if (!options.ok()) {
    return BadField("options", "", std::string(options.status().message()));
  }
  std::vector<ProfileSessions::Rank> ranks;
  for (const records::MemberRecord& member : job->record.members()) {
    const auto& asked = options->ranks();
    if (!asked.empty() && std::find(asked.begin(), asked.end(), member.rank()) == asked.end()) {
      continue;
    }
    ProfileSessions::Rank& rank = ranks.emplace_back();
    rank.key = KeyOf(job->job(), member.rank());
    rank.worker = WorkerId(member.worker());
    rank.incarnation = member.incarnation();
  }
  // By time, so that workers can tell old recordings from new ones by their names.
  std::string profile =
      absl::StrFormat("p%011x-%04x", absl::ToUnixMillis(clock_.WallNow()), random_() & 0xffff);
  ASSIGN_OR_RETURN(
      const ProfileSessions::Session* session,
      profiles_.Start(workers_, id, std::move(profile), *options, std::move(ranks), clock_.Now()));
  v1::ProfileJobResponse response;
  response.set_profile(session->profile);
  for (const ProfileSessions::Rank& rank : session->ranks) *response.add_ranks() = rank.status;
  return response;
}

absl::StatusOr<v1::GetProfileResponse> Coordinator::GetProfile(
    const CallerIdentity& /*caller*/, const v1::GetProfileRequest& request) const {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckServing());
  const JobId id = JobIdFromName(request.name());
  if (!jobs_.contains(id)) return NoSuchJob(id.value());
  const ProfileSessions::Session* session = profiles_.Find(id, request.profile());
  if (session == nullptr) return NoSuchProfile(id, request.profile());
  v1::GetProfileResponse response;
  for (const ProfileSessions::Rank& rank : session->ranks) *response.add_ranks() = rank.status;
  response.set_finished(session->finished());
  return response;
}

void Coordinator::ReadProfile(const CallerIdentity& /*caller*/,
                              const v1::ReadProfileRequest& request, FileRelay::Done done) {
  const std::lock_guard lock(mutex_);
  if (absl::Status status = CheckServing(); !status.ok()) return done(status);
  const JobId id = JobIdFromName(request.name());
  if (!jobs_.contains(id)) return done(NoSuchJob(id.value()));
  const ProfileSessions::Session* session = profiles_.Find(id, request.profile());
  const ProfileSessions::Rank* rank = session == nullptr ? nullptr : session->Find(request.rank());
  if (rank == nullptr) return done(NoSuchProfile(id, request.profile()));
  if (rank->status.state() != v1::PROFILE_STATE_DONE) {
    return done(WithInfo(
        absl::NotFoundError(absl::StrCat("profile ", session->profile, " has no recording of rank ",
                                         request.rank(), " (yet)")),
        "PROFILE_NOT_RECORDED", {{"rank", absl::StrCat(request.rank())}}));
  }
  if (request.offset() < 0) {
    return done(BadField("offset", absl::StrCat(request.offset()), "must not be negative"));
  }
  v1::ReadFilePiece piece;
  piece.set_profile(session->profile);
  piece.set_offset(request.offset());
  piece.set_max_bytes(request.max_bytes() > 0
                          ? std::min(request.max_bytes(), FileRelay::kMaxPieceBytes)
                          : FileRelay::kMaxPieceBytes);
  files_.Ask(workers_, {rank->worker}, std::move(piece), clock_.Now(), std::move(done));
}

void Coordinator::DumpCollectives(const CallerIdentity& /*caller*/,
                                  const v1::DumpCollectivesRequest& request,
                                  DumpRequests::Done done) {
  const std::lock_guard lock(mutex_);
  const absl::StatusOr<JobRuntime*> job = RunningJob(JobIdFromName(request.name()));
  if (!job.ok()) return done(job.status());
  std::vector<DumpRequests::Rank> ranks;
  for (const records::MemberRecord& member : (*job)->record.members()) {
    DumpRequests::Rank& rank = ranks.emplace_back();
    rank.key = KeyOf((*job)->job(), member.rank());
    rank.worker = WorkerId(member.worker());
  }
  double pending_seconds = 0;
  for (const LiveRank& live : (*job)->live) {
    if (!live.pulse) continue;
    pending_seconds = std::max(pending_seconds, live.pulse->pulse.collective_pending_seconds());
  }
  dumps_.Ask(workers_, std::move(ranks), pending_seconds, clock_.Now(), std::move(done));
}

void Coordinator::CheckProfiles() {
  profiles_.FailLost([this](const ProfileSessions::Rank& rank) {
    const JobRuntime* job = Find(JobIdFromName(rank.key.job()));
    if (job == nullptr || job->job().epoch() != rank.key.epoch()) return false;
    const int at = rank.key.rank();
    return at < job->record.members_size() && !job->record.members(at).released();
  });
}

}  // namespace fsdp::coordinator
