#include "client/doctor/cluster_checks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace fsdp::doctor {
namespace {

// Beyond, times in logs and events of two machines cannot be read side by side; certificates and
// tokens begin and end by the minute.
constexpr double kClockWarningSeconds = 1;
constexpr double kClockFaultSeconds = 60;

Finding Cluster(std::string check, std::string subject, std::string measured) {
  return {.scope = "cluster",
          .check = std::move(check),
          .subject = std::move(subject),
          .measured = std::move(measured)};
}

std::string Id(const v1::Worker& worker) {
  return worker.name().substr(worker.name().find('/') + 1);
}

absl::Time ToTime(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

void JudgeClock(double seconds, Finding* finding) {
  if (std::abs(seconds) < kClockWarningSeconds) return;
  Say(finding, std::abs(seconds) < kClockFaultSeconds ? Level::kWarning : Level::kFault,
      "set the clocks by NTP (chrony or systemd-timesyncd): certificates, tokens and the times of "
      "logs go by them");
}

Finding CheckClock(const ClusterAnswer& answer) {
  const absl::Duration round_trip = answer.received - answer.sent;
  const double offset =
      absl::ToDoubleSeconds(ToTime(answer.cluster.time()) - answer.sent - round_trip / 2);
  Finding finding = Cluster("clock", "coordinator",
                            absl::StrFormat("%+.3f s against this machine (±%.3f)", offset,
                                            absl::ToDoubleSeconds(round_trip) / 2));
  // What the way there and back explains is no offset.
  JudgeClock(std::max(0.0, std::abs(offset) - absl::ToDoubleSeconds(round_trip) / 2), &finding);
  return finding;
}

bool IsConnected(const v1::Worker& worker) {
  return worker.state() == v1::WORKER_STATE_READY || worker.state() == v1::WORKER_STATE_BUSY ||
         worker.state() == v1::WORKER_STATE_UNPLACEABLE;
}

Finding CheckState(const v1::Worker& worker) {
  std::string state = v1::WorkerState_Name(worker.state());
  state.erase(0, std::string("WORKER_STATE_").size());
  Finding finding = Cluster("worker-state", Id(worker),
                            worker.cordoned() ? absl::StrCat(state, ", cordoned") : state);
  switch (worker.state()) {
    case v1::WORKER_STATE_UNPLACEABLE:
      absl::StrAppend(&finding.measured, ": ", worker.unplaceable_reason());
      Say(&finding, Level::kFault,
          absl::StrCat("no rank is placed there until that is mended: run `fsdpctl doctor` on ",
                       worker.host()));
      break;
    case v1::WORKER_STATE_LOST:
      Say(&finding, Level::kFault,
          absl::StrCat("look after fsdp-worker on ", worker.host(),
                       " (journalctl -u fsdp-worker) and its way to the coordinator"));
      break;
    case v1::WORKER_STATE_SUSPECT:
      Say(&finding, Level::kWarning,
          absl::StrCat("it has been silent for seconds: is ", worker.host(),
                       " overloaded, or the network?"));
      break;
    default:
      if (!worker.cordoned()) break;
      Say(&finding, Level::kWarning, absl::StrCat("fsdpctl uncordon ", Id(worker)));
  }
  return finding;
}

// "0.1.0 on a, b; 0.2.0 on c"; empty while all say the same.
std::string Differences(const std::vector<v1::Worker>& workers,
                        const std::function<std::string(const v1::Worker&)>& value) {
  std::map<std::string, std::vector<std::string>> by_value;
  for (const v1::Worker& worker : workers) {
    const std::string said = value(worker);
    if (IsConnected(worker) && !said.empty()) by_value[said].push_back(Id(worker));
  }
  if (by_value.size() < 2) return "";
  return absl::StrJoin(by_value, "; ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.first, " on ", absl::StrJoin(entry.second, ", "));
  });
}

Finding CheckVersions(const std::vector<v1::Worker>& workers, const std::string& coordinator) {
  Finding finding = Cluster("worker-versions", "", absl::StrCat("all ", coordinator));
  std::vector<std::string> others;
  for (const v1::Worker& worker : workers) {
    if (!IsConnected(worker) || worker.version() == coordinator) continue;
    others.push_back(absl::StrCat(Id(worker), " has ", worker.version()));
  }
  if (others.empty()) return finding;
  finding.measured =
      absl::StrCat("the coordinator has ", coordinator, ", ", absl::StrJoin(others, ", "));
  Say(&finding, Level::kWarning,
      "one release apart is for the time of an upgrade: install the same on all hosts");
  return finding;
}

Finding CheckDrivers(const std::vector<v1::Worker>& workers) {
  Finding finding = Cluster("drivers", "", "the same everywhere");
  const std::string drivers = Differences(
      workers, [](const v1::Worker& worker) { return worker.device().driver_version(); });
  if (drivers.empty()) return finding;
  finding.measured = drivers;
  Say(&finding, Level::kWarning,
      "a job over these hosts runs at the slower driver's pace, if at "
      "all: install one version");
  return finding;
}

// A device that two workers of a host have is used twice.
Finding CheckDevices(const std::vector<v1::Worker>& workers) {
  Finding finding = Cluster("devices", "", "each under one name");
  std::map<std::string, std::vector<std::string>> by_device;
  for (const v1::Worker& worker : workers) {
    if (!IsConnected(worker)) continue;
    const v1::DeviceInfo& device = worker.device();
    if (!device.uuid().empty()) by_device[device.uuid()].push_back(Id(worker));
  }
  std::vector<std::string> shared;
  for (const auto& [device, ids] : by_device) {
    if (ids.size() > 1) shared.push_back(absl::StrCat(device, " of ", absl::StrJoin(ids, ", ")));
  }
  if (shared.empty()) return finding;
  finding.measured = absl::StrJoin(shared, "; ");
  Say(&finding, Level::kWarning,
      "ranks share this device, which is for tests: start one worker for each device");
  return finding;
}

bool IsLoopbackAddress(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

Finding CheckRankAddresses(const std::vector<v1::Worker>& workers) {
  std::set<std::string> hosts;
  std::vector<std::string> loopback;
  std::vector<std::string> v4;
  std::vector<std::string> v6;
  for (const v1::Worker& worker : workers) {
    if (!IsConnected(worker) || worker.rank_address().empty()) continue;
    hosts.insert(worker.host());
    auto& kind = IsLoopbackAddress(worker.rank_address())               ? loopback
                 : worker.rank_address().find(':') == std::string::npos ? v4
                                                                        : v6;
    kind.push_back(Id(worker));
  }
  Finding finding = Cluster(
      "rank-addresses", "",
      absl::StrFormat("%d IPv4, %d IPv6, %d loopback", v4.size(), v6.size(), loopback.size()));
  if (hosts.size() > 1 && !loopback.empty()) {
    finding.measured = absl::StrCat("loopback on ", absl::StrJoin(loopback, ", "));
    Say(&finding, Level::kWarning,
        "jobs over several hosts fail there: start fsdp-worker with --job-network, --interface or "
        "--bind-address");
  } else if (!v4.empty() && !v6.empty()) {
    finding.measured =
        absl::StrCat("IPv4 on ", absl::StrJoin(v4, ", "), "; IPv6 on ", absl::StrJoin(v6, ", "));
    Say(&finding, Level::kWarning,
        "ranks reach each other over one of them only: give all workers "
        "the same --job-network");
  }
  return finding;
}

Finding CheckWorkerClocks(const std::vector<v1::Worker>& workers) {
  double worst = 0;
  std::string worst_id;
  for (const v1::Worker& worker : workers) {
    if (!IsConnected(worker) || !worker.has_clock_offset_seconds()) continue;
    if (worst_id.empty() || std::abs(worker.clock_offset_seconds()) > std::abs(worst)) {
      worst = worker.clock_offset_seconds();
      worst_id = Id(worker);
    }
  }
  Finding finding = Cluster(
      "worker-clocks", "",
      worst_id.empty()
          ? "unknown"
          : absl::StrFormat("at most %+.3f s against the coordinator (%s)", worst, worst_id));
  JudgeClock(worst, &finding);
  return finding;
}

}  // namespace

Findings CheckCoordinator(const std::string& server, const absl::StatusOr<ClusterAnswer>& answer,
                          const std::string& client_version) {
  Finding reached = Cluster("coordinator", server, "");
  if (!answer.ok()) {
    reached.measured = std::string(answer.status().message());
    Say(&reached, Level::kFault,
        "is fsdp-coordinator running there, is its port open to this machine, is --server right?");
    return {reached};
  }
  reached.measured = absl::StrFormat("answers in %.1f ms",
                                     absl::ToDoubleMilliseconds(answer->received - answer->sent));
  const std::string& version = answer->cluster.version();
  Finding versions =
      Cluster("version", "", absl::StrCat("fsdpctl ", client_version, ", coordinator ", version));
  if (version != client_version) {
    Say(&versions, Level::kWarning, "install the same release for both once the upgrade is over");
  }
  Findings findings = {reached, versions};
  // Coordinators before this field do not tell.
  if (answer->cluster.has_time()) findings.push_back(CheckClock(*answer));
  return findings;
}

Findings CheckWorkers(const std::vector<v1::Worker>& workers,
                      const std::string& coordinator_version) {
  if (workers.empty()) {
    Finding none = Cluster("workers", "", "none");
    Say(&none, Level::kWarning,
        "start fsdp-worker on the hosts with devices: jobs wait until then");
    return {none};
  }
  Findings findings;
  int well = 0;
  for (const v1::Worker& worker : workers) {
    Finding state = CheckState(worker);
    well += state.level == Level::kOk ? 1 : 0;
    if (state.level != Level::kOk) findings.push_back(std::move(state));
  }
  findings.insert(
      findings.begin(),
      Cluster("workers", "", absl::StrFormat("%d of %d are well", well, workers.size())));
  findings.push_back(CheckVersions(workers, coordinator_version));
  findings.push_back(CheckDrivers(workers));
  findings.push_back(CheckDevices(workers));
  findings.push_back(CheckRankAddresses(workers));
  findings.push_back(CheckWorkerClocks(workers));
  return findings;
}

Findings CheckEndpoints(const std::vector<EndpointProbe>& probes) {
  Findings findings;
  for (const EndpointProbe& probe : probes) {
    Finding finding = Cluster("metrics", probe.subject, probe.address);
    if (!probe.status.ok()) {
      absl::StrAppend(&finding.measured, ": ", std::string(probe.status.message()));
      Say(&finding, Level::kWarning,
          "Prometheus needs a way there: open the port, or give --metrics-listen an address that "
          "its machine reaches");
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace fsdp::doctor
