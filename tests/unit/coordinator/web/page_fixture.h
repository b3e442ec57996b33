#ifndef FSDPCTL_TESTS_UNIT_COORDINATOR_WEB_PAGE_FIXTURE_H_
#define FSDPCTL_TESTS_UNIT_COORDINATOR_WEB_PAGE_FIXTURE_H_

// A status page over a directory and a store in memory; nothing listens.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/store/memory_store.h"
#include "coordinator/store/resource_names.h"
#include "coordinator/web/status_page.h"
#include "tests/fakes/fake_clock.h"

namespace fsdp::coordinator {

class StatusPageTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(OpenAccess()); }

  static std::unique_ptr<PageAccess> OpenAccess() { return std::make_unique<OpenPageAccess>(); }

  void Open(std::unique_ptr<PageAccess> access, bool is_encrypted = false) {
    access_ = std::move(access);
    StatusPageParts parts;
    parts.clock = &clock_;
    parts.directory = &directory_;
    parts.store = &store_;
    parts.access = access_.get();
    parts.read_cluster = [this] {
      ++cluster_reads_;
      return cluster_;
    };
    parts.is_encrypted = is_encrypted;
    parts.is_loopback = true;
    page_ = std::make_unique<StatusPage>(std::move(parts));
  }

  void Publish(v1::Job job) {
    job.set_revision(++revision_);
    records::JobRecord record;
    *record.mutable_job() = job;
    record.set_position(++position_);
    StoreBatch batch;
    batch.jobs.push_back(record);
    store_.Write(std::move(batch), nullptr);
    directory_.Publish(std::make_shared<const v1::Job>(std::move(job)), position_);
  }

  static v1::Job NewJob(const std::string& id, v1::JobState state,
                        const std::string& queue = "default") {
    v1::Job job;
    job.set_name("jobs/" + id);
    job.set_state(state);
    job.mutable_spec()->mutable_spec()->set_queue(queue);
    return job;
  }

  static HttpRequest Get(const std::string& path, const std::string& query = "") {
    HttpRequest request;
    request.method = "GET";
    request.path = path;
    request.query = query;
    request.headers["host"] = "127.0.0.1:7080";
    request.peer = "127.0.0.1";
    return request;
  }
  HttpResponse Ask(const HttpRequest& request) { return page_->Handle(request); }
  std::string Body(const std::string& path, const std::string& query = "") {
    const HttpResponse response = Ask(Get(path, query));
    EXPECT_EQ(response.status, 200) << response.body;
    return response.body;
  }

  FakeClock clock_;
  JobDirectory directory_;
  MemoryStore store_;
  ClusterSnapshot cluster_;
  int cluster_reads_ = 0;
  std::unique_ptr<PageAccess> access_;
  std::unique_ptr<StatusPage> page_;

 private:
  std::int64_t revision_ = 0;
  std::int64_t position_ = 0;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_TESTS_UNIT_COORDINATOR_WEB_PAGE_FIXTURE_H_
