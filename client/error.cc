#include "client/error.h"

#include <grpcpp/support/status.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr char kErrorInfoType[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kBadRequestType[] = "type.googleapis.com/google.rpc.BadRequest";

template <typename Message>
std::optional<Message> Payload(const absl::Status& status, const char* type) {
  const auto payload = status.GetPayload(type);
  Message message;
  if (!payload.has_value() || !message.ParseFromString(std::string(*payload))) return std::nullopt;
  return message;
}

std::string CodeText(absl::StatusCode code) {
  std::string text = absl::StatusCodeToString(code);
  for (char& c : text) c = c == '_' ? ' ' : static_cast<char>(std::tolower(c));
  return text;
}

}  // namespace

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return result;
  for (const auto& detail : details.details()) {
    if (detail.type_url() == kErrorInfoType || detail.type_url() == kBadRequestType) {
      result.SetPayload(detail.type_url(), absl::Cord(detail.value()));
    }
  }
  return result;
}

std::optional<ErrorInfo> GetErrorInfo(const absl::Status& status) {
  const auto info = Payload<google::rpc::ErrorInfo>(status, kErrorInfoType);
  if (!info.has_value()) return std::nullopt;
  return ErrorInfo{
      info->reason(), info->domain(), {info->metadata().begin(), info->metadata().end()}};
}

std::vector<FieldViolation> GetFieldViolations(const absl::Status& status) {
  std::vector<FieldViolation> violations;
  const auto bad_request = Payload<google::rpc::BadRequest>(status, kBadRequestType);
  if (!bad_request.has_value()) return violations;
  for (const auto& violation : bad_request->field_violations()) {
    violations.push_back({violation.field(), violation.description()});
  }
  return violations;
}

std::string FormatError(const absl::Status& status) {
  const auto info = GetErrorInfo(status);
  // "a-1 is SUCCEEDED: it cannot become SUSPENDED" needs no "failed precondition" before it.
  const bool explains_itself =
      status.code() == absl::StatusCode::kFailedPrecondition && info.has_value();
  std::string text = explains_itself ? "" : absl::StrCat(CodeText(status.code()), ": ");
  absl::StrAppend(&text, status.message());
  if (info.has_value()) absl::StrAppend(&text, " [", info->reason, "]");
  for (const auto& violation : GetFieldViolations(status)) {
    // The message of a single bad field is that field's already.
    if (absl::StrContains(status.message(), violation.description)) continue;
    absl::StrAppend(&text, "\n  ", violation.field, ": ", violation.description);
  }
  return text;
}

}  // namespace fsdp
