#include "coordinator/web/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/web/page_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

// Tags and attribute names of a page, without texts and values: what markup it is.
std::string SkeletonOf(const std::string& html) {
  std::string skeleton;
  bool in_tag = false;
  bool in_value = false;
  for (const char c : html) {
    if (in_value) {
      in_value = c != '"';
    } else if (in_tag) {
      in_value = c == '"';
      in_tag = c != '>';
      if (!in_value) skeleton += c;
    } else if (c == '<') {
      in_tag = true;
      skeleton += c;
    }
  }
  return skeleton;
}

// Everything that somebody else writes and the page shows, as `text`.
v1::Job JobOf(const std::string& text) {
  v1::Job job;
  job.set_name("jobs/" + text);
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_reason(text);
  job.set_owner(text);
  job.set_queue_position(1);
  job.mutable_spec()->mutable_spec()->set_queue(text);
  job.add_warnings(text);
  job.mutable_checkpoint()->set_path(text);
  v1::RootCause& cause = *job.mutable_root_cause();
  cause.set_cause(v1::FAILURE_CAUSE_RANK_DIED);
  cause.set_worker(text);
  cause.set_message(text);
  cause.set_collective(text);
  cause.add_last_lines(text);
  v1::RankStatus& rank = *job.add_ranks();
  rank.set_worker(text);
  rank.set_host(text);
  rank.set_device(text);
  v1::FamilyVerdict& family = *job.add_families();
  family.set_family(text);
  family.set_seconds(1);
  family.set_remedy(text);
  return job;
}

class HostileTextTest : public StatusPageTest {
 protected:
  // Both pages with `text` everywhere.
  std::pair<std::string, std::string> Pages(const std::string& text) {
    const v1::Job job = JobOf(text);
    Publish(job);
    StoreBatch batch;
    JobItem<v1::JobEvent> event{JobIdOf(job), {}};
    event.record.set_sequence(1);
    event.record.set_type(text);
    event.record.set_message(text);
    batch.events.push_back(event);
    store_.Write(std::move(batch), nullptr);
    v1::Worker worker;
    worker.set_name("workers/" + text);
    worker.set_host(text);
    worker.set_job(job.name());
    worker.set_unplaceable_reason(text);
    worker.mutable_device()->set_model(text);
    cluster_.workers = {worker};
    cluster_.cluster.set_version(text);
    Open(OpenAccess());
    const std::pair pages = {Body("/", "q=" + UrlEscaped(text)), Body("/jobs/" + text)};
    directory_.Remove(JobIdOf(job));
    return pages;
  }
};

TEST_F(HostileTextTest, NoTextOfAnotherBecomesMarkup) {
  const auto plain = Pages("plain");
  for (const std::string text :
       {"<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "' onclick='alert(1)",
        "&lt;b&gt;", "</pre></table></main><h1>", "javascript:alert(1)", "--><!--",
        "a\x1b[31m\x01z", "\xff\xc0<b>", "\xe2\x80\xae<i>"}) {
    const auto hostile = Pages(text);
    EXPECT_EQ(SkeletonOf(hostile.first), SkeletonOf(plain.first)) << text;
    EXPECT_EQ(SkeletonOf(hostile.second), SkeletonOf(plain.second)) << text;
    for (const std::string& page : {hostile.first, hostile.second}) {
      EXPECT_THAT(page, Not(HasSubstr("<script>")));
      EXPECT_THAT(page, Not(HasSubstr("<img")));
      EXPECT_THAT(page, Not(HasSubstr("\x1b")));
      EXPECT_THAT(page, Not(HasSubstr("\xff")));
    }
  }
}

TEST_F(HostileTextTest, TheSkeletonWouldShowIt) {
  EXPECT_EQ(SkeletonOf("<a href=\"x>y\">t</a>"), "<a href=></a>");
  EXPECT_NE(SkeletonOf("<p>a</p>"), SkeletonOf("<p><b>a</p>"));
}

