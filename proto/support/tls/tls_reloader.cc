#include "proto/support/tls/tls_reloader.h"

#include <utility>

#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

bool SameText(const TlsMaterial& a, const TlsMaterial& b) {
  return a.certificate_pem == b.certificate_pem && a.key_pem == b.key_pem && a.ca_pem == b.ca_pem;
}

std::string EndOf(const TlsMaterial& material) {
  return absl::FormatTime(absl::RFC3339_sec, CertificateExpiry(material), absl::UTCTimeZone());
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsReloader>> TlsReloader::Create(std::string kind, TlsFiles files,
                                                                 TlsFileNames names, Clock& clock) {
  auto reloader = std::unique_ptr<TlsReloader>(
      new TlsReloader(std::move(kind), std::move(files), std::move(names), clock));
  ASSIGN_OR_RETURN(TlsMaterial material,
                   LoadTlsMaterial(reloader->files_, reloader->names_, clock.WallNow()));
  reloader->current_ = std::make_shared<const TlsMaterial>(std::move(material));
  return reloader;
}

bool TlsReloader::Reload() {
  auto loaded = LoadTlsMaterial(files_, names_, clock_.WallNow());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!loaded.ok()) {
    // Once per kind of trouble, not once per look.
    if (problem_ != loaded.status()) {
      LOG_WARNING("%s certificate: %s; the one that ends %s stays in use", kind_,
                  std::string(loaded.status().message()), EndOf(*current_));
    }
    problem_ = loaded.status();
    return false;
  }
  const bool was_bad = !std::exchange(problem_, absl::OkStatus()).ok();
  if (SameText(*loaded, *current_)) {
    if (was_bad) LOG_INFO("%s certificate: the files are good again", kind_);
    return false;
  }
  current_ = std::make_shared<const TlsMaterial>(*std::move(loaded));
  if (current_->chain.empty()) {
    LOG_INFO("%s: new authorities", kind_);
  } else {
    LOG_INFO("%s certificate: new connections get serial %s, which ends %s", kind_,
             current_->chain.front().serial, EndOf(*current_));
  }
  return true;
}

std::shared_ptr<const TlsMaterial> TlsReloader::current() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return current_;
}

absl::Status TlsReloader::problem() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return problem_;
}

TlsReloadThread::TlsReloadThread(std::vector<std::shared_ptr<TlsReloader>> reloaders,
                                 absl::Duration period)
    : thread_([this, reloaders = std::move(reloaders), period] {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!wake_.wait_for(lock, absl::ToChronoNanoseconds(period),
                               [this] { return stopping_; })) {
          lock.unlock();
          for (const auto& reloader : reloaders) reloader->Reload();
          lock.lock();
        }
      }) {}

TlsReloadThread::~TlsReloadThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

}  // namespace fsdp
