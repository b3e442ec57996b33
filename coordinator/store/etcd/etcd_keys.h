#ifndef FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_KEYS_H_
#define FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_KEYS_H_

// Where everything is, below the prefix. Numbers are written so that keys sort as they do. Version
// 1 of the layout; a change adds a version. Pure.
//
//   leader                          who leads; held by its lease
//   format, sequence, commit, staged/N   of FencedLog
//   cluster, workers/W, join-tokens/T, jobs/J, tails/J
//   attempts/J/N, rendezvous/J/EPOCH/NAME, checkpoints/J/STEP
//   events/J/LAST, logs/J/LAST, metrics/J/LAST    chunks, by the position of their last record

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/support/ids.h"

namespace fsdp::coordinator {

class EtcdKeys {
 public:
  explicit EtcdKeys(const std::string& prefix) : root_(prefix + "/") {}

  [[nodiscard]] std::string Leader() const { return root_ + "leader"; }
  [[nodiscard]] std::string Format() const { return root_ + "format"; }
  [[nodiscard]] std::string Sequence() const { return root_ + "sequence"; }
  [[nodiscard]] std::string Commit() const { return root_ + "commit"; }
  [[nodiscard]] std::string Staged() const { return root_ + "staged/"; }
  [[nodiscard]] std::string Staged(std::int64_t part) const { return Staged() + Number(part); }
  [[nodiscard]] std::string Cluster() const { return root_ + "cluster"; }
  [[nodiscard]] std::string Workers() const { return root_ + "workers/"; }
  [[nodiscard]] std::string Worker(std::string_view id) const { return Workers() + Escaped(id); }
  [[nodiscard]] std::string JoinTokens() const { return root_ + "join-tokens/"; }
  [[nodiscard]] std::string JoinToken(std::string_view id) const {
    return JoinTokens() + Escaped(id);
  }
  [[nodiscard]] std::string Jobs() const { return root_ + "jobs/"; }
  [[nodiscard]] std::string Job(const JobId& job) const { return Jobs() + Escaped(job.value()); }
  [[nodiscard]] std::string Tails() const { return root_ + "tails/"; }
  [[nodiscard]] std::string Tails(const JobId& job) const { return Tails() + Escaped(job.value()); }

  // What a job has several of. A kind's keys of all jobs, of one, and one of them.
  static constexpr const char* kKinds[] = {"attempts", "rendezvous", "checkpoints",
                                           "events",   "logs",       "metrics"};
  [[nodiscard]] std::string All(std::string_view kind) const {
    return root_ + std::string(kind) + "/";
  }
  [[nodiscard]] std::string Of(std::string_view kind, const JobId& job) const {
    return All(kind) + Escaped(job.value()) + "/";
  }
  [[nodiscard]] std::string Of(std::string_view kind, const JobId& job, std::int64_t number) const {
    return Of(kind, job) + Number(number);
  }
  [[nodiscard]] std::string Rendezvous(const JobId& job, Epoch epoch, std::string_view name) const {
    return Of("rendezvous", job, epoch.value()) + "/" + Escaped(name);
  }

  // The parts of a key, for reading: "a/b/c" below `above`, unescaped.
  static std::string Unescaped(std::string_view text);
  // Of the last component.
  static std::int64_t NumberOf(std::string_view key);
  // The end of the range of all keys that begin with `prefix`.
  static std::string EndOf(std::string prefix);

 private:
  static std::string Number(std::int64_t number);
  // Letters, digits, '.', '_' and '-' stay; others become %XX.
  static std::string Escaped(std::string_view text);

  const std::string root_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_KEYS_H_
