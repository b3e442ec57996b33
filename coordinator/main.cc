// fsdp-coordinator: flags to options, signals to a drain. All else is in the library.

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/config/options.h"
#include "coordinator/rpc/server.h"
#include "coordinator/store/etcd/etcd_address.h"
#include "coordinator/store_verbs.h"
#include "coordinator/version.h"
#include "proto/support/log.h"
#include "proto/support/program_flags.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7070",
          "HOST:PORT of the gRPC services; port 0: a free one");
ABSL_FLAG(std::string, metrics_listen, "127.0.0.1:9464",
          "HOST:PORT of the Prometheus endpoint; empty: none");
ABSL_FLAG(std::string, web_listen, "",
          "HOST:PORT of the status page, such as 127.0.0.1:7080; empty: none");
ABSL_FLAG(
    std::string, store, "sqlite",
    "where jobs are kept: sqlite (in --state-dir), or etcd://HOST:PORT[,HOST:PORT...][/PREFIX]; "
    "of several coordinators with the same etcd one leads and the others stand by");
ABSL_FLAG(std::string, state_dir, "", "directory that jobs are kept in (created when missing)");
ABSL_FLAG(std::string, etcd_tls_ca, "",
          "PEM file of the authorities that etcd is checked by, or the word system; empty: no TLS");
ABSL_FLAG(std::string, etcd_tls_certificate, "", "PEM file of the certificate shown to etcd");
ABSL_FLAG(std::string, etcd_tls_key, "", "PEM file of its private key");
ABSL_FLAG(int64_t, etcd_history_bytes, fsdp::coordinator::StoreOptions().history_bytes,
          "with etcd: of one job's logs, and as much of its step records; beyond, the oldest go");
ABSL_FLAG(absl::Duration, etcd_compaction_period,
          fsdp::coordinator::StoreOptions().compaction_period,
          "with etcd: how often what was overwritten is given up; 0: etcd does it by itself");
ABSL_FLAG(absl::Duration, leader_lease, fsdp::coordinator::StoreOptions().lease,
          "with etcd: a leader that is silent for this long has lost; whole seconds, at least 2s");
ABSL_FLAG(std::string, advertise, "",
          "HOST:PORT that this coordinator is reached at, told by those that stand by; empty: "
          "--listen, with the host's name for a wildcard");
ABSL_FLAG(std::string, from, "", "restore: the backup; migrate: a directory, or etcd://...");
ABSL_FLAG(std::string, to, "", "backup: a new file; migrate: a directory, or etcd://...");
ABSL_FLAG(std::string, port_file, "",
          "file to write {\"grpc\":…,\"metrics\":…,\"web\":…,\"pid\":…} to once serving");
ABSL_FLAG(bool, insecure, false, "allow addresses that other machines reach, without encryption");
ABSL_FLAG(std::string, tls_certificate, "", "PEM file of the server's certificate");
ABSL_FLAG(std::string, tls_key, "", "PEM file of its private key");
ABSL_FLAG(std::string, tls_client_ca, "", "PEM file of the authorities whose clients are let in");
ABSL_FLAG(bool, reflection, true, "gRPC server reflection, where --access is not given");
ABSL_FLAG(std::string, access, "",
          "YAML file of who may do what; re-read when it changes. Without it everybody may do "
          "everything");
ABSL_FLAG(std::string, audit_log, "",
          "file to record calls in that change something or are denied, one JSON object a line");
ABSL_FLAG(std::vector<std::string>, allow_path, {},
          "folder that paths in job specs must lie in; may be given several times. Without it "
          "anywhere");
ABSL_FLAG(bool, hardened, false,
          "refuse to start without TLS, --access, --audit-log and --allow-path");
ABSL_FLAG(double, max_requests_per_second, 500, "of one caller, with --access; 0: any number");
ABSL_FLAG(int, max_streams_per_caller, 1024, "open at a time; 0: any number");
ABSL_FLAG(int64_t, max_spec_bytes, int64_t{1} << 20, "of a job spec; 0: what a message can hold");
ABSL_FLAG(std::string, queues, "",
          "YAML file of queues: quotas, weights, preemption; read again when it changes and at "
          "SIGHUP. Empty: none, any name is a queue");
ABSL_FLAG(bool, require_client_certificate, false,
          "end the handshake of clients without a certificate of --tls-client-ca");
ABSL_FLAG(std::string, metrics_tls_certificate, "",
          "PEM file of the Prometheus endpoint's certificate");
ABSL_FLAG(std::string, metrics_tls_key, "", "PEM file of its private key");
ABSL_FLAG(std::string, metrics_tls_client_ca, "",
          "PEM file of the authorities whose scrapers are answered; empty: all are");
ABSL_FLAG(
    std::string, enroll_ca, "",
    "folder of the authority (fsdpctl ca init) that workers are enrolled with; empty: none are");
