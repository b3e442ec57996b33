#include "worker/profile/counters/launch_order.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace fsdp {
namespace {

using Families = std::vector<std::optional<KernelFamily>>;
using Launches = std::vector<ExpectedLaunch>;
constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);
// So many graph launches in the expected order are no coincidence; fewer where a step has fewer.
constexpr std::size_t kMinStretch = 5;

// One entry for each kernel; empty when a number is unknown.
std::optional<Families> Expand(const Launches& launches) {
  Families families;
  for (const ExpectedLaunch& launch : launches) {
    if (launch.num_kernels == ExpectedLaunch::kUnknownKernels) return std::nullopt;
    families.insert(families.end(), static_cast<std::size_t>(launch.num_kernels), launch.family);
  }
  return families;
}

// The family of all launches that run kernels, if it is one.
std::optional<KernelFamily> OnlyFamily(const Launches& launches) {
  std::optional<KernelFamily> family;
  for (const ExpectedLaunch& launch : launches) {
    if (launch.num_kernels == 0) continue;
    if (!launch.family || (family && *family != *launch.family)) return std::nullopt;
    family = launch.family;
  }
  return family;
}

// A graph launch that a step makes, with the launches since the one before it.
struct Place {
  Families kernels;
  Launches before;
};

// The places of a step in order; what follows the last graph comes before the first.
std::vector<Place> PlacesOf(std::span<const ExpectedRun> step) {
  std::vector<Place> places;
  Launches between;
  for (const ExpectedRun& run : step) {
    if (!run.is_graph) {
      between.insert(between.end(), run.launches.begin(), run.launches.end());
    } else {
      places.push_back(
          {Expand(run.launches).value_or(Families()), std::exchange(between, Launches())});
    }
  }
  if (!places.empty()) {
    Launches& before = places.front().before;
    before.insert(before.begin(), between.begin(), between.end());
  }
  return places;
}

// A graph launch as recorded, with the kernels since the one before it; indices of records.
struct GraphRun {
  std::uint32_t graph = 0;
  std::vector<std::size_t> kernels;
  std::vector<std::size_t> before;
  std::size_t place = kNowhere;
};

struct Recorded {
  std::vector<GraphRun> runs;
  std::vector<std::size_t> after_last;
};

// A launch ends where another graph begins or a node comes again. The call's correlation does not
// tell: CUPTI 13.0 gives graph launches wrong ones after its first session.
Recorded SplitRecords(std::span<const KernelRecord> records) {
  Recorded recorded;
  std::vector<std::size_t> between;
  std::set<std::uint64_t> nodes;
  bool open = false;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const KernelRecord& record = records[i];
    if (record.is_copy) continue;
    if (record.graph == 0) {
      between.push_back(i);
      open = false;
      continue;
    }
    if (!open || recorded.runs.back().graph != record.graph || nodes.contains(record.graph_node)) {
      recorded.runs.push_back(
          {record.graph, {}, std::exchange(between, std::vector<std::size_t>())});
      nodes.clear();
      open = true;
    }
    nodes.insert(record.graph_node);
    recorded.runs.back().kernels.push_back(i);
  }
  recorded.after_last = std::move(between);
  return recorded;
}

// Consecutive graph launches as recorded, and where in the expected order they fit.
struct Stretch {
  std::size_t length = 0;
  std::size_t place = 0;       // of the first
  bool unique_kernels = true;  // no other place as long gives them other families
  bool unique_place = true;
};

class Matcher {
 public:
  Matcher(std::span<const KernelRecord> records, std::span<const ExpectedRun> step)
      : records_(records), places_(PlacesOf(step)), recorded_(SplitRecords(records)) {
    match_.families.resize(records.size());
    for (const KernelRecord& record : records) {
      if (record.graph != 0 && !record.is_copy) nodes_seen_[record.graph].insert(record.graph_node);
    }
  }

