#include "coordinator/rpc/gate.h"

#include <optional>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/rpc/caller.h"
#include "coordinator/rpc/services.h"
#include "coordinator/store/resource_names.h"
#include "fsdp/v1/job.pb.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// "JobService.CancelJob" of "fsdp.v1.JobService/CancelJob": as metrics and audit lines have it.
std::string ShortName(std::string_view method) {
  constexpr std::string_view kPackage = "fsdp.v1.";
  if (method.starts_with(kPackage)) method.remove_prefix(kPackage.size());
  std::string name(method);
  if (const std::size_t slash = name.find('/'); slash != std::string::npos) name[slash] = '.';
  return name;
}

// The request's name; empty without one.
std::string NameOf(const google::protobuf::Message& request) {
  const auto* field = request.GetDescriptor()->FindFieldByName("name");
  return field == nullptr ? "" : request.GetReflection()->GetString(request, field);
}

std::string RequestIdOf(const google::protobuf::Message& request) {
  const auto* field = request.GetDescriptor()->FindFieldByName("request_id");
  return field == nullptr ? "" : request.GetReflection()->GetString(request, field);
}

const v1::TrainingJob& SpecOf(const google::protobuf::Message& request) {
  const auto* field = request.GetDescriptor()->FindFieldByName("job");
  const google::protobuf::Message& job = request.GetReflection()->GetMessage(request, field);
  return static_cast<const v1::TrainingJob&>(job);
}

std::string QueueOf(const v1::TrainingJob& job) {
  return job.spec().queue().empty() ? "default" : job.spec().queue();
}

bool IsKnownCaller(const absl::Status& denial) {
  return !absl::IsUnauthenticated(denial) && !absl::IsResourceExhausted(denial);
}

std::mt19937_64 SeededGenerator() {
  std::random_device device;
  std::seed_seq seed{device(), device(), device(), device()};
  return std::mt19937_64(seed);
}

}  // namespace

Gate::Gate(const GateParts& parts)
    : parts_(parts),
      denial_lines_(std::make_shared<DenialLines>(*parts.clock)),
      random_(SeededGenerator()) {
  for (const google::protobuf::ServiceDescriptor* service : OurServices()) {
    for (int i = 0; i < service->method_count(); ++i) {
      const google::protobuf::MethodDescriptor* method = service->method(i);
      methods_[method->input_type()] = {
          FindRpcRule(absl::StrCat(service->full_name(), "/", method->name())),
          method->server_streaming()};
    }
  }
}

std::string Gate::NewId() {
  const std::lock_guard lock(mutex_);
  return absl::StrFormat("%016x", random_());
}

absl::StatusOr<std::shared_ptr<AdmittedCall>> Gate::Enter(
    const grpc::CallbackServerContext& context, const google::protobuf::Message& request) {
  const auto method = methods_.find(request.GetDescriptor());
  if (method == methods_.end() || method->second.rule == nullptr) {
    return WithInfo(
        absl::InternalError(absl::StrCat("nobody may call a method with ",
                                         request.GetDescriptor()->full_name(), ": it has no rule")),
        "RULE_MISSING");
  }
  auto call =
      std::shared_ptr<AdmittedCall>(new AdmittedCall(parts_, denial_lines_, *method->second.rule));
  call->start_ = parts_.clock->Now();
  call->caller_.peer = context.peer();
  AuditLine& line = call->line_;
  line.time = parts_.clock->WallNow();
  line.id = NewId();
  line.request_id = RequestIdOf(request);
  line.method = ShortName(call->rule_.method);
  line.resource = NameOf(request);
  line.peer = call->caller_.peer;
  absl::Status status = Admit(CredentialsOf(context), request, *call);
  if (status.ok() && method->second.streams) {
    status = parts_.limiter->OpenStream(call->limit_key_);
    call->in_streams_ = status.ok();
  }
  // Last: from here on the call ends with Done, which writes the line.
  if (status.ok() && call->rule_.changes && parts_.audit != nullptr) {
    status = parts_.audit->Reserve();
    call->reserved_ = status.ok();
  }
  if (status.ok()) return call;
  Refuse(*call, status);
  return status;
}

