#ifndef FSDPCTL_COORDINATOR_QUEUE_JOB_QUEUE_H_
#define FSDPCTL_COORDINATOR_QUEUE_JOB_QUEUE_H_

// The order in which jobs wait: priority, then submission. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "proto/support/ids.h"

namespace fsdp::coordinator {

struct QueueEntry {
  JobId job;
  std::string queue;
  std::int32_t priority = 0;
  // Order of submission.
  std::int64_t position = 0;
};

// Higher priority first, then older first.
bool GoesBefore(const QueueEntry& a, const QueueEntry& b);
void SortQueue(std::vector<QueueEntry>& entries);

// Positions from 1 within each entry's own queue; `entries` must be sorted.
std::vector<std::int32_t> QueuePositions(const std::vector<QueueEntry>& entries);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_QUEUE_JOB_QUEUE_H_
