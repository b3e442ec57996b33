#ifndef FSDPCTL_COORDINATOR_RPC_GATE_H_
#define FSDPCTL_COORDINATOR_RPC_GATE_H_

// The one way into a handler: who calls, may they, is there room for it, and what is recorded. A
// handler gets a call only after all of that; the rule is found by the request's message, of which
// every method has its own.
//
// Thread-safe. Errors, besides those of identity.h, rpc_rules.h, call_limiter.h and audit_log.h:
//   INVALID_ARGUMENT  NAME_INVALID: the request's name is not "jobs/{id}"
//   INTERNAL          RULE_MISSING: a method without a rule (a test finds it first)

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/coordinator.h"
#include "coordinator/events/job_directory.h"
#include "coordinator/rpc/status_codec.h"
#include "coordinator/security/access_control.h"
#include "coordinator/security/audit_log.h"
#include "coordinator/security/call_limiter.h"
#include "coordinator/security/denial_lines.h"
#include "coordinator/security/rpc_rules.h"
#include "google/protobuf/message.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

namespace fsdp::coordinator {

// All outlive the gate and its calls; `audit` null: there is no audit log.
struct GateParts {
  const Clock* clock = nullptr;
  Counters* counters = nullptr;
  const AccessControl* access = nullptr;
  AuditLog* audit = nullptr;
  CallLimiter* limiter = nullptr;
  const JobDirectory* directory = nullptr;
};

// A call that was let in. Its end is counted and recorded once: by Done, or as CANCELLED when it is
// dropped.
class AdmittedCall {
 public:
  ~AdmittedCall();
  AdmittedCall(const AdmittedCall&) = delete;
  AdmittedCall& operator=(const AdmittedCall&) = delete;

  [[nodiscard]] const CallerIdentity& caller() const { return caller_; }
  // May the answer show jobs of this queue, this job?
  [[nodiscard]] bool Sees(std::string_view queue) const {
    return CanSee(identity_, queue.empty() ? "default" : queue);
  }
  [[nodiscard]] bool SeesJob(const std::string& name) const;
  // For streams, before each message: has the caller still the right?
  [[nodiscard]] absl::Status Recheck() const;
  // What the call turned out to be about: the job that was made.
  void set_resource(std::string resource) { line_.resource = std::move(resource); }
  // Its name in metrics and in the audit log: "JobService.CancelJob".
  [[nodiscard]] const std::string& method() const { return line_.method; }
  // A stream's place among the caller's is given back before its end.
  void LeaveStreams();
  void Done(const absl::Status& status);

 private:
  friend class Gate;
  AdmittedCall(const GateParts& parts, std::shared_ptr<DenialLines> denial_lines,
               const RpcRule& rule)
      : parts_(parts), denial_lines_(std::move(denial_lines)), rule_(rule) {}
  // How the call ended, into its line. False: there are too many `bounded` ones, it gets none.
  bool FillLine(const absl::Status& status, bool bounded);

  const GateParts parts_;
  const std::shared_ptr<DenialLines> denial_lines_;
  const RpcRule& rule_;
  Identity identity_;
  CallerIdentity caller_;
  std::string limit_key_;
  JobTarget target_;
  bool has_target_ = false;
  AuditLine line_;
  MonotonicTime start_;
  bool reserved_ = false;
  std::atomic<bool> in_streams_{false};
  std::atomic<bool> done_{false};
};

// A unary call on its way: copied into the callbacks that end it.
class UnaryCall {
 public:
  UnaryCall(grpc::ServerUnaryReactor* reactor, std::shared_ptr<AdmittedCall> call)
      : reactor_(reactor), call_(std::move(call)) {}
  [[nodiscard]] const CallerIdentity& caller() const { return call_->caller(); }
  [[nodiscard]] AdmittedCall& call() const { return *call_; }
  // Once.
  void Finish(const absl::Status& status) const {
    call_->Done(status);
    reactor_->Finish(ToGrpcStatus(status));
  }

 private:
  grpc::ServerUnaryReactor* reactor_;
  std::shared_ptr<AdmittedCall> call_;
};

class Gate {
 public:
  explicit Gate(const GateParts& parts);

  absl::StatusOr<std::shared_ptr<AdmittedCall>> Enter(const grpc::CallbackServerContext& context,
                                                      const google::protobuf::Message& request);

  // `body(UnaryCall)` runs if the call is let in, and finishes it.
  template <typename Body>
  grpc::ServerUnaryReactor* Unary(grpc::CallbackServerContext* context,
                                  const google::protobuf::Message& request, Body body) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    auto call = Enter(*context, request);
    if (call.ok()) {
      body(UnaryCall(reactor, *std::move(call)));
    } else {
      reactor->Finish(ToGrpcStatus(call.status()));
    }
    return reactor;
  }

  // The call ends with what `body(AdmittedCall&)` returns.
  template <typename Body>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                   const google::protobuf::Message& request, Body body) {
    return Unary(context, request, [&](const UnaryCall& call) { call.Finish(body(call.call())); });
  }

  // `start(std::shared_ptr<AdmittedCall>)` makes the reactor of a call that is let in.
  template <typename Response, typename Start>
  grpc::ServerWriteReactor<Response>* Stream(grpc::CallbackServerContext* context,
                                             const google::protobuf::Message& request,
                                             Start start) {
    auto call = Enter(*context, request);
    if (call.ok()) return start(*std::move(call));
    return new Refused<grpc::ServerWriteReactor<Response>>(call.status());
  }

  // A stream that ends before it begins.
  template <typename Reactor>
  class Refused : public Reactor {
   public:
    explicit Refused(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }
    void OnDone() override { delete this; }
  };

 private:
  absl::Status Admit(const Credentials& credentials, const google::protobuf::Message& request,
                     AdmittedCall& call);
  absl::Status FindTarget(const google::protobuf::Message& request, AdmittedCall& call);
  void Refuse(AdmittedCall& call, const absl::Status& status);
  std::string NewId();

  const GateParts parts_;
  struct Method {
    const RpcRule* rule;
    bool streams;
  };
  std::map<const google::protobuf::Descriptor*, Method> methods_;

  const std::shared_ptr<DenialLines> denial_lines_;
  std::mutex mutex_;
  std::mt19937_64 random_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_GATE_H_
