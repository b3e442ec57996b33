#include "coordinator/web/status_page.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/store/resource_names.h"
#include "coordinator/web/assets.h"
#include "coordinator/web/job_page.h"
#include "coordinator/web/overview.h"
#include "proto/support/listen_address.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// Jobs of the queue that the page shows; the CLI lists them all.
constexpr std::int64_t kQueuedJobs = 100;

HttpResponse Redirect(const std::string& where) {
  return {.status = 303,
          .content_type = "text/plain; charset=utf-8",
          .body = "",
          .headers = {{"Location", where}}};
}

HttpResponse NotAllowed(const std::string& allowed) {
  return {.status = 405,
          .content_type = "text/plain; charset=utf-8",
          .body = absl::StrCat("Only ", allowed, " here: this page changes nothing.\n"),
          .headers = {{"Allow", allowed}}};
}

bool IsRead(const std::string& method) { return method == "GET" || method == "HEAD"; }

std::string_view QueueOf(const v1::Job& job) {
  const std::string& queue = job.spec().spec().queue();
  return queue.empty() ? std::string_view("default") : std::string_view(queue);
}

}  // namespace

std::string PageAround(std::string_view title, const Html& main, bool is_live, bool has_logout) {
  Html page;
  page.Markup(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
  page.Text(title).Markup(
      " - fsdpctl</title>\n<link rel=\"icon\" href=\"/icon.svg\">\n"
      "<link rel=\"stylesheet\" href=\"/page.css\">\n");
  if (is_live) page.Markup("<script src=\"/page.js\" defer></script>\n");
  page.Markup(
      "</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the content</a>\n<header>\n"
      "<a class=\"brand\" href=\"/\">fsdpctl</a>\n");
  if (is_live) {
    page.Markup(
        "<nav aria-label=\"Parts\"><a href=\"/#jobs\">Jobs</a> <a href=\"/#queue\">Queue</a> "
        "<a href=\"/#workers\">Workers</a></nav>\n"
        "<p class=\"live\"><span id=\"live-status\" role=\"status\"><noscript>Reload for newer "
        "figures.</noscript></span> <button id=\"live-toggle\" hidden>Pause</button></p>\n");
  }
  if (has_logout) {
    page.Markup("<form method=\"post\" action=\"/logout\"><button>Log out</button></form>\n");
  }
  page.Markup("</header>\n<main id=\"main\" tabindex=\"-1\">\n").Add(main);
  return std::move(page.Markup("</main>\n</body>\n</html>\n")).Take();
}

HttpResponse StatusPage::Handle(const HttpRequest& request) {
  if (auto refused = Refuse(request)) return *std::move(refused);
  if (const WebAsset* asset = FindAsset(request.path)) {
    if (!IsRead(request.method)) return NotAllowed("GET, HEAD");
    return {.content_type = std::string(asset->content_type),
            .body = std::string(asset->body),
            .headers = {}};
  }
  const bool has_login = !parts_.access->is_open();
  if (has_login && request.path == "/login") return Login(request);
  if (has_login && request.path == "/logout") {
    return request.method == "POST" ? Logout() : NotAllowed("POST");
  }
  if (!IsRead(request.method)) return NotAllowed("GET, HEAD");
  const auto visitor = parts_.access->Admit(TokenOf(request), request.peer);
  if (absl::IsUnauthenticated(visitor.status())) {
    const bool sent = !TokenOf(request).empty();
    return LoginForm(401, sent ? "The token is not known, or its time is over." : "");
  }
  if (absl::IsResourceExhausted(visitor.status())) {
    return Problem(429, "Too many requests from here. Wait a moment.");
  }
  if (!visitor.ok()) return Problem(403, std::string(visitor.status().message()));
  if (request.path == "/") return Overview(request, *visitor);
  constexpr std::string_view kJobs = "/jobs/";
  if (request.path.starts_with(kJobs)) return JobPage(request.path.substr(kJobs.size()), *visitor);
  return Problem(404, "There is no such page.");
}

// A page of another site can send requests here from the user's browser: by a form, or by a name of
// its own that it points at this address.
std::optional<HttpResponse> StatusPage::Refuse(const HttpRequest& request) const {
  const std::string host(request.Header("host"));
  if (parts_.is_loopback && parts_.access->is_open()) {
    const std::string with_port = IsHostPort(host) ? host : absl::StrCat(host, ":80");
    if (!IsLoopback(with_port)) {
      return Problem(421,
                     "This page is for this machine: open it at localhost or 127.0.0.1, or "
                     "through a forwarded port.");
    }
  }
  const std::string_view site = request.Header("sec-fetch-site");
  if (!IsRead(request.method) && !site.empty() && site != "same-origin" && site != "none") {
    return Problem(403, "The request came from another site.");
  }
  return std::nullopt;
}

std::string StatusPage::CookieName() const {
  // The prefix makes browsers keep other hosts' and unencrypted cookies out.
  return parts_.is_encrypted ? "__Host-fsdp_token" : "fsdp_token";
}

std::string StatusPage::TokenOf(const HttpRequest& request) const {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view authorization = request.Header("authorization");
  if (authorization.starts_with(kBearer)) return std::string(authorization.substr(kBearer.size()));
  return CookieValue(request.Header("cookie"), CookieName());
}

HttpResponse StatusPage::Login(const HttpRequest& request) const {
  if (IsRead(request.method)) return LoginForm(200, "");
  if (request.method != "POST") return NotAllowed("GET, HEAD, POST");
  const auto fields = FormFields(request.body);
  const auto token = fields.find("token");
  const std::string given = token == fields.end() ? "" : token->second;
  const auto visitor = parts_.access->Admit(given, request.peer);
  if (absl::IsResourceExhausted(visitor.status())) {
    return LoginForm(429, "Too many attempts from here. Wait a moment.");
  }
  if (absl::IsPermissionDenied(visitor.status())) {
    return LoginForm(403, std::string(visitor.status().message()));
  }
  // What a cookie cannot hold is no token.
  const bool fits = std::all_of(given.begin(), given.end(), [](char c) {
    return c > ' ' && c < 0x7f && c != ';' && c != ',' && c != '"' && c != '\\';
  });
  if (!visitor.ok() || !fits) return LoginForm(401, "The token is not known, or its time is over.");
  HttpResponse response = Redirect("/");
  response.headers.emplace_back(
      "Set-Cookie", absl::StrCat(CookieName(), "=", given, "; Path=/; HttpOnly; SameSite=Strict",
                                 parts_.is_encrypted ? "; Secure" : ""));
  return response;
}

HttpResponse StatusPage::Logout() const {
  HttpResponse response = Redirect("/login");
  response.headers.emplace_back(
      "Set-Cookie", absl::StrCat(CookieName(), "=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0",
                                 parts_.is_encrypted ? "; Secure" : ""));
  return response;
}

HttpResponse StatusPage::LoginForm(int status, const std::string& problem) const {
  Html main;
  main.Markup("<h1>Log in</h1>\n");
  if (!problem.empty()) {
    main.Markup("<p class=\"warning\" role=\"alert\">").Text(problem).Markup("</p>\n");
  }
  main.Markup(
      "<form class=\"login\" method=\"post\" action=\"/login\">\n<label>Token of a viewer "
      "<input type=\"password\" name=\"token\" required maxlength=\"512\" "
      "autocomplete=\"current-password\" autofocus></label>\n<button>Log in</button>\n</form>\n");
  HttpResponse response;
  response.status = status;
  response.body = PageAround("Log in", main, /*is_live=*/false, /*has_logout=*/false);
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse StatusPage::Problem(int status, const std::string& text) const {
  Html main;
  main.Markup("<h1>").Text(StatusLine(status)).Markup("</h1>\n<p>").Text(text);
  main.Markup("</p>\n<p><a href=\"/\">All jobs</a></p>\n");
  HttpResponse response;
  response.status = status;
  response.body = PageAround(StatusLine(status), main, /*is_live=*/false, /*has_logout=*/false);
  return response;
}

std::shared_ptr<const ClusterSnapshot> StatusPage::Cluster() {
  const std::lock_guard lock(cluster_mutex_);
  const MonotonicTime now = parts_.clock->Now();
  if (cluster_ == nullptr || now - cluster_time_ >= absl::Seconds(1)) {
    cluster_ = std::make_shared<const ClusterSnapshot>(parts_.read_cluster());
    cluster_time_ = now;
  }
  return cluster_;
}

HttpResponse StatusPage::Overview(const HttpRequest& request, const Visitor& visitor) {
  OverviewView view;
  view.filter = FilterOf(FormFields(request.query));
  view.cluster = Cluster();
  view.now = parts_.clock->WallNow();
  const auto is_seen = [&](const v1::Job& job) { return visitor.sees_queue(QueueOf(job)); };
  view.sees_job = [&](const std::string& name) {
    const JobSnapshot job = parts_.directory->Find(JobIdFromName(name));
    return job != nullptr && is_seen(*job);
  };
  view.jobs = parts_.directory->List(view.filter.before, kListedJobs + 1, [&](const v1::Job& job) {
    return is_seen(job) && Matches(view.filter, job);
  });
  for (ListedJob& listed : parts_.directory->List(0, kQueuedJobs, [&](const v1::Job& job) {
         return job.state() == v1::JOB_STATE_QUEUED && is_seen(job);
       })) {
    view.queued.push_back(std::move(listed.job));
  }
  std::sort(view.queued.begin(), view.queued.end(), [](const auto& a, const auto& b) {
    return std::pair(QueueOf(*a), a->queue_position()) <
           std::pair(QueueOf(*b), b->queue_position());
  });
  return {
      .body = PageAround("Status", OverviewMain(view), /*is_live=*/true, !parts_.access->is_open()),
      .headers = {}};
}

HttpResponse StatusPage::JobPage(const std::string& id, const Visitor& visitor) {
  const JobSnapshot job = parts_.directory->Find(JobId(id));
  // Whoever does not see a queue does not learn what is in it.
  if (job == nullptr || !visitor.sees_queue(QueueOf(*job))) {
    return Problem(404, absl::StrCat("There is no job '", id.substr(0, 100), "'."));
  }
  const auto history = histories_.Read(JobIdOf(*job));
  if (!history.ok()) {
    LOG_WARNING("status page: %s: %s", job->name(), std::string(history.status().message()));
    return Problem(503, "The job's past cannot be read now; the coordinator's log says why.");
  }
  return {.body = PageAround(id, JobMain(*job, *history, parts_.clock->WallNow()),
                             /*is_live=*/true, !parts_.access->is_open()),
          .headers = {}};
}

}  // namespace fsdp::coordinator
