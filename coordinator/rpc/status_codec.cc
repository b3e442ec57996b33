#include "coordinator/rpc/status_codec.h"

#include "absl/strings/cord.h"
#include "coordinator/errors/api_error.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace fsdp::coordinator {

std::string CodeName(absl::StatusCode code) { return absl::StatusCodeToString(code); }

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  const std::string message(status.message());
  details.set_message(message);
  bool has_info = false;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    if (url == kErrorInfoUrl) {
      if (has_info) return;
      has_info = true;
    }
    google::protobuf::Any* any = details.add_details();
    any->set_type_url(std::string(url));
    any->set_value(std::string(payload));
  });
  if (!has_info) {
    google::rpc::ErrorInfo info;
    info.set_reason(CodeName(status.code()));
    info.set_domain(kErrorDomain);
    details.add_details()->PackFrom(info);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message,
                      details.SerializeAsString());
}

}  // namespace fsdp::coordinator