absl::Status Gate::Admit(const Credentials& credentials, const google::protobuf::Message& request,
                         AdmittedCall& call) {
  // Where nobody has to say who they are, nobody is asked.
  if (call.rule_.reach != Reach::kOpen) {
    ASSIGN_OR_RETURN(call.identity_, parts_.access->Identify(credentials));
  }
  call.caller_.subject = call.identity_.subject;
  call.line_.subject = call.identity_.subject;
  call.limit_key_ =
      call.identity_.credential.empty() ? HostOf(call.caller_.peer) : call.identity_.subject;
  // Where everybody is administrator there is nobody to be fair to.
  if (!parts_.access->unrestricted() && call.rule_.least != Role::kWorker) {
    RETURN_IF_ERROR(parts_.limiter->Request(call.limit_key_));
  }
  RETURN_IF_ERROR(FindTarget(request, call));
  return Authorize(call.rule_, call.identity_, call.has_target_ ? &call.target_ : nullptr);
}

absl::Status Gate::FindTarget(const google::protobuf::Message& request, AdmittedCall& call) {
  switch (call.rule_.reach) {
    case Reach::kNewJob: {
      const v1::TrainingJob& job = SpecOf(request);
      RETURN_IF_ERROR(
          parts_.limiter->CheckSpecBytes(static_cast<std::int64_t>(job.ByteSizeLong())));
      call.target_.queue = QueueOf(job);
      call.has_target_ = true;
      return absl::OkStatus();
    }
    case Reach::kSeeJob:
    case Reach::kChangeJob: {
      RETURN_IF_ERROR(CheckJobName(call.line_.resource));
      const JobSnapshot job = parts_.directory->Find(JobIdFromName(call.line_.resource));
      if (job == nullptr) return absl::OkStatus();
      call.target_ = {.name = job->name(), .queue = QueueOf(job->spec()), .owner = job->owner()};
      call.has_target_ = true;
      return absl::OkStatus();
    }
    default:
      return absl::OkStatus();
  }
}

void Gate::Refuse(AdmittedCall& call, const absl::Status& status) {
  call.done_ = true;
  call.LeaveStreams();
  parts_.counters->Add("fsdp_rpc_total", call.line_.method, CodeName(status.code()));
  const std::string reason = ReasonOf(status);
  // A malformed request is denied to nobody in particular.
  if (absl::IsInvalidArgument(status)) return;
  parts_.counters->Add("fsdp_rpc_denied_total", absl::AsciiStrToLower(reason));
  // Without room for a line there is none; a job that is not there is no secret.
  if (parts_.audit == nullptr || reason == "AUDIT_FAILED") return;
  if (!call.FillLine(status, /*bounded=*/!IsKnownCaller(status))) return;
  parts_.audit->Write(call.line_, /*reserved=*/false);
}

AdmittedCall::~AdmittedCall() { Done(absl::CancelledError("dropped")); }

bool AdmittedCall::SeesJob(const std::string& name) const {
  const JobSnapshot job = parts_.directory->Find(JobIdFromName(name));
  return job != nullptr && Sees(QueueOf(job->spec()));
}

absl::Status AdmittedCall::Recheck() const {
  ASSIGN_OR_RETURN(const Identity identity, parts_.access->Recheck(identity_));
  return Authorize(rule_, identity, has_target_ ? &target_ : nullptr);
}

void AdmittedCall::LeaveStreams() {
  if (in_streams_.exchange(false)) parts_.limiter->CloseStream(limit_key_);
}

void AdmittedCall::Done(const absl::Status& status) {
  if (done_.exchange(true)) return;
  LeaveStreams();
  parts_.counters->Add("fsdp_rpc_total", line_.method, CodeName(status.code()));
  // Whoever calls an open method was asked by its handler alone: a refusal is a stranger's.
  const bool stranger = rule_.reach == Reach::kOpen && !status.ok();
  if (stranger && (absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status))) {
    parts_.counters->Add("fsdp_rpc_denied_total", absl::AsciiStrToLower(ReasonOf(status)));
  }
  const bool written = FillLine(status, /*bounded=*/stranger);
  if (written && stranger) {
    LOG_WARNING("%s from %s refused: %s", line_.method, line_.peer, std::string(status.message()));
  }
  if (!reserved_) return;
  if (written) {
    parts_.audit->Write(line_, /*reserved=*/true);
  } else {
    parts_.audit->Release();
  }
}

bool AdmittedCall::FillLine(const absl::Status& status, bool bounded) {
  if (bounded) {
    const std::optional<std::int64_t> suppressed = denial_lines_->Take();
    if (!suppressed) return false;
    line_.suppressed = *suppressed;
  }
  line_.code = CodeName(status.code());
  line_.reason = ReasonOf(status);
  line_.latency = parts_.clock->Now() - start_;
  return true;
}

}  // namespace fsdp::coordinator
