#include "coordinator/security/worker_identity.h"

#include "gmock/gmock.h"

namespace fsdp::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(WorkerIdentityTest, OneOfTheUrisMustNameTheWorker) {
  EXPECT_TRUE(CheckWorkerIdentity({"fsdp://worker/a"}, "a").ok());
  EXPECT_TRUE(CheckWorkerIdentity({"fsdp://worker/a"}, "workers/a").ok());
  EXPECT_TRUE(CheckWorkerIdentity({"fsdp://worker/b", "fsdp://worker/a-*"}, "a-cuda-7").ok());
  for (const std::vector<std::string>& uris : {std::vector<std::string>{},
                                               {"fsdp://worker/b"},
                                               {"fsdp://user/a"},
                                               {"fsdp://worker/a-*"}}) {
    const absl::Status refused = CheckWorkerIdentity(uris, "a");
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("not of worker a:"), HasSubstr("fsdpctl ca issue worker a")));
  }
}

}  // namespace
}  // namespace fsdp::coordinator
