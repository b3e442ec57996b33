#include "coordinator/queue/job_queue.h"

#include <algorithm>
#include <map>

namespace fsdp::coordinator {

bool GoesBefore(const QueueEntry& a, const QueueEntry& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  return a.position < b.position;
}

void SortQueue(std::vector<QueueEntry>& entries) {
  std::sort(entries.begin(), entries.end(), GoesBefore);
}

std::vector<std::int32_t> QueuePositions(const std::vector<QueueEntry>& entries) {
  std::map<std::string, std::int32_t> last;
  std::vector<std::int32_t> positions;
  positions.reserve(entries.size());
  for (const QueueEntry& entry : entries) positions.push_back(++last[entry.queue]);
  return positions;
}

}  // namespace fsdp::coordinator
