#ifndef FSDPCTL_CLIENT_CLIENT_H_
#define FSDPCTL_CLIENT_CLIENT_H_

// The coordinator's API for C++ programs: one method per RPC, with deadlines, retries and streams
// that survive a restart of the coordinator.
//
// Thread rule: all methods may be called from any thread at once. Callbacks run on the calling
// thread. Lifetime: a Client must outlive the calls made on it.
//
// Errors of every method, besides those of the RPC (fsdp/v1/*_service.proto):
//   UNAVAILABLE        no connection within retry_window; the message names the address
//   DEADLINE_EXCEEDED  connected, but no answer within call_timeout
//   UNAUTHENTICATED    certificates stand in the way: the message says whose and what to do
//   CANCELLED          the Interrupt was cancelled
//   NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT  the token file, as ReadTokenFile
// google.rpc details of an error are payloads of the status: see error.h.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/interrupt.h"
#include "fsdp/v1/cluster_service.pb.h"
#include "fsdp/v1/enrollment_service.pb.h"
#include "fsdp/v1/job_service.pb.h"
#include "proto/support/tls/tls_files.h"

namespace fsdp {

inline constexpr char kDefaultServer[] = "127.0.0.1:7070";

struct ClientOptions {
  // "host:port", "[v6]:port" or "unix:/path"; several "host:port" with commas:
  // high_availability.md.
  std::string server = kDefaultServer;
  // Of one unary call, retries included.
  absl::Duration call_timeout = absl::Seconds(10);
  // How long a call waits for a connection, and UNAVAILABLE is retried. Longer than a coordinator
  // takes to restart; with several addresses at least 8 s, in which another one takes over.
  absl::Duration retry_window = absl::Seconds(4);
  // How long an established stream tries to get its coordinator back; of several at least 16 s.
  absl::Duration reconnect_window = absl::Seconds(8);
  // Empty: in the clear. Read by Create.
  TlsFiles tls;
  // What messages call them.
  TlsFileNames tls_names;
  // The name that the coordinator's certificate must have; empty: the host of `server`.
  std::string tls_server_name;
  // Ends calls, waits and streams early; may be null. Must outlive the Client.
  Interrupt* interrupt = nullptr;
  // File of a bearer token, read at each call, so that it may be replaced; empty: none is sent.
  std::string token_file;
  // Send it in the clear also to other machines.
  bool allow_plaintext_token = false;
};

struct StreamOptions {
  // The stream ends with DEADLINE_EXCEEDED then.
  absl::Time deadline = absl::InfiniteFuture();
  // Told once per lost connection, with the error; may be empty.
  std::function<void(const absl::Status&)> on_reconnect;
};

struct LogFilter {
  // Resume after this offset; 0: from the first line.
  std::int64_t after_offset = 0;
  bool follow = false;
  // -1: all ranks.
  int rank = -1;
  // 0: all attempts.
  int attempt = 0;
  // Start with the last N matching lines; 0: off.
  std::int64_t tail = 0;
};

class Client {
 public:
  // Does not connect yet.
  //   INVALID_ARGUMENT  the server address cannot be one, a token would travel in the clear, its
  //                     file holds none, or a TLS file is missing beside another
  //   FAILED_PRECONDITION, NOT_FOUND, ...  a TLS file cannot be used, as LoadTlsMaterial
  static absl::StatusOr<std::unique_ptr<Client>> Create(ClientOptions options);
  virtual ~Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // "jobs/ID" from "jobs/ID" or "ID".
  static std::string JobName(const std::string& id_or_name);
  // "workers/ID" from "workers/ID" or "ID".
  static std::string WorkerName(const std::string& id_or_name);
  // A fresh request id: a random UUID.
  static std::string NewRequestId();

  [[nodiscard]] virtual const std::string& server() const = 0;

