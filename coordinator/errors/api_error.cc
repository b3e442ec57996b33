#include "coordinator/errors/api_error.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

constexpr std::size_t kMaxMetadataChars = 100;

}  // namespace

absl::Status WithInfo(absl::Status status, std::string_view reason, ErrorMetadata metadata) {
  if (status.ok() || status.GetPayload(kErrorInfoUrl).has_value()) return status;
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(reason));
  info.set_domain(kErrorDomain);
  for (auto& [key, value] : metadata) (*info.mutable_metadata())[key] = std::move(value);
  status.SetPayload(kErrorInfoUrl, absl::Cord(info.SerializeAsString()));
  return status;
}

absl::Status BadField(const std::string& field, const std::string& value,
                      const std::string& problem) {
  google::rpc::BadRequest request;
  auto* violation = request.add_field_violations();
  violation->set_field(field);
  violation->set_description(problem);
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(field, ": ", problem));
  status.SetPayload(kBadRequestUrl, absl::Cord(request.SerializeAsString()));
  return WithInfo(std::move(status), absl::StrCat(absl::AsciiStrToUpper(field), "_INVALID"),
                  {{"field", field}, {"value", value.substr(0, kMaxMetadataChars)}});
}

std::string ReasonOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kErrorInfoUrl);
  google::rpc::ErrorInfo info;
  if (!payload.has_value() || !info.ParseFromString(std::string(*payload))) return "";
  return info.reason();
}

absl::Status WithRetryAfter(absl::Status status, absl::Duration delay) {
  google::rpc::RetryInfo info;
  const std::int64_t nanos = absl::ToInt64Nanoseconds(delay);
  constexpr std::int64_t kNanosPerSecond = 1'000'000'000;
  info.mutable_retry_delay()->set_seconds(nanos / kNanosPerSecond);
  info.mutable_retry_delay()->set_nanos(static_cast<std::int32_t>(nanos % kNanosPerSecond));
  status.SetPayload(kRetryInfoUrl, absl::Cord(info.SerializeAsString()));
  return status;
}

absl::Status NoSuchJob(const std::string& job) {
  return WithInfo(absl::NotFoundError(absl::StrCat("there is no job '", job, "'")), "JOB_NOT_FOUND",
                  {{"job", job}});
}

absl::Status NoSuchWorker(const std::string& worker) {
  return WithInfo(absl::NotFoundError(absl::StrCat("there is no worker '", worker, "'")),
                  "WORKER_NOT_FOUND", {{"worker", worker}});
}

absl::Status Draining() {
  return WithInfo(absl::UnavailableError("the coordinator is shutting down: retry"),
                  "COORDINATOR_DRAINING");
}

absl::Status StreamReplaced(const std::string& worker) {
  return WithInfo(absl::AbortedError(absl::StrCat("worker ", worker, " opened a newer stream")),
                  "WORKER_STREAM_REPLACED", {{"worker", worker}});
}

}  // namespace fsdp::coordinator
