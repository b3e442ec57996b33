#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/doctor/cluster_checks.h"
#include "client/doctor/probe.h"
#include "client/doctor/tls_checks.h"
#include "tests/unit/client/cli_fixture.h"

namespace fsdp {
namespace {

using doctor::CheckCoordinator;
using doctor::CheckEndpoints;
using doctor::CheckWorkers;
using doctor::ClusterAnswer;
using doctor::Finding;
using doctor::Findings;
using doctor::Level;
using ::testing::AllOf;
using ::testing::HasSubstr;

Finding Find(const Findings& findings, const std::string& check, const std::string& subject = "") {
  for (const Finding& finding : findings) {
    if (finding.check == check && finding.subject == subject) return finding;
  }
  ADD_FAILURE() << "no finding " << check << " of " << subject;
  return {};
}

// An answer of a coordinator whose clock is `ahead` of ours, after `round_trip`.
ClusterAnswer Answer(absl::Duration ahead, absl::Duration round_trip = absl::Milliseconds(10)) {
  ClusterAnswer answer;
  answer.sent = absl::FromUnixSeconds(1'000'000);
  answer.received = answer.sent + round_trip;
  const absl::Time time = answer.sent + round_trip / 2 + ahead;
  answer.cluster.set_version("1.2.3");
  answer.cluster.mutable_time()->set_seconds(absl::ToUnixSeconds(time));
  answer.cluster.mutable_time()->set_nanos(
      static_cast<int>((absl::ToUnixNanos(time) % 1'000'000'000)));
  return answer;
}

TEST(CheckCoordinatorTest, AnUnreachableOneIsAFaultThatCarriesTheError) {
  const Findings findings =
      CheckCoordinator("10.0.0.1:7070", absl::UnavailableError("connection refused"), "1.2.3");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].level, Level::kFault);
  EXPECT_EQ(findings[0].subject, "10.0.0.1:7070");
  EXPECT_EQ(findings[0].measured, "connection refused");
  EXPECT_THAT(findings[0].remedy, HasSubstr("--server"));
}

TEST(CheckCoordinatorTest, ClocksAreComparedOverTheWayThereAndBack) {
  const auto clock = [](const ClusterAnswer& answer) {
    return Find(CheckCoordinator("s:1", answer, "1.2.3"), "clock", "coordinator");
  };
  EXPECT_EQ(clock(Answer(absl::Milliseconds(250))).level, Level::kOk);
  EXPECT_EQ(clock(Answer(absl::Milliseconds(250))).measured,
            "+0.250 s against this machine (±0.005)");
  EXPECT_EQ(clock(Answer(absl::Seconds(-3))).level, Level::kWarning);
  EXPECT_THAT(clock(Answer(absl::Seconds(-3))).measured, HasSubstr("-3.000 s"));
  EXPECT_EQ(clock(Answer(absl::Seconds(61))).level, Level::kFault);
  EXPECT_THAT(clock(Answer(absl::Seconds(61))).remedy, HasSubstr("NTP"));
  // A slow network explains that much.
  EXPECT_EQ(clock(Answer(absl::Seconds(1.5), absl::Seconds(2))).level, Level::kOk);
}

TEST(CheckCoordinatorTest, AnotherReleaseIsAWarning) {
  const Findings findings = CheckCoordinator("s:1", Answer(absl::ZeroDuration()), "1.3.0");
  EXPECT_EQ(Find(findings, "version").level, Level::kWarning);
  EXPECT_EQ(Find(findings, "version").measured, "fsdpctl 1.3.0, coordinator 1.2.3");
  EXPECT_EQ(Find(findings, "coordinator", "s:1").measured, "answers in 10.0 ms");
  // An older coordinator does not tell its time: nothing is said about clocks.
  ClusterAnswer old = Answer(absl::ZeroDuration());
  old.cluster.clear_time();
  EXPECT_EQ(CheckCoordinator("s:1", old, "1.2.3").size(), 2u);
}

std::vector<v1::Worker> TwoWorkers() {
  std::vector<v1::Worker> workers(2);
  for (int i = 0; i < 2; ++i) {
    v1::Worker& worker = workers[static_cast<std::size_t>(i)];
    worker.set_name(absl::StrCat("workers/w", i));
    worker.set_host(absl::StrCat("host", i));
    worker.set_state(v1::WORKER_STATE_READY);
    worker.set_version("1.2.3");
    worker.mutable_device()->set_uuid(absl::StrCat("GPU-", i));
    worker.mutable_device()->set_driver_version("580.1");
    worker.set_rank_address(absl::StrCat("10.0.0.", i + 1));
    worker.set_clock_offset_seconds(0.01 * i);
  }
  return workers;
}

TEST(CheckWorkersTest, AWellClusterHasNothingButOk) {
  const Findings findings = CheckWorkers(TwoWorkers(), "1.2.3");
  EXPECT_EQ(findings.size(), 6u);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.level, Level::kOk) << finding.check << ": " << finding.measured;
    EXPECT_EQ(finding.scope, "cluster");
  }
  EXPECT_EQ(Find(findings, "workers").measured, "2 of 2 are well");
  EXPECT_EQ(Find(findings, "rank-addresses").measured, "2 IPv4, 0 IPv6, 0 loopback");
  EXPECT_EQ(Find(CheckWorkers({}, "1.2.3"), "workers").level, Level::kWarning);
}

struct WorkerCase {
  const char* name;
  std::function<void(std::vector<v1::Worker>&)> break_it;
  const char* check;
  const char* subject;
  Level level;
  const char* measured;
  const char* remedy;
};

class WorkerCaseTest : public ::testing::TestWithParam<WorkerCase> {};

TEST_P(WorkerCaseTest, IsFoundWithItsValueAndRemedyAndNothingElseIs) {
  const WorkerCase& test = GetParam();
  std::vector<v1::Worker> workers = TwoWorkers();
  test.break_it(workers);
  const Findings findings = CheckWorkers(workers, "1.2.3");
  const Finding finding = Find(findings, test.check, test.subject);
  EXPECT_EQ(finding.level, test.level);
  EXPECT_THAT(finding.measured, HasSubstr(test.measured));
  EXPECT_THAT(finding.remedy, HasSubstr(test.remedy));
  int bad = 0;
  for (const Finding& one : findings) bad += one.level == Level::kOk ? 0 : 1;
  EXPECT_EQ(bad, test.level == Level::kOk ? 0 : 1);
}

const WorkerCase kWorkerCases[] = {
    {"lost", [](auto& w) { w[1].set_state(v1::WORKER_STATE_LOST); }, "worker-state", "w1",
     Level::kFault, "LOST", "fsdp-worker on host1"},
    {"suspect", [](auto& w) { w[1].set_state(v1::WORKER_STATE_SUSPECT); }, "worker-state", "w1",
     Level::kWarning, "SUSPECT", "host1"},
    {"left", [](auto& w) { w[1].set_state(v1::WORKER_STATE_LEFT); }, "workers", "", Level::kOk,
     "2 of 2", ""},
    {"unplaceable",
     [](auto& w) {
       w[0].set_state(v1::WORKER_STATE_UNPLACEABLE);
       w[0].set_unplaceable_reason("900 MiB are in use by others");
     },
     "worker-state", "w0", Level::kFault, "900 MiB are in use by others", "doctor` on host0"},
    {"cordoned", [](auto& w) { w[0].set_cordoned(true); }, "worker-state", "w0", Level::kWarning,
     "READY, cordoned", "fsdpctl uncordon w0"},
    {"version", [](auto& w) { w[1].set_version("1.2.2"); }, "worker-versions", "", Level::kWarning,
     "the coordinator has 1.2.3, w1 has 1.2.2", "the same on all hosts"},
    {"version_of_a_lost_one_does_not_count",
     [](auto& w) {
       w[1].set_version("1.2.2");
       w[1].set_state(v1::WORKER_STATE_LEFT);
     },
     "worker-versions", "", Level::kOk, "all 1.2.3", ""},
    {"driver", [](auto& w) { w[1].mutable_device()->set_driver_version("570.9"); }, "drivers", "",
     Level::kWarning, "570.9 on w1; 580.1 on w0", "one version"},
    {"device_twice", [](auto& w) { w[1].mutable_device()->set_uuid("GPU-0"); }, "devices", "",
     Level::kWarning, "GPU-0 of w0, w1", "one worker for each device"},
    {"loopback", [](auto& w) { w[1].set_rank_address("127.0.0.1"); }, "rank-addresses", "",
     Level::kWarning, "loopback on w1", "--job-network"},
    {"loopback_on_one_host",
     [](auto& w) {
       for (v1::Worker& worker : w) {
         worker.set_host("host0");
         worker.set_rank_address("127.0.0.1");
       }
     },
     "rank-addresses", "", Level::kOk, "2 loopback", ""},
    {"families", [](auto& w) { w[1].set_rank_address("fd00::2"); }, "rank-addresses", "",
     Level::kWarning, "IPv4 on w0; IPv6 on w1", "the same --job-network"},
    {"clock", [](auto& w) { w[1].set_clock_offset_seconds(-7.5); }, "worker-clocks", "",
     Level::kWarning, "-7.500 s against the coordinator (w1)", "NTP"},
    {"clock_far", [](auto& w) { w[1].set_clock_offset_seconds(3600); }, "worker-clocks", "",
     Level::kFault, "+3600.000 s", "NTP"},
};

INSTANTIATE_TEST_SUITE_P(All, WorkerCaseTest, ::testing::ValuesIn(kWorkerCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CheckCertificateTest, SaysWhoseAndHowLongAndWarnsInTime) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  const absl::Duration day = absl::Hours(24);
  const auto check = [&](absl::Duration since, absl::Duration left) {
    tls::Certificate certificate;
    certificate.uris = {"fsdp://worker/w0"};
    certificate.not_before = now - since;
    certificate.not_after = now + left;
    return doctor::CheckCertificate("own", certificate, now);
  };
  EXPECT_EQ(check(10 * day, 355 * day).level, Level::kOk);
  EXPECT_THAT(check(10 * day, 355 * day).measured,
              AllOf(HasSubstr("fsdp://worker/w0, until 2028-01-05"), HasSubstr("(355 days)")));
  EXPECT_EQ(check(336 * day, 29 * day).level, Level::kWarning);
  EXPECT_THAT(check(336 * day, 29 * day).remedy, HasSubstr("fsdpctl ca renew"));
  // Of a week's life the last month is all of it: its last quarter counts.
  EXPECT_EQ(check(2 * day, 5 * day).level, Level::kOk);
  EXPECT_EQ(check(6 * day, 1 * day).level, Level::kWarning);
  EXPECT_EQ(check(365 * day, absl::ZeroDuration()).level, Level::kFault);
  EXPECT_THAT(check(366 * day, -day).measured, HasSubstr("(0 days)"));
  EXPECT_EQ(check(-day, 10 * day).level, Level::kFault);
  EXPECT_THAT(check(-day, 10 * day).measured, HasSubstr("only from"));
}

TEST(CheckTlsTest, NothingWithoutTlsAndAFaultForFilesThatAreNotThere) {
  Settings settings;
  settings.server = "127.0.0.1:1";
  EXPECT_TRUE(doctor::CheckTls(settings, absl::Now()).empty());
  settings.tls.ca = "/nonexistent/ca.crt";
  const Findings findings = doctor::CheckTls(settings, absl::Now());
  EXPECT_EQ(Find(findings, "certificate", "files").level, Level::kFault);
  EXPECT_THAT(Find(findings, "certificate", "files").measured, HasSubstr("/nonexistent/ca.crt"));
}

TEST(CheckEndpointsTest, OneThatCannotBeReachedIsNamed) {
  const Findings findings =
      CheckEndpoints({{"coordinator", "10.0.0.1:9464", absl::OkStatus()},
                      {"w0", "10.0.0.2:9465", absl::DeadlineExceededError("no answer within 2s")}});
  EXPECT_EQ(Find(findings, "metrics", "coordinator").level, Level::kOk);
  EXPECT_EQ(Find(findings, "metrics", "w0").level, Level::kWarning);
  EXPECT_EQ(Find(findings, "metrics", "w0").measured, "10.0.0.2:9465: no answer within 2s");
}

// A listening socket on a free port of loopback.
class Listener {
 public:
  explicit Listener(int family) : fd_(::socket(family, SOCK_STREAM, 0)) {
    sockaddr_storage storage{};
    auto* address = reinterpret_cast<sockaddr*>(&storage);
    socklen_t size = sizeof(sockaddr_in);
    if (family == AF_INET6) {
      auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
      v6->sin6_addr = in6addr_loopback;
      size = sizeof(sockaddr_in6);
    } else {
      reinterpret_cast<sockaddr_in*>(&storage)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    storage.ss_family = static_cast<sa_family_t>(family);
    bound_ = ::bind(fd_, address, size) == 0;
    ::getsockname(fd_, address, &size);
    port_ = ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                     : reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
  }
  ~Listener() { ::close(fd_); }
  void Listen() const { ::listen(fd_, 1); }
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] bool bound() const { return bound_; }

