#include "coordinator/schedule/gang_scheduler.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fsdp::coordinator {
namespace {

constexpr size_t kHoldersNamed = 3;

// "node-9" before "node-10".
bool NaturalLess(const std::string& a, const std::string& b) {
  size_t i = 0;
  size_t j = 0;
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      size_t end_i = i;
      size_t end_j = j;
      while (end_i < a.size() && is_digit(a[end_i])) ++end_i;
      while (end_j < b.size() && is_digit(b[end_j])) ++end_j;
      while (i < end_i && a[i] == '0') ++i;
      while (j < end_j && b[j] == '0') ++j;
      if (end_i - i != end_j - j) return end_i - i < end_j - j;
      if (const int order = a.compare(i, end_i - i, b, j, end_j - j); order != 0) return order < 0;
      i = end_i;
      j = end_j;
      continue;
    }
    if (a[i] != b[j]) return a[i] < b[j];
    ++i;
    ++j;
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;
}

struct NaturalOrder {
  bool operator()(const std::string& a, const std::string& b) const { return NaturalLess(a, b); }
};

using Hosts = std::map<std::string, std::vector<const WorkerView*>, NaturalOrder>;

bool Suits(const Demand& demand, const WorkerView& worker) {
  return worker.device == demand.device && std::find(demand.excluded.begin(), demand.excluded.end(),
                                                     worker.id) == demand.excluded.end();
}

bool IsFree(const WorkerView& worker) { return worker.placeable && worker.held_by.empty(); }

Hosts ByHost(const Demand& demand, const ClusterView& view, bool free_only) {
  Hosts hosts;
  for (const WorkerView& worker : view.workers) {
    if (!Suits(demand, worker)) continue;
    if (free_only ? IsFree(worker) : worker.capacity) hosts[worker.host].push_back(&worker);
  }
  for (auto& [host, workers] : hosts) {
    std::sort(workers.begin(), workers.end(), [](const WorkerView* a, const WorkerView* b) {
      return std::pair(a->device_index, a->id) < std::pair(b->device_index, b->id);
    });
  }
  return hosts;
}

// Workers that it could use: of whole nodes, unless any node will do.
int Room(const Demand& demand, const Hosts& hosts) {
  int nodes = 0;
  int workers = 0;
  for (const auto& [host, list] : hosts) {
    workers += static_cast<int>(list.size());
    nodes += static_cast<int>(list.size()) >= demand.devices_per_node ? 1 : 0;
  }
  return demand.any_node ? workers : nodes * demand.devices_per_node;
}

bool Fits(const Demand& demand, const Hosts& hosts) {
  return Room(demand, hosts) >= demand.world_size();
}

// The largest size that there is room for; spares go before ranks beyond the spec's size.
int SizeFor(const Demand& demand, int room) {
  const int for_ranks = std::max(std::min(room, demand.full_size), room - demand.spares);
  int size = demand.world_size();
  for (const int ranks : demand.sizes) {
    if (ranks <= for_ranks) size = std::max(size, ranks);
  }
  return size;
}

// Whole nodes, or with any_node single workers; beside what is `taken`.
std::vector<WorkerId> SparesFrom(const Demand& demand, const Hosts& hosts,
                                 const std::set<WorkerId>& taken, int count) {
  const std::set<WorkerId> held(demand.held_spares.begin(), demand.held_spares.end());
  const auto is_held = [&](const WorkerId& id) { return held.contains(id); };
  const std::size_t group_size = demand.any_node ? 1 : demand.devices_per_node;
  std::vector<std::vector<WorkerId>> groups;
  for (const auto& [host, list] : hosts) {
    std::vector<WorkerId> workers;
    for (const WorkerView* worker : list) {
      if (!taken.contains(worker->id)) workers.push_back(worker->id);
    }
    if (!demand.any_node && workers.size() < list.size()) continue;
    std::stable_partition(workers.begin(), workers.end(), is_held);
    for (std::size_t i = 0; i + group_size <= workers.size(); i += group_size) {
      const auto first = workers.begin() + static_cast<std::ptrdiff_t>(i);
      groups.emplace_back(first, first + static_cast<std::ptrdiff_t>(group_size));
      if (!demand.any_node) break;
    }
  }
  std::stable_partition(groups.begin(), groups.end(),
                        [&](const auto& group) { return is_held(group.front()); });
  std::vector<WorkerId> spares;
  for (const std::vector<WorkerId>& group : groups) {
    if (spares.size() + group_size > static_cast<std::size_t>(std::max(count, 0))) break;
    spares.insert(spares.end(), group.begin(), group.end());
  }
  return spares;
}