ABSL_FLAG(absl::Duration, enroll_validity, absl::Hours(24 * 30),
          "how long an enrolled worker's certificate is good; workers renew theirs");
ABSL_FLAG(absl::Duration, tls_reload_period, fsdp::kTlsReloadPeriod,
          "how often replaced certificate files are looked for");
ABSL_FLAG(bool, verbose, false, "log debug lines");
ABSL_FLAG(absl::Duration, heartbeat, absl::Seconds(1), "how often workers report");
ABSL_FLAG(absl::Duration, suspect_after, absl::Seconds(5), "silent workers become SUSPECT");
ABSL_FLAG(absl::Duration, lost_after, absl::Seconds(10), "silent workers become LOST");
ABSL_FLAG(absl::Duration, forget_lost_after, absl::Hours(1),
          "a LOST worker is no longer listed after this long, unless it is drained; inf: never");
ABSL_FLAG(absl::Duration, stream_grace, absl::Seconds(1),
          "a worker whose stream closed is LOST unless it is back by then");
ABSL_FLAG(absl::Duration, adoption_grace, absl::Seconds(20),
          "after a start: workers of running jobs may take this long to come back");
ABSL_FLAG(absl::Duration, shrink_after, absl::Seconds(10),
          "an elastic job waits this long for its full size before it takes fewer ranks");
ABSL_FLAG(
    double, exclude_stragglers_below, 0.5,
    "score of a rank (1: as fast as the fastest) below which a spare takes its place, in jobs "
    "that hold spares; 0: never");
ABSL_FLAG(absl::Duration, hang_abort, absl::Seconds(30),
          "least time after which a pending collective is a hang");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(5), "at SIGTERM: time for open calls");

