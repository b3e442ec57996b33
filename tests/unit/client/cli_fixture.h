#ifndef FSDPCTL_TESTS_UNIT_CLIENT_CLI_FIXTURE_H_
#define FSDPCTL_TESTS_UNIT_CLIENT_CLI_FIXTURE_H_

// Runs command lines in this process against a FakeService, with a clock that stands still.

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "client/cli.h"
#include "tests/unit/client/fake_service.h"

namespace fsdp {

class FixedClock final : public Clock {
 public:
  [[nodiscard]] MonotonicTime Now() const override {
    return MonotonicTime::FromSinceStart(absl::Seconds(100));
  }
  // 2026-01-02T03:04:05Z
  [[nodiscard]] absl::Time WallNow() const override { return absl::FromUnixSeconds(1767323045); }
};

struct CliResult {
  int exit_code = 0;
  std::string out;
  std::string err;
};

class CliRunner {
 public:
  // The service that FSDPCTL_SERVER names.
  FakeService service;
  std::map<std::string, std::string> variables;
  std::string input;
  bool terminal = false;
  Interrupt interrupt;

  CliRunner() { variables["FSDPCTL_SERVER"] = service.address(); }
  CliResult Run(const std::vector<std::string>& arguments);
  // A job "jobs/a-00000001" of two ranks.
  static v1::Job ExampleJob(v1::JobState state);

 private:
  FixedClock clock_;
};

// A spec that is valid.
extern const char kGoodSpec[];

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_UNIT_CLIENT_CLI_FIXTURE_H_