TEST_F(StatusPageTest, ListsJobsQueueAndWorkers) {
  v1::Job running = NewJob("run-1", v1::JOB_STATE_RUNNING);
  running.mutable_progress()->set_step(40);
  running.mutable_progress()->set_total_steps(100);
  running.mutable_progress()->set_loss(2.5);
  Publish(running);
  v1::Job queued = NewJob("wait-1", v1::JOB_STATE_QUEUED);
  queued.set_reason("wants 4 devices, 2 are free");
  queued.set_queue_position(1);
  Publish(queued);
  v1::Worker& worker = cluster_.workers.emplace_back();
  worker.set_name("workers/node-1-0");
  worker.set_state(v1::WORKER_STATE_BUSY);
  worker.set_cordoned(true);
  worker.set_job("jobs/run-1");
  const std::string page = Body("/");
  EXPECT_THAT(page, AllOf(HasSubstr("<a href=\"/jobs/run-1\">run-1</a>"), HasSubstr(">2.5000<"),
                          HasSubstr("40/100"), HasSubstr("wants 4 devices, 2 are free"),
                          HasSubstr("node-1-0"), HasSubstr("CORDONED")));
}

TEST_F(StatusPageTest, FiltersByStateAndText) {
  Publish(NewJob("alpha-1", v1::JOB_STATE_RUNNING, "night"));
  Publish(NewJob("beta-1", v1::JOB_STATE_FAILED));
  const auto jobs = [&](const std::string& query) {
    std::string names;
    for (const char* id : {"alpha-1", "beta-1"}) {
      if (Body("/", query).find(absl::StrCat("/jobs/", id)) != std::string::npos) names += id;
    }
    return names;
  };
  EXPECT_EQ(jobs(""), "alpha-1beta-1");
  EXPECT_EQ(jobs("state=FAILED"), "beta-1");
  EXPECT_EQ(jobs("state=live"), "alpha-1");
  EXPECT_EQ(jobs("q=NIGHT"), "alpha-1");
  EXPECT_EQ(jobs("q=alpha&state=FAILED"), "");
  // Nonsense asks for nothing.
  EXPECT_EQ(jobs("state=%00%zz&before=-3&q"), "alpha-1beta-1");
}

TEST_F(StatusPageTest, OlderJobsAreAPageAway) {
  for (int i = 0; i < 150; ++i) Publish(NewJob(absl::StrCat("j-", i), v1::JOB_STATE_SUCCEEDED));
  const std::string first = Body("/");
  EXPECT_THAT(first, AllOf(HasSubstr("/jobs/j-149\""), HasSubstr("/jobs/j-50\""),
                           Not(HasSubstr("/jobs/j-49\"")), HasSubstr("before=51\"")));
  const std::string second = Body("/", "before=51");
  EXPECT_THAT(second, AllOf(HasSubstr("/jobs/j-49\""), HasSubstr("/jobs/j-0\""),
                            Not(HasSubstr("Older jobs"))));
}

TEST_F(StatusPageTest, ShowsAJob) {
  v1::Job job = NewJob("run-1", v1::JOB_STATE_RUNNING);
  v1::StepPhases& phases = *job.mutable_progress()->mutable_phases();
  phases.set_compute_seconds(0.03);
  phases.set_exposed_gather_seconds(0.01);
  v1::FamilyVerdict& family = *job.add_families();
  family.set_family("attention");
  family.set_bound(v1::BOUND_MEMORY);
  family.set_seconds(3);
  family.set_remedy("fuse it");
  Publish(job);
  StoreBatch batch;
  for (int step = 1; step <= 3; ++step) {
    JobItem<v1::StepMetrics> item{JobId("run-1"), {}};
    item.record.set_offset(step);
    item.record.set_step(step);
    item.record.set_loss(4 - step);
    batch.metrics.push_back(item);
  }
  store_.Write(std::move(batch), nullptr);
  const std::string page = Body("/jobs/run-1");
  EXPECT_THAT(page, AllOf(HasSubstr("Loss 1.0000 at step 3, lowest 1.0000."),
                          HasSubstr("class=\"loss\" points=\"0.0,"), HasSubstr("30.0ms"),
                          HasSubstr("75 %"), HasSubstr("exposed gather"), HasSubstr("attention"),
                          HasSubstr(">memory<"), HasSubstr("fuse it")));
}

TEST_F(StatusPageTest, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(Ask(Get("/jobs/none")).status, 404);
  EXPECT_EQ(Ask(Get("/jobs/")).status, 404);
  EXPECT_EQ(Ask(Get("/../etc/passwd")).status, 404);
  EXPECT_EQ(Ask(Get("/login")).status, 404);
}

