// JobService: what looks into running jobs.

#include <utility>

#include "coordinator/rpc/job_service.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {

grpc::ServerUnaryReactor* JobServiceImpl::ProfileJob(Context* context,
                                                     const v1::ProfileJobRequest* request,
                                                     v1::ProfileJobResponse* response) {
  return gate_.Answer(context, *request, [&](AdmittedCall& call) -> absl::Status {
    ASSIGN_OR_RETURN(*response, coordinator_.ProfileJob(call.caller(), *request));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::GetProfile(Context* context,
                                                     const v1::GetProfileRequest* request,
                                                     v1::GetProfileResponse* response) {
  return gate_.Answer(context, *request, [&](AdmittedCall& call) -> absl::Status {
    ASSIGN_OR_RETURN(*response, coordinator_.GetProfile(call.caller(), *request));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::ReadProfile(Context* context,
                                                      const v1::ReadProfileRequest* request,
                                                      v1::ReadProfileResponse* response) {
  return gate_.Unary(context, *request, [&](const UnaryCall& call) {
    coordinator_.ReadProfile(call.caller(), *request,
                             [call, response](absl::StatusOr<v1::ReadCheckpointResponse> piece) {
                               if (piece.ok()) {
                                 response->set_data(std::move(*piece->mutable_data()));
                                 response->set_crc32c(piece->crc32c());
                                 response->set_size_bytes(piece->size_bytes());
                               }
                               call.Finish(piece.status());
                             });
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::DumpCollectives(Context* context,
                                                          const v1::DumpCollectivesRequest* request,
                                                          v1::DumpCollectivesResponse* response) {
  return gate_.Unary(context, *request, [&](const UnaryCall& call) {
    coordinator_.DumpCollectives(
        call.caller(), *request,
        [call, response](absl::StatusOr<v1::DumpCollectivesResponse> dumps) {
          if (dumps.ok()) response->Swap(&*dumps);
          call.Finish(dumps.status());
        });
  });
}

}  // namespace fsdp::coordinator
