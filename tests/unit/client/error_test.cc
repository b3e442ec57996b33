#include "client/error.h"

#include <gtest/gtest.h>

#include "client/exit_code.h"
#include "tests/unit/client/fake_service.h"

namespace fsdp {
namespace {

TEST(ErrorTest, DetailsBecomeReadable) {
  const absl::Status status = FromGrpcStatus(
      ServiceError(grpc::StatusCode::INVALID_ARGUMENT, "the spec is wrong", "INVALID_SPEC",
                   {{"spec.model.dim", "must be positive"}, {"spec.data.path", "is missing"}}));
  EXPECT_EQ(FormatError(status),
            "invalid argument: the spec is wrong [INVALID_SPEC]\n"
            "  spec.model.dim: must be positive\n"
            "  spec.data.path: is missing");
  ASSERT_TRUE(GetErrorInfo(status).has_value());
  EXPECT_EQ(GetErrorInfo(status)->domain, "fsdp.v1");
  EXPECT_EQ(ExitCodeForStatus(status), ExitCode::kInvalidSpec);
}

TEST(ErrorTest, ASingleBadFieldIsToldOnce) {
  const absl::Status status =
      FromGrpcStatus(ServiceError(grpc::StatusCode::INVALID_ARGUMENT, "name: must be jobs/ID",
                                  "NAME_INVALID", {{"name", "must be jobs/ID"}}));
  EXPECT_EQ(FormatError(status), "invalid argument: name: must be jobs/ID [NAME_INVALID]");
}

TEST(ErrorTest, ARefusedChangeOfStateExplainsItself) {
  EXPECT_EQ(FormatError(FromGrpcStatus(ServiceError(grpc::StatusCode::FAILED_PRECONDITION,
                                                    "jobs/a is SUCCEEDED: it cannot become "
                                                    "SUSPENDED",
                                                    "JOB_STATE_CONFLICT"))),
            "jobs/a is SUCCEEDED: it cannot become SUSPENDED [JOB_STATE_CONFLICT]");
}

TEST(ErrorTest, ForeignDetailsAreLeftOut) {
  const absl::Status status =
      FromGrpcStatus(grpc::Status(grpc::StatusCode::INTERNAL, "broken", "\xff\xfe not a message"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(GetErrorInfo(status).has_value());
  EXPECT_EQ(FormatError(status), "internal: broken");
}

TEST(ExitCodeTest, EveryStatusHasItsCode) {
  EXPECT_EQ(ExitCodeForStatus(absl::OkStatus()), ExitCode::kOk);
  EXPECT_EQ(ExitCodeForStatus(absl::InvalidArgumentError("")), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeForStatus(absl::AlreadyExistsError("")), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeForStatus(absl::UnavailableError("")), ExitCode::kUnreachable);
  EXPECT_EQ(ExitCodeForStatus(absl::DeadlineExceededError("")), ExitCode::kUnreachable);
  EXPECT_EQ(ExitCodeForStatus(absl::UnauthenticatedError("")), ExitCode::kAuth);
  EXPECT_EQ(ExitCodeForStatus(absl::PermissionDeniedError("")), ExitCode::kAuth);
  EXPECT_EQ(ExitCodeForStatus(absl::ResourceExhaustedError("")), ExitCode::kUnschedulable);
  EXPECT_EQ(ExitCodeForStatus(absl::NotFoundError("")), ExitCode::kNotFound);
  EXPECT_EQ(ExitCodeForStatus(absl::CancelledError("")), ExitCode::kJobNotFinished);
  EXPECT_EQ(ExitCodeForStatus(absl::FailedPreconditionError("")), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeForStatus(absl::OutOfRangeError("")), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeForStatus(absl::UnimplementedError("")), ExitCode::kUnreachable);
  EXPECT_EQ(ExitCodeForStatus(absl::UnknownError("")), ExitCode::kInternal);
  EXPECT_EQ(ExitCodeForStatus(absl::AbortedError("")), ExitCode::kInternal);
  EXPECT_EQ(ExitCodeForStatus(absl::InternalError("")), ExitCode::kInternal);
  EXPECT_EQ(ExitCodeForStatus(absl::DataLossError("")), ExitCode::kInternal);
}

TEST(ExitCodeTest, DetailsTellApartWhatACodeDoesNot) {
  const auto bad = [](const char* field) {
    return ExitCodeForStatus(FromGrpcStatus(ServiceError(grpc::StatusCode::INVALID_ARGUMENT, "bad",
                                                         "FIELD_INVALID", {{field, "wrong"}})));
  };
  EXPECT_EQ(bad("spec.model.dim"), ExitCode::kInvalidSpec);
  EXPECT_EQ(bad("metadata.name"), ExitCode::kInvalidSpec);
  EXPECT_EQ(bad("apiVersion"), ExitCode::kInvalidSpec);
  EXPECT_EQ(bad("name"), ExitCode::kUsage);
  EXPECT_EQ(bad("page_token"), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeForStatus(FromGrpcStatus(
                ServiceError(grpc::StatusCode::UNIMPLEMENTED, "later", "NOT_IN_THIS_RELEASE"))),
            ExitCode::kUsage);
}

TEST(ExitCodeTest, NumbersAreAContract) {
  EXPECT_EQ(ToInt(ExitCode::kOk), 0);
  EXPECT_EQ(ToInt(ExitCode::kInternal), 1);
  EXPECT_EQ(ToInt(ExitCode::kUsage), 2);
  EXPECT_EQ(ToInt(ExitCode::kInvalidSpec), 3);
  EXPECT_EQ(ToInt(ExitCode::kUnreachable), 4);
  EXPECT_EQ(ToInt(ExitCode::kAuth), 5);
  EXPECT_EQ(ToInt(ExitCode::kUnschedulable), 6);
  EXPECT_EQ(ToInt(ExitCode::kJobFailed), 100);
  EXPECT_EQ(ToInt(ExitCode::kJobNotFinished), 101);
  EXPECT_EQ(ToInt(ExitCode::kNotFound), 102);
  EXPECT_EQ(ToInt(ExitCode::kJobCancelled), 103);
}

TEST(ExitCodeTest, JobStates) {
  EXPECT_EQ(ExitCodeForJob(v1::JOB_STATE_SUCCEEDED), ExitCode::kOk);
  EXPECT_EQ(ExitCodeForJob(v1::JOB_STATE_FAILED), ExitCode::kJobFailed);
  EXPECT_EQ(ExitCodeForJob(v1::JOB_STATE_CANCELLED), ExitCode::kJobCancelled);
  EXPECT_EQ(ExitCodeForJob(v1::JOB_STATE_RECOVERING), ExitCode::kJobNotFinished);
  // A state of a later release.
  EXPECT_EQ(ExitCodeForJob(static_cast<v1::JobState>(77)), ExitCode::kJobNotFinished);
}

TEST(ExitCodeTest, WorseKeepsErrors) {
  EXPECT_EQ(Worse(ExitCode::kOk, ExitCode::kJobCancelled), ExitCode::kJobCancelled);
  EXPECT_EQ(Worse(ExitCode::kJobFailed, ExitCode::kJobCancelled), ExitCode::kJobFailed);
  EXPECT_EQ(Worse(ExitCode::kJobFailed, ExitCode::kNotFound), ExitCode::kNotFound);
  EXPECT_EQ(Worse(ExitCode::kUnreachable, ExitCode::kNotFound), ExitCode::kUnreachable);
}

}  // namespace
}  // namespace fsdp
