#ifndef FSDPCTL_COORDINATOR_WEB_STATUS_PAGE_H_
#define FSDPCTL_COORDINATOR_WEB_STATUS_PAGE_H_

// The status page: what the coordinator knows, to look at. It changes nothing, and holds nobody up:
// jobs come from the directory's snapshots, the past from the store's readers, and the coordinator
// itself is asked at most once a second, however many look.
//
//   GET /            jobs, queue, workers
//   GET /jobs/{id}   one job
//   GET /page.css, /page.js, /icon.svg
//   GET, POST /login, POST /logout   where the access file asks for a token
//
// Thread-safe.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/events/job_directory.h"
#include "coordinator/store/job_store.h"
#include "coordinator/web/html.h"
#include "coordinator/web/http_message.h"
#include "coordinator/web/job_history.h"
#include "coordinator/web/page_access.h"
#include "fsdp/v1/cluster_service.pb.h"
#include "proto/support/clock.h"

namespace fsdp::coordinator {

// The cluster at one moment, for all who look within a second.
struct ClusterSnapshot {
  v1::GetClusterResponse cluster;
  std::vector<v1::Worker> workers;
};

struct StatusPageParts {
  // All outlive the page.
  const Clock* clock = nullptr;
  const JobDirectory* directory = nullptr;
  JobStore* store = nullptr;
  const PageAccess* access = nullptr;
  std::function<ClusterSnapshot()> read_cluster;
  // Browsers talk TLS to it: cookies are for TLS alone.
  bool is_encrypted = false;
  // Only this machine reaches it: a request for another host's name is one that a page from
  // elsewhere has smuggled in by pointing its own name here.
  bool is_loopback = false;
};

class StatusPage {
 public:
  explicit StatusPage(StatusPageParts parts) : parts_(std::move(parts)), histories_(parts_.store) {}

  HttpResponse Handle(const HttpRequest& request);

 private:
  [[nodiscard]] std::optional<HttpResponse> Refuse(const HttpRequest& request) const;
  HttpResponse Login(const HttpRequest& request) const;
  [[nodiscard]] HttpResponse Logout() const;
  HttpResponse Overview(const HttpRequest& request, const Visitor& visitor);
  HttpResponse JobPage(const std::string& id, const Visitor& visitor);
  [[nodiscard]] HttpResponse LoginForm(int status, const std::string& problem) const;
  [[nodiscard]] HttpResponse Problem(int status, const std::string& text) const;
  [[nodiscard]] std::string CookieName() const;
  [[nodiscard]] std::string TokenOf(const HttpRequest& request) const;
  std::shared_ptr<const ClusterSnapshot> Cluster();

  const StatusPageParts parts_;
  JobHistories histories_;

  std::mutex cluster_mutex_;
  std::shared_ptr<const ClusterSnapshot> cluster_;
  MonotonicTime cluster_time_;
};

// A page around its parts. `has_logout`: somebody is logged in.
std::string PageAround(std::string_view title, const Html& main, bool is_live, bool has_logout);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_WEB_STATUS_PAGE_H_
