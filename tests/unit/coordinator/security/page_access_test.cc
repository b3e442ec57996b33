// The status page asks for the same tokens as the API.

#include <filesystem>
#include <fstream>

#include "coordinator/errors/api_error.h"
#include "coordinator/web/gated_page_access.h"
#include "gtest/gtest.h"
#include "proto/support/access_token.h"
#include "proto/support/log.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/temporary_folder.h"

namespace fsdp::coordinator {
namespace {

class GatedPageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogLevel(LogLevel::kError);
    std::string text = "identities:\n";
    Add("viewer", {.role = Role::kViewer, .queues = {"research"}}, &text);
    Add("worker", {.role = Role::kWorker, .queues = {}}, &text);
    auto access = AccessControl::Open(folder_.Write("access.yaml", text), clock_, counters_);
    ASSERT_TRUE(access.ok()) << access.status();
    access_ = *std::move(access);
    page_ = std::make_unique<GatedPageAccess>(*access_, limiter_, counters_);
  }
  void Add(const std::string& name, const Grant& grant, std::string* text) {
    tokens_[name] = NewToken();
    *text += RenderAccessEntry({.name = name,
                                .token_sha256 = TokenHash(tokens_[name]),
                                .certificate = "",
                                .grants = {grant}});
  }

  const TemporaryFolder folder_;
  FakeClock clock_;
  Counters counters_;
  CallLimiter limiter_{{.requests_per_second = 1, .burst = 3}, clock_};
  std::map<std::string, std::string> tokens_;
  std::unique_ptr<AccessControl> access_;
  std::unique_ptr<GatedPageAccess> page_;
};

TEST_F(GatedPageTest, AViewerSeesItsQueues) {
  EXPECT_FALSE(page_->is_open());
  const auto visitor = page_->Admit(tokens_["viewer"], "ipv4:127.0.0.1:1");
  ASSERT_TRUE(visitor.ok()) << visitor.status();
  EXPECT_EQ(visitor->subject, "viewer");
  EXPECT_TRUE(visitor->sees_queue("research"));
  EXPECT_FALSE(visitor->sees_queue("prod"));
  EXPECT_FALSE(visitor->sees_queue("default"));
}

TEST_F(GatedPageTest, OthersDoNotGetIn) {
  EXPECT_EQ(ReasonOf(page_->Admit("", "p").status()), "TOKEN_MISSING");
  EXPECT_EQ(ReasonOf(page_->Admit(NewToken(), "p").status()), "TOKEN_UNKNOWN");
  EXPECT_EQ(ReasonOf(page_->Admit("x\r\ny", "p").status()), "AUTHORIZATION_MALFORMED");
  EXPECT_TRUE(absl::IsPermissionDenied(page_->Admit(tokens_["worker"], "p").status()));
  EXPECT_EQ(counters_.Value("fsdp_rpc_denied_total", "token_missing"), 1);
}

TEST_F(GatedPageTest, LooksAreLimited) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(page_->Admit(tokens_["viewer"], "p").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(page_->Admit(tokens_["viewer"], "p").status()));
}

TEST_F(GatedPageTest, WithoutAnAccessFileItIsOpen) {
  const auto access = AccessControl::Open("", clock_, counters_);
  const GatedPageAccess page(**access, limiter_, counters_);
  EXPECT_TRUE(page.is_open());
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(page.Admit("", "p")->sees_queue("any"));
}

}  // namespace
}  // namespace fsdp::coordinator
