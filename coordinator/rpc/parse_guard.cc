#include "coordinator/rpc/parse_guard.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/rpc/status_codec.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

// Of one call.
class ParseGuard : public grpc::experimental::Interceptor {
 public:
  ParseGuard(std::string method, Counters& counters)
      : method_(std::move(method)), counters_(counters) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      malformed_ = methods->GetRecvMessage() == nullptr;
    }
    if (malformed_ &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      methods->ModifySendStatus(ToGrpcStatus(Malformed()));
    }
    methods->Proceed();
  }

 private:
  absl::Status Malformed() {
    // "/fsdp.v1.JobService/CreateJob" is counted as "JobService.CreateJob".
    constexpr std::string_view kPackage = "/fsdp.v1.";
    std::string counted = method_;
    if (counted.starts_with(kPackage)) counted.erase(0, kPackage.size());
    if (const size_t slash = counted.find('/'); slash != std::string::npos) counted[slash] = '.';
    counters_.Add("fsdp_rpc_total", counted, CodeName(absl::StatusCode::kInvalidArgument));
    return WithInfo(
        absl::InvalidArgumentError(absl::StrCat(
            method_,
            ": the request does not parse as the method's message: its bytes are damaged "
            "or of another message, or a string in it is not UTF-8")),
        "REQUEST_MALFORMED", {{"method", method_}});
  }

  const std::string method_;
  Counters& counters_;
  bool malformed_ = false;
};

class ParseGuardFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit ParseGuardFactory(Counters& counters) : counters_(counters) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    // The others have no request message.
    const bool one_request = info->type() == ServerRpcInfo::Type::UNARY ||
                             info->type() == ServerRpcInfo::Type::SERVER_STREAMING;
    // gRPC takes it over.
    return one_request ? new ParseGuard(info->method(), counters_) : nullptr;
  }

 private:
  Counters& counters_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NewParseGuard(
    Counters& counters) {
  return std::make_unique<ParseGuardFactory>(counters);
}

}  // namespace fsdp::coordinator
