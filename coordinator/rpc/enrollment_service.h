#ifndef FSDPCTL_COORDINATOR_RPC_ENROLLMENT_SERVICE_H_
#define FSDPCTL_COORDINATOR_RPC_ENROLLMENT_SERVICE_H_

// EnrollmentService on the wire.

#include "coordinator/rpc/gate.h"
#include "coordinator/security/enrollment.h"
#include "fsdp/v1/enrollment_service.grpc.pb.h"

namespace fsdp::coordinator {

class EnrollmentServiceImpl : public v1::EnrollmentService::CallbackService {
 public:
  // `enrollment` null: the coordinator has no authority to enrol with. Both outlive the service.
  EnrollmentServiceImpl(Enrollment* enrollment, Gate& gate)
      : enrollment_(enrollment), gate_(gate) {}

  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;

  Unary* CreateJoinToken(Context* context, const v1::CreateJoinTokenRequest* request,
                         v1::CreateJoinTokenResponse* response) override;
  Unary* ListJoinTokens(Context* context, const v1::ListJoinTokensRequest* request,
                        v1::ListJoinTokensResponse* response) override;
  Unary* RevokeJoinToken(Context* context, const v1::RevokeJoinTokenRequest* request,
                         v1::RevokeJoinTokenResponse* response) override;
  Unary* EnrollWorker(Context* context, const v1::EnrollWorkerRequest* request,
                      v1::EnrollWorkerResponse* response) override;
  Unary* RenewCertificate(Context* context, const v1::RenewCertificateRequest* request,
                          v1::RenewCertificateResponse* response) override;

 private:
  Enrollment* const enrollment_;
  Gate& gate_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_ENROLLMENT_SERVICE_H_