// The last epoch's workers, when each of them is free: ranks stay where they were.
std::optional<Placement> SamePlacement(const Demand& demand, const Hosts& hosts) {
  if (demand.previous.size() != static_cast<size_t>(demand.world_size())) return std::nullopt;
  std::set<WorkerId> available;
  for (const auto& [host, list] : hosts) {
    for (const WorkerView* worker : list) available.insert(worker->id);
  }
  for (const WorkerId& id : demand.previous) {
    if (!available.contains(id)) return std::nullopt;
  }
  return demand.previous;
}

// Hosts that are filled exactly or are the fullest go first, so that empty hosts stay whole for
// others; the ranks are then laid out by host name.
Placement NodePlacement(const Demand& demand, const Hosts& hosts) {
  std::vector<const Hosts::value_type*> candidates;
  for (const auto& host : hosts) {
    if (static_cast<int>(host.second.size()) >= demand.devices_per_node)
      candidates.push_back(&host);
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto* a, const auto* b) {
    return a->second.size() < b->second.size();
  });
  candidates.resize(demand.nodes);
  std::sort(candidates.begin(), candidates.end(),
            [](const auto* a, const auto* b) { return NaturalLess(a->first, b->first); });
  Placement placement;
  for (const auto* host : candidates) {
    for (int i = 0; i < demand.devices_per_node; ++i) placement.push_back(host->second[i]->id);
  }
  return placement;
}

Placement AnyNodePlacement(const Demand& demand, const Hosts& hosts) {
  Placement placement;
  for (const auto& [host, list] : hosts) {
    for (const WorkerView* worker : list) {
      if (placement.size() < static_cast<size_t>(demand.world_size())) {
        placement.push_back(worker->id);
      }
    }
  }
  return placement;
}

std::string Holders(const Demand& demand, const ClusterView& view) {
  std::map<std::string, int> held;
  std::map<std::string, int> unusable;
  for (const WorkerView& worker : view.workers) {
    if (worker.device != demand.device) continue;
    if (!Suits(demand, worker)) {
      ++unusable["excluded after failures"];
    } else if (!worker.held_by.empty()) {
      ++held[worker.held_by];
    } else if (!worker.placeable && !worker.why_not.empty()) {
      ++unusable[worker.why_not];
    }
  }
  std::string text;
  size_t named = 0;
  for (const auto& [job, count] : held) {
    if (named++ == kHoldersNamed) {
      absl::StrAppend(&text, "; ", held.size() - kHoldersNamed, " more jobs hold the rest");
      break;
    }
    absl::StrAppend(&text, "; ", job, " holds ", count);
  }
  for (const auto& [why, count] : unusable) absl::StrAppend(&text, "; ", count, " ", why);
  return text;
}

// Why not even an idle cluster could run it: too few devices, or enough that lie on the wrong
// hosts.
std::string TooSmall(const Demand& demand, const ClusterView& view, int total) {
  if (total < demand.world_size()) return ", the cluster is too small for it";
  const Hosts hosts = ByHost(demand, view, /*free_only=*/false);
  const auto fitting = std::count_if(hosts.begin(), hosts.end(), [&](const auto& host) {
    return static_cast<int>(host.second.size()) >= demand.devices_per_node;
  });
  return absl::StrCat(", enough devices but on too few hosts: ", demand.nodes,
                      demand.nodes == 1 ? " host" : " hosts", " with ", demand.devices_per_node,
                      " each needed (resources.nodes x devicesPerNode), ", fitting, " of ",
                      hosts.size(), hosts.size() == 1 ? " host has" : " hosts have",
                      " that many; resources.anyNode: true takes devices wherever they are");
}

std::string WaitReason(const Demand& demand, const ClusterView& view, bool beyond_capacity) {
  int free = 0;
  int total = 0;
  for (const WorkerView& worker : view.workers) {
    if (!Suits(demand, worker) || !worker.capacity) continue;
    ++total;
    free += IsFree(worker) ? 1 : 0;
  }
  const std::string shape =
      demand.any_node || demand.world_size() == 1
          ? ""
          : absl::StrCat(" (", demand.nodes, demand.nodes == 1 ? " node x " : " nodes x ",
                         demand.devices_per_node, ")");
  std::string reason = absl::StrCat("needs ", demand.world_size(), " ", DeviceWord(demand.device),
                                    demand.world_size() == 1 ? " worker" : " workers", shape, ": ",
                                    free, " free of ", total);
  if (beyond_capacity) absl::StrAppend(&reason, TooSmall(demand, view, total));
  return reason + Holders(demand, view);
}

std::string BehindReason(const Demand& demand, const std::string& who) {
  return absl::StrCat(NeedsText(demand), demand.world_size() == 1 ? ", which is" : ", which are",
                      " free, but waits behind ", who);
}

}  // namespace