 private:
  const int fd_;
  int port_ = 0;
  bool bound_ = false;
};

TEST(ProbeTcpTest, WhatListensIsReachedAndWhatDoesNotIsRefused) {
  for (const int family : {AF_INET, AF_INET6}) {
    const Listener listener(family);
    if (!listener.bound()) continue;  // a machine without IPv6
    const std::string address =
        absl::StrCat(family == AF_INET ? "127.0.0.1:" : "[::1]:", listener.port());
    const absl::Status refused = doctor::ProbeTcp(address, absl::Seconds(5));
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("refused"));
    listener.Listen();
    EXPECT_TRUE(doctor::ProbeTcp(address, absl::Seconds(5)).ok()) << address;
  }
}

TEST(ProbeTcpTest, WhatIsNoAddressIsSaid) {
  EXPECT_EQ(doctor::ProbeTcp("nothing", absl::Seconds(1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(doctor::ProbeTcp("host.invalid:80", absl::Seconds(1)).code(),
            absl::StatusCode::kNotFound);
}

TEST(DoctorCommandTest, AWellClusterEndsWithZeroAndJsonHasEveryFinding) {
  CliRunner runner;
  for (v1::Worker worker : TwoWorkers()) {
    worker.set_version("9.9.9");
    runner.service.PutWorker(worker);
  }
  const CliResult result = runner.Run({"doctor", "--only=cluster", "-o", "json"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const auto report = nlohmann::json::parse(result.out);
  EXPECT_EQ(report["faults"], 0);
  EXPECT_GE(report["findings"].size(), 8u);
  for (const auto& finding : report["findings"]) {
    EXPECT_EQ(finding["scope"], "cluster");
    EXPECT_NE(finding["measured"], "");
    EXPECT_EQ(finding["level"] == "ok", finding["remedy"] == "") << finding;
  }
}

TEST(DoctorCommandTest, AFaultEndsWithOneAndSaysWhatToDo) {
  CliRunner runner;
  std::vector<v1::Worker> workers = TwoWorkers();
  workers[1].set_state(v1::WORKER_STATE_LOST);
  for (const v1::Worker& worker : workers) runner.service.PutWorker(worker);
  const CliResult result = runner.Run({"doctor", "--only", "cluster"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("fault"), HasSubstr("worker-state"), HasSubstr("LOST"),
                                HasSubstr("worker-state of w1: look after fsdp-worker on host1"),
                                HasSubstr("1 fault, ")));
}

TEST(DoctorCommandTest, WithoutACoordinatorTheHostIsStillLookedAt) {
  CliRunner runner;
  runner.service.Stop();
  runner.variables["FSDPCTL_CALL_TIMEOUT"] = "200ms";
  const CliResult both = runner.Run({"doctor", "-o", "json", "--path", "/tmp"});
  EXPECT_EQ(both.exit_code, 1);
  const auto report = nlohmann::json::parse(both.out);
  EXPECT_GE(report["faults"], 1);
  const auto of = [&](const std::string& check) {
    for (const auto& finding : report["findings"]) {
      if (finding["check"] == check) return finding;
    }
    return nlohmann::json();
  };
  EXPECT_EQ(of("coordinator")["level"], "fault");
  EXPECT_EQ(of("disk")["subject"], "/tmp");
  EXPECT_FALSE(of("open-files").is_null());
  // The coordinator is not asked at all.
  const CliResult host = runner.Run({"doctor", "--only=host", "--interface=no-such-if"});
  EXPECT_EQ(host.exit_code, 1);
  EXPECT_THAT(host.out, HasSubstr("--interface=no-such-if: this host has no such interface"));
}

}  // namespace
}  // namespace fsdp