TEST_F(StatusPageTest, NothingButReading) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"}) {
    for (const char* path : {"/", "/jobs/x", "/page.css"}) {
      HttpRequest request = Get(path);
      request.method = method;
      const HttpResponse response = Ask(request);
      EXPECT_EQ(response.status, 405) << method << " " << path;
      EXPECT_THAT(response.headers, Contains(Pair("Allow", "GET, HEAD")));
    }
  }
}

// A site that points its own name at this machine reads nothing.
TEST_F(StatusPageTest, AnotherHostsNameIsRefusedOnLoopback) {
  HttpRequest request = Get("/");
  for (const char* host : {"evil.example:7080", "evil.example", "10.0.0.1:7080", ""}) {
    request.headers["host"] = host;
    EXPECT_EQ(Ask(request).status, 421) << host;
  }
  for (const char* host : {"localhost:7080", "localhost", "127.0.0.1", "[::1]:7080"}) {
    request.headers["host"] = host;
    EXPECT_EQ(Ask(request).status, 200) << host;
  }
}

TEST_F(StatusPageTest, TheCoordinatorIsAskedOnceASecond) {
  for (int i = 0; i < 10; ++i) Body("/");
  EXPECT_EQ(cluster_reads_, 1);
  clock_.Advance(absl::Seconds(1));
  Body("/");
  EXPECT_EQ(cluster_reads_, 2);
}

TEST_F(StatusPageTest, NothingComesFromElsewhere) {
  Publish(NewJob("run-1", v1::JOB_STATE_RUNNING));
  for (const std::string& page : {Body("/"), Body("/jobs/run-1")}) {
    EXPECT_THAT(page, Not(HasSubstr("http")));
    EXPECT_THAT(page, Not(HasSubstr("style=")));
    EXPECT_THAT(page, Not(HasSubstr(" onclick")));
    for (const char* asset : {"/page.css", "/page.js", "/icon.svg"}) {
      EXPECT_THAT(page, HasSubstr(asset));
    }
  }
  EXPECT_THAT(Body("/page.js"), Not(HasSubstr("innerHTML")));
  EXPECT_THAT(Body("/page.css"), Not(HasSubstr("url(")));
}

// Two queues, a token for one of them, and one that may not look.
class OneQueueAccess : public PageAccess {
 public:
  [[nodiscard]] bool is_open() const override { return false; }
  [[nodiscard]] absl::StatusOr<Visitor> Admit(const std::string& token,
                                              const std::string& peer) const override {
    if (peer == "flood") return absl::ResourceExhaustedError("too many");
    if (token == "worker") return absl::PermissionDeniedError("workers do not look");
    if (token != "night-viewer") return absl::UnauthenticatedError("who?");
    return Visitor{"v", [](std::string_view queue) { return queue == "night"; }};
  }
};

class ClosedPageTest : public StatusPageTest {
 protected:
  void SetUp() override {
    Open(std::make_unique<OneQueueAccess>());
    Publish(NewJob("seen-1", v1::JOB_STATE_QUEUED, "night"));
    Publish(NewJob("hidden-1", v1::JOB_STATE_QUEUED, "day"));
    for (const char* job : {"jobs/seen-1", "jobs/hidden-1"}) {
      v1::Worker& worker = cluster_.workers.emplace_back();
      worker.set_name("workers/w");
      worker.set_job(job);
    }
  }
  static HttpRequest With(HttpRequest request, const char* name, const std::string& value) {
    request.headers[name] = value;
    return request;
  }
};

TEST_F(ClosedPageTest, WithoutATokenThereIsAFormAndNothingElse) {
  for (const char* path : {"/", "/jobs/seen-1", "/jobs/none", "/anything"}) {
    const HttpResponse response = Ask(Get(path));
    EXPECT_EQ(response.status, 401) << path;
    EXPECT_THAT(response.body, AllOf(HasSubstr("type=\"password\""), Not(HasSubstr("seen-1"))));
    EXPECT_THAT(response.headers, Contains(Pair("WWW-Authenticate", "Bearer")));
  }
  EXPECT_EQ(Ask(With(Get("/"), "authorization", "Bearer wrong")).status, 401);
  EXPECT_EQ(Ask(With(Get("/"), "authorization", "Bearer worker")).status, 403);
}

TEST_F(ClosedPageTest, ShowsTheQueuesThatTheTokenIsFor) {
  const HttpRequest request = With(Get("/"), "authorization", "Bearer night-viewer");
  const HttpResponse response = Ask(request);
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.body, AllOf(HasSubstr("seen-1"), Not(HasSubstr("hidden-1"))));
  HttpRequest job = request;
  job.path = "/jobs/seen-1";
  EXPECT_EQ(Ask(job).status, 200);
  // As if there were none.
  job.path = "/jobs/hidden-1";
  EXPECT_EQ(Ask(job).status, 404);
}

