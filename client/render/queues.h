#ifndef FSDPCTL_CLIENT_RENDER_QUEUES_H_
#define FSDPCTL_CLIENT_RENDER_QUEUES_H_

// Queues, arrays and maintenance as people read them. Thread-safe (no state).

#include <string>
#include <vector>

#include "client/render/style.h"
#include "fsdp/v1/cluster_service.pb.h"
#include "fsdp/v1/job_record.pb.h"
#include "fsdp/v1/queue.pb.h"

namespace fsdp {

// A line for each queue and type of device; a type that a queue neither has nor wants is left out.
std::string QueueTable(const std::vector<v1::Queue>& queues, const Style& style);

// Weight, usage by device, and what its jobs may take and are due.
std::string QueueDescription(const v1::Queue& queue, const Style& style);

// "batch: cpu 6 of quota 2 (max 8), 4 borrowed, 1.50 of its fair share"; empty for a queue that is
// not configured.
std::string QueueFacts(const v1::Queue& queue);

// "hold since 2026-12-01 05:00:00 by ann: new switches"; empty while there is none.
std::string MaintenanceFacts(const v1::Maintenance& maintenance);

// "2/6 done, 2 run"; empty for a job that is no array.
std::string ArrayFacts(const v1::Job& job);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_RENDER_QUEUES_H_
