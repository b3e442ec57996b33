#include "coordinator/rpc/enrollment_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "coordinator/errors/api_error.h"
#include "coordinator/rpc/caller.h"
#include "coordinator/rpc/page_token.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

absl::Status EnrollmentOff() {
  return WithInfo(
      absl::FailedPreconditionError(
          "this coordinator enrols no workers: start it with --enroll-ca and the folder "
          "of an authority (fsdpctl ca init)"),
      "ENROLLMENT_OFF");
}

// Ends the call with what an Enrollment answers.
template <typename Response>
Enrollment::Done<Response> FinishWith(const UnaryCall& call, Response* response) {
  return [call, response](absl::StatusOr<Response> answer) {
    if (answer.ok()) response->Swap(&*answer);
    call.Finish(answer.status());
  };
}

}  // namespace

grpc::ServerUnaryReactor* EnrollmentServiceImpl::CreateJoinToken(
    Context* context, const v1::CreateJoinTokenRequest* request,
    v1::CreateJoinTokenResponse* response) {
  return gate_.Unary(context, *request, [&](const UnaryCall& call) {
    if (enrollment_ == nullptr) return call.Finish(EnrollmentOff());
    enrollment_->CreateJoinToken(call.caller().subject, *request, FinishWith(call, response));
  });
}

grpc::ServerUnaryReactor* EnrollmentServiceImpl::ListJoinTokens(
    Context* context, const v1::ListJoinTokensRequest* request,
    v1::ListJoinTokensResponse* response) {
  return gate_.Answer(context, *request, [&](AdmittedCall& /*call*/) -> absl::Status {
    if (enrollment_ == nullptr) return EnrollmentOff();
    ASSIGN_OR_RETURN(const std::int64_t size, PageSize(request->page_size(), 100, 1000));
    ASSIGN_OR_RETURN(const std::int64_t skip, DecodePageToken(request->page_token(), "joinTokens"));
    std::vector<v1::JoinToken> tokens = enrollment_->ListJoinTokens();
    const auto total = static_cast<std::int64_t>(tokens.size());
    const std::int64_t end = std::min(total, skip + size);
    for (std::int64_t i = skip; i < end; ++i) *response->add_join_tokens() = std::move(tokens[i]);
    if (end < total) response->set_next_page_token(EncodePageToken(end, "joinTokens"));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* EnrollmentServiceImpl::RevokeJoinToken(
    Context* context, const v1::RevokeJoinTokenRequest* request,
    v1::RevokeJoinTokenResponse* response) {
  return gate_.Unary(context, *request, [&](const UnaryCall& call) {
    if (enrollment_ == nullptr) return call.Finish(EnrollmentOff());
    enrollment_->RevokeJoinToken(request->name(), FinishWith(call, response));
  });
}

grpc::ServerUnaryReactor* EnrollmentServiceImpl::EnrollWorker(
    Context* context, const v1::EnrollWorkerRequest* request, v1::EnrollWorkerResponse* response) {
  return gate_.Unary(context, *request, [&](const UnaryCall& call) {
    if (enrollment_ == nullptr) return call.Finish(EnrollmentOff());
    enrollment_->EnrollWorker(context->peer(), *request, FinishWith(call, response));
  });
}

grpc::ServerUnaryReactor* EnrollmentServiceImpl::RenewCertificate(
    Context* context, const v1::RenewCertificateRequest* request,
    v1::RenewCertificateResponse* response) {
  return gate_.Answer(context, *request, [&](AdmittedCall& /*call*/) -> absl::Status {
    if (enrollment_ == nullptr) return EnrollmentOff();
    auto answer = enrollment_->RenewCertificate(
        CertificateUris(*context).value_or(std::vector<std::string>()), *request);
    if (answer.ok()) response->Swap(&*answer);
    return answer.status();
  });
}

}  // namespace fsdp::coordinator
