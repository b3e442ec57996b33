// Submits a job spec, prints each step's loss as it comes, and ends by the job's result.
//   submit SERVER JOB.yaml

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "client/client.h"
#include "client/error.h"
#include "client/exit_code.h"
#include "proto/support/spec.h"

namespace {

absl::StatusOr<fsdp::v1::TrainingJob> ReadJob(const char* path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(std::string(path) + " cannot be read");
  fsdp::SpecResult spec = fsdp::LoadJob(std::string{std::istreambuf_iterator<char>(file), {}});
  std::cerr << fsdp::FormatIssues(spec.issues, path);
  if (!spec.ok()) return fsdp::SpecStatus(spec.issues);
  return std::move(spec.job);
}

absl::StatusOr<fsdp::v1::Job> Train(fsdp::Client& client, fsdp::v1::TrainingJob spec) {
  fsdp::v1::CreateJobRequest request;
  *request.mutable_job() = std::move(spec);
  const auto created = client.CreateJob(request);
  if (!created.ok()) return created.status();
  const std::string name = created->job().name();
  std::printf("submitted %s\n", name.c_str());
  absl::Status status = client.StreamMetrics(
      name, /*after_offset=*/0, /*follow=*/true, {}, [](const fsdp::v1::StepMetrics& metrics) {
        std::printf("step %lld loss %.4f\n", static_cast<long long>(metrics.step()),
                    metrics.loss());
        return true;
      });
  fsdp::v1::Job job;
  if (status.ok()) {
    status = client.WatchJob(name, {}, [&job](const fsdp::v1::Job& now) {
      job = now;
      return true;
    });
  }
  if (!status.ok()) return status;
  return job;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: submit SERVER JOB.yaml\n";
    return 2;
  }
  auto client = fsdp::Client::Create({.server = argv[1]});
  auto spec = ReadJob(argv[2]);
  const absl::Status status = client.ok() ? spec.status() : client.status();
  auto job =
      status.ok() ? Train(**client, *std::move(spec)) : absl::StatusOr<fsdp::v1::Job>(status);
  if (!job.ok()) {
    std::cerr << fsdp::FormatError(job.status()) << "\n";
    return fsdp::ToInt(fsdp::ExitCodeForStatus(job.status()));
  }
  std::printf("ended %s\n", fsdp::v1::JobState_Name(job->state()).c_str());
  return fsdp::ToInt(fsdp::ExitCodeForJob(job->state()));
}