  // Retries are safe because of the request id; an empty one is filled in.
  virtual absl::StatusOr<v1::CreateJobResponse> CreateJob(v1::CreateJobRequest request) = 0;
  virtual absl::StatusOr<v1::Job> GetJob(const std::string& job) = 0;
  // All pages, newest first; at most `limit` jobs, 0: all.
  virtual absl::StatusOr<std::vector<v1::Job>> ListJobs(v1::ListJobsRequest filter, int limit) = 0;
  virtual absl::StatusOr<v1::Job> CancelJob(const std::string& job, const std::string& reason) = 0;
  // The next four are not repeated once sent: a lost answer is an error to look into.
  virtual absl::StatusOr<v1::SuspendJobResponse> SuspendJob(const std::string& job,
                                                            const std::string& reason) = 0;
  virtual absl::StatusOr<v1::Job> ResumeJob(const std::string& job) = 0;
  virtual absl::StatusOr<v1::RestartJobResponse> RestartJob(const std::string& job,
                                                            const std::string& reason) = 0;
  virtual absl::Status DeleteJob(const std::string& job) = 0;
  virtual absl::StatusOr<v1::Plan> PlanJob(const v1::TrainingJob& job) = 0;
  virtual absl::StatusOr<std::vector<v1::CheckpointInfo>> ListCheckpoints(
      const std::string& job) = 0;
  virtual absl::StatusOr<v1::ReadCheckpointResponse> ReadCheckpoint(
      const v1::ReadCheckpointRequest& request) = 0;
  // Not repeated once sent: a second one would be refused while the first is under way.
  virtual absl::StatusOr<v1::ProfileJobResponse> ProfileJob(
      const v1::ProfileJobRequest& request) = 0;
  virtual absl::StatusOr<v1::GetProfileResponse> GetProfile(const std::string& job,
                                                            const std::string& profile) = 0;
  virtual absl::StatusOr<v1::ReadProfileResponse> ReadProfile(
      const v1::ReadProfileRequest& request) = 0;
  virtual absl::StatusOr<v1::DumpCollectivesResponse> DumpCollectives(const std::string& job) = 0;

  virtual absl::StatusOr<std::vector<v1::Worker>> ListWorkers() = 0;
  virtual absl::StatusOr<v1::DrainWorkerResponse> DrainWorker(const std::string& worker,
                                                              bool stop_ranks,
                                                              const std::string& reason) = 0;
  virtual absl::StatusOr<v1::Worker> UncordonWorker(const std::string& worker) = 0;
  virtual absl::StatusOr<v1::GetClusterResponse> GetCluster() = 0;
  // All pages in one.
  virtual absl::StatusOr<v1::ListQueuesResponse> ListQueues() = 0;
  virtual absl::StatusOr<v1::Queue> GetQueue(const std::string& queue) = 0;
  virtual absl::StatusOr<v1::Maintenance> SetMaintenance(v1::MaintenanceMode mode,
                                                         const std::string& reason) = 0;
  // Not repeated once sent: each answer is another token.
  virtual absl::StatusOr<v1::CreateJoinTokenResponse> CreateJoinToken(
      const v1::CreateJoinTokenRequest& request) = 0;

  // Streams. A callback that returns false ends the stream with OK. A lost connection is taken up
  // again where it broke, without repeating or dropping anything, for reconnect_window; then
  // UNAVAILABLE.

  // The job as it is, then as it changes, until it is finished (OK). Changes may be coalesced, the
  // finished job never.
  virtual absl::Status WatchJob(const std::string& job, const StreamOptions& options,
                                const std::function<bool(const v1::Job&)>& on_job) = 0;
  // With `follow` OK means that the job is finished and everything was delivered.
  virtual absl::Status StreamLogs(const std::string& job, const LogFilter& filter,
                                  const StreamOptions& options,
                                  const std::function<bool(const v1::LogEntry&)>& on_line) = 0;
  virtual absl::Status StreamEvents(const std::string& job, std::int64_t after_sequence,
                                    bool follow, const StreamOptions& options,
                                    const std::function<bool(const v1::JobEvent&)>& on_event) = 0;
  virtual absl::Status StreamMetrics(
      const std::string& job, std::int64_t after_offset, bool follow, const StreamOptions& options,
      const std::function<bool(const v1::StepMetrics&)>& on_metrics) = 0;

  // Join tokens: all pages, newest first.
  virtual absl::StatusOr<std::vector<v1::JoinToken>> ListJoinTokens() = 0;
  // By its id or name. Not repeated once sent: the token would not be found.
  virtual absl::Status RevokeJoinToken(const std::string& token) = 0;

 protected:
  Client() = default;
};

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_CLIENT_H_
