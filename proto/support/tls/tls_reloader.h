#ifndef FSDPCTL_PROTO_SUPPORT_TLS_TLS_RELOADER_H_
#define FSDPCTL_PROTO_SUPPORT_TLS_TLS_RELOADER_H_

// Certificates that are replaced on disk while a server runs. What was read last and fits together
// is served; a pair that is half written, does not fit, or is over leaves the one before it in
// place, with a line in the log and a metric until it is good.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/support/clock.h"
#include "proto/support/tls/tls_files.h"

namespace fsdp {

// Thread-safe.
class TlsReloader {
 public:
  // `kind` names it in log lines and as the metrics' label: "server", "metrics". `clock` outlives
  // it.
  //   errors as LoadTlsMaterial: a program does not start with files that it cannot use
  static absl::StatusOr<std::unique_ptr<TlsReloader>> Create(std::string kind, TlsFiles files,
                                                             TlsFileNames names, Clock& clock);

  // Reads the files; true when what is served has changed.
  bool Reload();

  [[nodiscard]] std::shared_ptr<const TlsMaterial> current() const;
  // Why the files as they are cannot be served; OK when they are.
  [[nodiscard]] absl::Status problem() const;
  [[nodiscard]] const std::string& kind() const { return kind_; }

 private:
  TlsReloader(std::string kind, TlsFiles files, TlsFileNames names, Clock& clock)
      : kind_(std::move(kind)), files_(std::move(files)), names_(std::move(names)), clock_(clock) {}

  const std::string kind_;
  const TlsFiles files_;
  const TlsFileNames names_;
  Clock& clock_;

  mutable std::mutex mutex_;
  std::shared_ptr<const TlsMaterial> current_;
  absl::Status problem_;
};

// Calls Reload of each every `period` on a thread of its own, until it is destroyed.
class TlsReloadThread {
 public:
  TlsReloadThread(std::vector<std::shared_ptr<TlsReloader>> reloaders, absl::Duration period);
  ~TlsReloadThread();
  TlsReloadThread(const TlsReloadThread&) = delete;
  TlsReloadThread& operator=(const TlsReloadThread&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

// How often files are looked at, unless told otherwise.
inline constexpr absl::Duration kTlsReloadPeriod = absl::Seconds(10);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_TLS_TLS_RELOADER_H_
