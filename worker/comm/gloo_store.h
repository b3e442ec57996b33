#ifndef FSDPCTL_WORKER_COMM_GLOO_STORE_H_
#define FSDPCTL_WORKER_COMM_GLOO_STORE_H_

// Our rendezvous as gloo's, for gloo_communicator.cc alone.

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/comm/rendezvous_store.h"

namespace fsdp {

// Carries our status through gloo's frames.
struct StoreError : std::runtime_error {
  explicit StoreError(const absl::Status& status)
      : std::runtime_error(std::string(status.message())), status(status) {}
  absl::Status status;
};

class StoreAdapter final : public gloo::rendezvous::Store {
 public:
  StoreAdapter(RendezvousStore& store, std::string prefix, absl::Duration timeout)
      : store_(store), prefix_(std::move(prefix)), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const absl::Status status = store_.Put(prefix_ + key, std::string(data.begin(), data.end()));
    if (!status.ok()) throw StoreError(status);
  }
  std::vector<char> get(const std::string& key) override {
    absl::StatusOr<std::string> value = store_.Get(prefix_ + key, timeout_);
    if (!value.ok()) {
      throw StoreError(
          Annotate(value.status(), absl::StrCat("rank ", key, " did not come to the rendezvous")));
    }
    return {value->begin(), value->end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& /*timeout*/) override {
    wait(keys);
  }

 private:
  RendezvousStore& store_;
  std::string prefix_;
  absl::Duration timeout_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_GLOO_STORE_H_