  LaunchMatch Match() {
    LearnGraphs();
    LearnNodes();
    FindPlaces();
    for (std::size_t i = 0; i < recorded_.runs.size(); ++i) {
      AssignGraph(recorded_.runs[i]);
      AssignBetween(i);
    }
    match_.unmatched += static_cast<std::int64_t>(recorded_.after_last.size());
    return std::move(match_);
  }

 private:
  [[nodiscard]] const Place& PlaceAt(std::size_t index) const {
    return places_[index % places_.size()];
  }

  // A graph that is known fits where its kernels do, whole or not; another one must be whole, in
  // this launch and by all of its nodes that were ever seen.
  [[nodiscard]] bool Fits(const GraphRun& run, const Place& place) const {
    const auto known = graphs_.find(run.graph);
    if (known != graphs_.end()) return known->second == place.kernels;
    return run.kernels.size() == place.kernels.size() &&
           nodes_seen_.at(run.graph).size() == place.kernels.size();
  }

  [[nodiscard]] std::size_t LengthAt(std::size_t first, std::size_t place) const {
    std::size_t length = 0;
    while (first + length < recorded_.runs.size() &&
           Fits(recorded_.runs[first + length], PlaceAt(place + length))) {
      ++length;
    }
    return length;
  }

  [[nodiscard]] bool SameKernels(std::size_t place, std::size_t other, std::size_t length) const {
    for (std::size_t i = 0; i < std::min(length, places_.size()); ++i) {
      if (PlaceAt(place + i).kernels != PlaceAt(other + i).kernels) return false;
    }
    return true;
  }

  [[nodiscard]] Stretch LongestFrom(std::size_t first) const {
    Stretch best;
    for (std::size_t place = 0; place < places_.size(); ++place) {
      const std::size_t length = LengthAt(first, place);
      if (length > best.length) {
        best = {length, place};
      } else if (length == best.length && length > 0) {
        best.unique_place = false;
        best.unique_kernels = best.unique_kernels && SameKernels(place, best.place, length);
      }
    }
    return best;
  }

  // A launch that lost records may look like another graph's and make a short stretch with its
  // neighbours; the longer one that begins within it is right. A whole step is beyond doubt.
  [[nodiscard]] bool IsOutdone(std::size_t first, std::size_t length) const {
    if (length >= places_.size()) return false;
    for (std::size_t i = 1; i < length; ++i) {
      if (LongestFrom(first + i).length > length) return true;
    }
    return false;
  }

  void LearnGraphs() {
    const std::size_t enough = std::min(kMinStretch, places_.size());
    for (std::size_t first = 0; first < recorded_.runs.size() && !places_.empty();) {
      const Stretch stretch = LongestFrom(first);
      if (stretch.length < enough || !stretch.unique_kernels || IsOutdone(first, stretch.length)) {
        ++first;
        continue;
      }
      // Records are lost at a stretch's ends, so what stands there may be less than it looks.
      for (std::size_t i = 1; i + 1 < stretch.length; ++i) {
        graphs_.try_emplace(recorded_.runs[first + i].graph, PlaceAt(stretch.place + i).kernels);
      }
      first += stretch.length;
    }
  }

  // Of launches that are whole: the family of each node.
  void LearnNodes() {
    for (const GraphRun& run : recorded_.runs) {
      const auto known = graphs_.find(run.graph);
      if (known == graphs_.end() || known->second.size() != run.kernels.size()) continue;
      for (std::size_t i = 0; i < run.kernels.size(); ++i) {
        nodes_.try_emplace(NodeOf(run.kernels[i]), known->second[i]);
      }
    }
  }