const char* LabelOf(WaitKind kind) {
  switch (kind) {
    case WaitKind::kBeyondCapacity:
      return "beyond_capacity";
    case WaitKind::kBehindOthers:
      return "behind_others";
    case WaitKind::kQuota:
      return "quota";
    case WaitKind::kYielding:
      return "yielding";
    case WaitKind::kUnknownQueue:
      return "unknown_queue";
    case WaitKind::kDevices:
      break;
  }
  return "insufficient_devices";
}

void Hold(ClusterView& view, const std::vector<WorkerId>& workers, const std::string& job) {
  const std::set<WorkerId> taken(workers.begin(), workers.end());
  for (WorkerView& worker : view.workers) {
    if (taken.contains(worker.id)) worker.held_by = job;
  }
}

ClusterView WithoutHoldings(ClusterView view, const JobId& job) {
  const std::string name = absl::StrCat("jobs/", job.value());
  for (WorkerView& worker : view.workers) {
    if (worker.held_by == name) worker.held_by.clear();
  }
  return view;
}

PlacementDecision PlaceItem(const QueuedDemand& item, const ClusterView& view) {
  const bool holds = item.recovering || !item.demand.held_spares.empty();
  return PlaceGang(item.demand, holds ? WithoutHoldings(view, item.entry.job) : view);
}

PlacementDecision PlaceGang(const Demand& demand, const ClusterView& view) {
  PlacementDecision decision;
  const Hosts free = ByHost(demand, view, /*free_only=*/true);
  if (Fits(demand, free)) {
    const int room = std::min(Room(demand, free), std::max(demand.at_most, demand.world_size()));
    Demand sized = demand;
    sized.Accept(SizeFor(demand, room));
    decision.placement = SamePlacement(sized, free);
    if (!decision.placement) {
      decision.placement =
          demand.any_node ? AnyNodePlacement(sized, free) : NodePlacement(sized, free);
    }
    const std::set<WorkerId> taken(decision.placement->begin(), decision.placement->end());
    decision.spares =
        SparesFrom(demand, free, taken, std::min(demand.spares, room - sized.world_size()));
    return decision;
  }
  decision.beyond_capacity = !Fits(demand, ByHost(demand, view, /*free_only=*/false));
  if (decision.beyond_capacity) decision.kind = WaitKind::kBeyondCapacity;
  decision.reason = WaitReason(demand, view, decision.beyond_capacity);
  return decision;
}

std::vector<WorkerId> PickSpares(const Demand& demand, const ClusterView& view, int count) {
  return SparesFrom(demand, ByHost(demand, view, /*free_only=*/true), {}, count);
}

std::vector<QueueDecision> ScheduleQueue(std::vector<QueuedDemand> queue, ClusterView view) {
  std::sort(queue.begin(), queue.end(), [](const QueuedDemand& a, const QueuedDemand& b) {
    return GoesBefore(a.entry, b.entry);
  });
  // `view` also counts as held what is kept for recovering jobs.
  ClusterView unreserved = view;
  std::map<v1::DeviceType, std::string> blocked_by;
  std::map<v1::DeviceType, std::string> reserved_for;
  std::vector<QueueDecision> decisions;
  for (const QueuedDemand& item : queue) {
    const std::string job = absl::StrCat("jobs/", item.entry.job.value());
    const v1::DeviceType device = item.demand.device;
    PlacementDecision& decision =
        decisions.emplace_back(QueueDecision{item.entry.job, {}}).decision;
    decision = PlaceItem(item, view);
    const auto blocker = blocked_by.find(device);
    if (blocker != blocked_by.end()) {
      if (decision.placement) decision.reason = BehindReason(item.demand, blocker->second);
      decision.behind = true;
      if (!decision.beyond_capacity) decision.kind = WaitKind::kBehindOthers;
      decision.placement.reset();
      continue;
    }
    if (decision.placement) {
      Hold(view, *decision.placement, job);
      Hold(view, decision.spares, job);
      if (item.recovering) {
        reserved_for.emplace(device, job + ", which is recovering");
        decision.placement.reset();
      } else {
        Hold(unreserved, *decision.placement, job);
        Hold(unreserved, decision.spares, job);
      }
      continue;
    }
    if (decision.beyond_capacity) continue;
    blocked_by[device] = item.recovering ? job + ", which is recovering" : job;
    const auto reserver = reserved_for.find(device);
    if (reserver != reserved_for.end() && PlaceGang(item.demand, unreserved).placement) {
      decision.reason = BehindReason(item.demand, reserver->second);
      decision.behind = true;
      decision.kind = WaitKind::kBehindOthers;
    }
  }
  return decisions;
}

}  // namespace fsdp::coordinator