namespace {

fsdp::coordinator::Options OptionsFromFlags() {
  fsdp::coordinator::Options options;
  options.listen = absl::GetFlag(FLAGS_listen);
  options.metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  options.web_listen = absl::GetFlag(FLAGS_web_listen);
  options.state_dir = absl::GetFlag(FLAGS_state_dir);
  options.port_file = absl::GetFlag(FLAGS_port_file);
  options.insecure = absl::GetFlag(FLAGS_insecure);
  options.tls = {.certificate = absl::GetFlag(FLAGS_tls_certificate),
                 .key = absl::GetFlag(FLAGS_tls_key),
                 .ca = absl::GetFlag(FLAGS_tls_client_ca)};
  options.require_client_certificate = absl::GetFlag(FLAGS_require_client_certificate);
  options.metrics_tls = {.certificate = absl::GetFlag(FLAGS_metrics_tls_certificate),
                         .key = absl::GetFlag(FLAGS_metrics_tls_key),
                         .ca = absl::GetFlag(FLAGS_metrics_tls_client_ca)};
  options.enroll_ca = absl::GetFlag(FLAGS_enroll_ca);
  options.enroll_validity = absl::GetFlag(FLAGS_enroll_validity);
  options.tls_reload_period = absl::GetFlag(FLAGS_tls_reload_period);
  options.reflection = absl::GetFlag(FLAGS_reflection);
  options.access_file = absl::GetFlag(FLAGS_access);
  options.audit_log = absl::GetFlag(FLAGS_audit_log);
  options.allowed_paths = absl::GetFlag(FLAGS_allow_path);
  options.hardened = absl::GetFlag(FLAGS_hardened);
  options.limits.requests_per_second = absl::GetFlag(FLAGS_max_requests_per_second);
  options.limits.burst = 2 * options.limits.requests_per_second;
  options.limits.streams = absl::GetFlag(FLAGS_max_streams_per_caller);
  options.limits.spec_bytes = absl::GetFlag(FLAGS_max_spec_bytes);
  options.drain_timeout = absl::GetFlag(FLAGS_drain_timeout);
  options.timing.heartbeat_period = absl::GetFlag(FLAGS_heartbeat);
  options.timing.suspect_after = absl::GetFlag(FLAGS_suspect_after);
  options.timing.lost_after = absl::GetFlag(FLAGS_lost_after);
  options.timing.forget_lost_after = absl::GetFlag(FLAGS_forget_lost_after);
  options.timing.stream_grace = absl::GetFlag(FLAGS_stream_grace);
  options.timing.adoption_grace = absl::GetFlag(FLAGS_adoption_grace);
  options.timing.shrink_after = absl::GetFlag(FLAGS_shrink_after);
  options.straggler.exclude_below = absl::GetFlag(FLAGS_exclude_stragglers_below);
  options.hang.abort_floor = absl::GetFlag(FLAGS_hang_abort);
  options.queue.file = absl::GetFlag(FLAGS_queues);
  return options;
}

fsdp::coordinator::StoreOptions StoreOptionsFromFlags() {
  return {.store = absl::GetFlag(FLAGS_store),
          .advertise = absl::GetFlag(FLAGS_advertise),
          .tls = {.certificate = absl::GetFlag(FLAGS_etcd_tls_certificate),
                  .key = absl::GetFlag(FLAGS_etcd_tls_key),
                  .ca = absl::GetFlag(FLAGS_etcd_tls_ca)},
          .lease = absl::GetFlag(FLAGS_leader_lease),
          .history_bytes = absl::GetFlag(FLAGS_etcd_history_bytes),
          .compaction_period = absl::GetFlag(FLAGS_etcd_compaction_period)};
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "fsdp-coordinator: %s\n", std::string(status.message()).c_str());
  const bool usage = absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
                     absl::IsUnimplemented(status);
  return usage ? 2 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  const bool is_verb = fsdp::coordinator::IsStoreVerb(verb);
  // The flags of the verb are the coordinator's.
  if (is_verb) {
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  const absl::StatusOr<bool> parsed = fsdp::ParseProgramFlags(
      argc, argv,
      {.name = "fsdp-coordinator",
       .version = fsdp::coordinator::kVersion,
       .usage =
           "takes training jobs, places them on workers and keeps them going.\n\n"
           "  fsdp-coordinator --state-dir=/var/lib/fsdp-coordinator\n"
           "  fsdp-coordinator --state-dir=./state --listen=127.0.0.1:0 --port-file=./ports.json\n"
           "  fsdp-coordinator --state-dir=./state --listen=10.0.0.1:7070 "
           "--tls-certificate=server.crt "
           "--tls-key=server.key --tls-client-ca=ca.crt\n"
           "  fsdp-coordinator --state-dir=./state --access=./access.yaml "
           "--audit-log=./audit.jsonl\n"
           "  fsdp-coordinator --store=etcd://10.0.0.4:2379,10.0.0.5:2379,10.0.0.6:2379/fsdp "
           "--etcd-tls-ca=etcd-ca.crt --listen=10.0.0.1:7070 ...\n"
           "  fsdp-coordinator backup --state-dir=/var/lib/fsdp-coordinator --to=jobs.backup\n"
           "  fsdp-coordinator restore --from=jobs.backup --state-dir=./state\n"
           "  fsdp-coordinator migrate --from=./state --to=etcd://127.0.0.1:2379/fsdp\n\n"
           "backup copies the jobs of a directory, also while a coordinator serves them; restore "
           "and migrate want that none does. Each ends when it is done."});
  if (!parsed.ok()) return Fail(parsed.status());
  if (!*parsed) return 0;
  // gRPC's own lines would mix with ours; its errors reach us as statuses.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  if (absl::GetFlag(FLAGS_verbose)) fsdp::SetLogLevel(fsdp::LogLevel::kDebug);
  const fsdp::coordinator::Options options = OptionsFromFlags();
  const fsdp::coordinator::StoreOptions store = StoreOptionsFromFlags();
  if (is_verb) {
    const auto done = fsdp::coordinator::RunStoreVerb(verb, {.from = absl::GetFlag(FLAGS_from),
                                                             .to = absl::GetFlag(FLAGS_to),
                                                             .options = options,
                                                             .store = store});
    if (!done.ok()) return Fail(done.status());
    std::printf("%s\n", done->c_str());
    return 0;
  }

  // Every thread inherits the mask; this one waits for the signals.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  auto server = fsdp::coordinator::Server::Start(
      options,
      [](absl::Status status) {
        LOG_ERROR("cannot go on: %s", std::string(status.message()));
        kill(getpid(), SIGUSR1);
      },
      /*admission=*/nullptr, /*clock=*/nullptr, store);
  if (!server.ok()) return Fail(server.status());
  const std::string metrics = options.metrics_listen.empty()
                                  ? "no metrics (--metrics-listen is empty)"
                                  : absl::StrCat("metrics at port ", (*server)->metrics_port());
  // With etcd it says by itself when it leads.
  LOG_INFO("fsdp-coordinator %s %s at port %d, %s", fsdp::coordinator::kVersion,
           fsdp::coordinator::IsEtcdAddress(store.store) ? "stands by" : "serves",
           (*server)->port(), metrics);
  if (!options.web_listen.empty()) LOG_INFO("status page at port %d", (*server)->web_port());
  if (!options.port_file.empty()) {
    const absl::Status written =
        fsdp::coordinator::WritePortFile(options.port_file, {.grpc = (*server)->port(),
                                                             .metrics = (*server)->metrics_port(),
                                                             .web = (*server)->web_port()});
    if (!written.ok()) return Fail(written);
  }

  int received = 0;
  while (sigwait(&signals, &received) == 0 && received == SIGHUP) {
    LOG_INFO("%s: reading the configuration again", strsignal(received));
    (*server)->Reload();
  }
  LOG_INFO("%s: draining", received == SIGUSR1 ? "it cannot go on" : strsignal(received));
  (*server)->Drain();
  return received == SIGUSR1 ? 1 : 0;
}