  // Places are for what lies between graphs. One stretch after another is laid along the order.
  void FindPlaces() {
    bool found_before = false;
    for (std::size_t first = 0; first < recorded_.runs.size() && !places_.empty();) {
      if (!graphs_.contains(recorded_.runs[first].graph)) {
        ++first;
        continue;
      }
      const Stretch stretch = LongestFrom(first);
      if (stretch.length == 0) {
        ++first;
        continue;
      }
      for (std::size_t i = 0; i < stretch.length && stretch.unique_place; ++i) {
        recorded_.runs[first + i].place = (stretch.place + i) % places_.size();
      }
      if (std::exchange(found_before, true)) ++match_.resyncs;
      first += stretch.length;
    }
  }

  using Node = std::pair<std::uint32_t, std::uint64_t>;
  [[nodiscard]] Node NodeOf(std::size_t record) const {
    return {records_[record].graph, records_[record].graph_node};
  }

  void Assign(std::size_t record, std::optional<KernelFamily> family) {
    match_.families[record] = family;
    ++(family ? match_.matched : match_.unmatched);
  }

  void AssignGraph(const GraphRun& run) {
    for (const std::size_t record : run.kernels) {
      const auto found = nodes_.find(NodeOf(record));
      Assign(record, found == nodes_.end() ? std::nullopt : found->second);
    }
  }

  // Kernels between run `index` and the one before it, if both are where they should be.
  void AssignBetween(std::size_t index) {
    const GraphRun& run = recorded_.runs[index];
    const std::size_t previous = index == 0 ? kNowhere : recorded_.runs[index - 1].place;
    const bool in_order = run.place != kNowhere && previous != kNowhere &&
                          (previous + 1) % places_.size() == run.place;
    Families families(run.before.size());
    if (in_order) {
      const Launches& launches = places_[run.place].before;
      const std::optional<Families> expected = Expand(launches);
      if (expected && expected->size() == run.before.size()) {
        families = *expected;
      } else if (!expected) {
        std::fill(families.begin(), families.end(), OnlyFamily(launches));
      }
    }
    for (std::size_t i = 0; i < run.before.size(); ++i) Assign(run.before[i], families[i]);
  }

  const std::span<const KernelRecord> records_;
  const std::vector<Place> places_;
  Recorded recorded_;
  // Of each recorded graph.
  std::map<std::uint32_t, std::set<std::uint64_t>> nodes_seen_;
  std::map<std::uint32_t, Families> graphs_;
  std::map<Node, std::optional<KernelFamily>> nodes_;
  LaunchMatch match_;
};

// A stream without graphs.
LaunchMatch MatchWithoutGraphs(std::span<const KernelRecord> records, const Launches& launches,
                               bool from_step_begin) {
  LaunchMatch match;
  match.families.resize(records.size());
  const std::optional<KernelFamily> only = OnlyFamily(launches);
  const Families expected = Expand(launches).value_or(Families());
  const auto num_kernels = static_cast<std::size_t>(std::count_if(
      records.begin(), records.end(), [](const KernelRecord& record) { return !record.is_copy; }));
  const bool whole_steps =
      from_step_begin && !expected.empty() && num_kernels % expected.size() == 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].is_copy) continue;
    if (only) {
      match.families[i] = only;
    } else if (whole_steps && records[i].graph == 0) {
      match.families[i] = expected[next++ % expected.size()];
    }
    ++(match.families[i] ? match.matched : match.unmatched);
  }
  return match;
}

}  // namespace

LaunchMatch MatchLaunches(std::span<const KernelRecord> records, std::span<const ExpectedRun> step,
                          bool from_step_begin) {
  const bool has_graphs =
      std::any_of(step.begin(), step.end(), [](const ExpectedRun& run) { return run.is_graph; });
  LaunchMatch match;
  if (has_graphs) {
    match = Matcher(records, step).Match();
  } else {
    Launches launches;
    for (const ExpectedRun& run : step) {
      launches.insert(launches.end(), run.launches.begin(), run.launches.end());
    }
    match = MatchWithoutGraphs(records, launches, from_step_begin);
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].is_copy) match.families[i] = KernelFamily::kCopy;
  }
  return match;
}

}  // namespace fsdp