TEST_F(ClosedPageTest, LoginSetsACookieThatOnlyThisSiteSends) {
  HttpRequest login = Get("/login");
  EXPECT_EQ(Ask(login).status, 200);
  login.method = "POST";
  login.body = "token=night%2Dviewer";
  const HttpResponse response = Ask(login);
  EXPECT_EQ(response.status, 303);
  EXPECT_THAT(response.headers, Contains(Pair("Location", "/")));
  EXPECT_THAT(
      response.headers,
      Contains(Pair("Set-Cookie", "fsdp_token=night-viewer; Path=/; HttpOnly; SameSite=Strict")));
  EXPECT_EQ(Ask(With(Get("/"), "cookie", "a=b; fsdp_token=night-viewer")).status, 200);
  EXPECT_EQ(Ask(With(Get("/"), "cookie", "fsdp_token=old")).status, 401);
}

TEST_F(ClosedPageTest, OverTlsTheCookieStaysThere) {
  Open(std::make_unique<OneQueueAccess>(), /*is_encrypted=*/true);
  HttpRequest login = Get("/login");
  login.method = "POST";
  login.body = "token=night-viewer";
  EXPECT_THAT(Ask(login).headers,
              Contains(Pair("Set-Cookie",
                            "__Host-fsdp_token=night-viewer; Path=/; HttpOnly; SameSite=Strict; "
                            "Secure")));
  EXPECT_EQ(Ask(With(Get("/"), "cookie", "fsdp_token=night-viewer")).status, 401);
}

TEST_F(ClosedPageTest, LoginRefusesWhatIsNotAToken) {
  HttpRequest login = Get("/login");
  login.method = "POST";
  for (const char* body : {"", "token=", "token=wrong", "other=night-viewer"}) {
    login.body = body;
    const HttpResponse response = Ask(login);
    EXPECT_EQ(response.status, 401) << body;
    EXPECT_THAT(response.headers, Not(Contains(Pair("Set-Cookie", HasSubstr("token")))));
  }
  login.body = "token=night-viewer";
  login.peer = "flood";
  EXPECT_EQ(Ask(login).status, 429);
  login.peer = "127.0.0.1";
  login.headers["sec-fetch-site"] = "cross-site";
  EXPECT_EQ(Ask(login).status, 403);
}

TEST_F(ClosedPageTest, LogoutEndsTheCookie) {
  HttpRequest logout = Get("/logout");
  EXPECT_EQ(Ask(logout).status, 405);
  logout.method = "POST";
  EXPECT_THAT(Ask(logout).headers, Contains(Pair("Set-Cookie", HasSubstr("Max-Age=0"))));
}

TEST(HttpMessageTest, EveryAnswerCarriesTheHeadersThatKeepItSafe) {
  const std::string text = Serialize({.status = 404, .body = "x", .headers = {}}, true);
  EXPECT_THAT(text, AllOf(HasSubstr("HTTP/1.1 404 Not Found\r\n"), HasSubstr("\r\n\r\nx"),
                          HasSubstr("Cache-Control: no-store\r\n"),
                          HasSubstr("X-Content-Type-Options: nosniff\r\n"),
                          HasSubstr("frame-ancestors 'none'"), HasSubstr("default-src 'none'"),
                          Not(HasSubstr("unsafe"))));
  const std::string head = Serialize({.status = 200, .body = "x", .headers = {}}, false);
  EXPECT_THAT(head, AllOf(HasSubstr("Content-Length: 1\r\n"), ::testing::EndsWith("\r\n\r\n")));
}

TEST(HttpMessageTest, FormsAndCookies) {
  const auto fields = FormFields("a=1+2&b=%41%zz%4&a=3&=x&c");
  EXPECT_THAT(fields, AllOf(Contains(Pair("a", "1 2")), Contains(Pair("b", "A%zz%4")),
                            Contains(Pair("c", ""))));
  EXPECT_EQ(CookieValue("a=b;  t=x=y ;u", "t"), "x=y");
  EXPECT_THAT(CookieValue("at=1; u", "t"), IsEmpty());
}

}  // namespace
}  // namespace fsdp::coordinator
