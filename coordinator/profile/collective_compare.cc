#include "coordinator/profile/collective_compare.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fsdp::coordinator {
namespace {

using Records = std::map<std::int64_t, const v1::CollectiveRecord*>;  // by sequence

std::string NameOf(const v1::CollectiveRecord& record) {
  return absl::StrCat(record.operation(), record.unit().empty() ? "" : " ", record.unit());
}

std::string FullName(const v1::CollectiveRecord& record) {
  return absl::StrCat(NameOf(record), ", sequence ", record.sequence());
}

// What must be the same on every rank.
auto SignatureOf(const v1::CollectiveRecord& record) {
  return std::tuple(record.operation(), record.unit(), record.communicator(), record.bytes(),
                    record.dtype());
}

// "rank 2", "ranks 0, 1 and 3".
std::string RankList(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const char* const before = i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ";
    absl::StrAppend(&text, before, ranks[i]);
  }
  return text;
}

std::string Silence(const std::map<int, std::string>& silent) {
  std::string text;
  for (const auto& [rank, why] : silent) {
    absl::StrAppend(&text, "; rank ", rank, " told nothing: ", why);
  }
  return text;
}

// Where each rank is in one collective.
struct Place {
  std::vector<int> absent;   // not issued, or issued and not begun
  std::vector<int> waiting;  // begun and not over
  std::vector<int> through;
  const v1::CollectiveRecord* any = nullptr;
};

class Comparison {
 public:
  Comparison(const std::map<int, v1::CollectiveDump>& dumps,
             const std::map<int, std::string>& silent)
      : silent_(silent) {
    first_ = 1;
    for (const auto& [rank, dump] : dumps) {
      Records& records = ranks_[rank];
      for (const v1::CollectiveRecord& record : dump.records()) {
        records[record.sequence()] = &record;
      }
      if (records.empty()) continue;
      // Rings reach back unequally far: older ones are known of some ranks only.
      first_ = std::max(first_, records.begin()->first);
      last_ = std::max(last_, records.rbegin()->first);
    }
  }

  CollectiveVerdict Run() const {
    if (ranks_.empty()) return {"no rank told its collectives" + Silence(silent_), {}, ""};
    if (CollectiveVerdict verdict = FirstDifference(); !verdict.message.empty()) return verdict;
    for (std::int64_t sequence = first_; sequence <= last_; ++sequence) {
      if (auto verdict = Waits(sequence); !verdict.message.empty()) return verdict;
    }
    return {absl::StrCat("all ranks that answered have finished the same ", last_, " collectives",
                         Silence(silent_)),
            {},
            ""};
  }

  // Where ranks issued different things; empty where they did not.
  [[nodiscard]] CollectiveVerdict FirstDifference() const {
    for (std::int64_t sequence = first_; sequence <= last_; ++sequence) {
      if (auto verdict = Differs(sequence); !verdict.message.empty()) return verdict;
    }
    return {};
  }

  // Of ranks that nothing holds up.
  [[nodiscard]] std::string Progress() const {
    std::int64_t least = last_;
    for (const auto& [rank, records] : ranks_) {
      least = std::min(least, records.empty() ? 0 : records.rbegin()->first);
    }
    if (last_ == 0) return "no rank has begun a collective yet";
    return absl::StrCat("nothing is pending for long: the ranks' newest collectives are ",
                        least == last_ ? absl::StrCat("sequence ", last_)
                                       : absl::StrCat("sequences ", least, " to ", last_));
  }

 private:
  [[nodiscard]] const v1::CollectiveRecord* At(int rank, std::int64_t sequence) const {
    const Records& records = ranks_.at(rank);
    const auto found = records.find(sequence);
    return found == records.end() ? nullptr : found->second;
  }

  // The smaller party did something else.
  [[nodiscard]] CollectiveVerdict Differs(std::int64_t sequence) const {
    std::map<decltype(SignatureOf(v1::CollectiveRecord())), std::vector<int>> parties;
    for (const auto& [rank, records] : ranks_) {
      if (const auto* record = At(rank, sequence)) parties[SignatureOf(*record)].push_back(rank);
    }
    if (parties.size() < 2) return {};
    const auto smaller = std::min_element(
        parties.begin(), parties.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    const auto larger = std::max_element(
        parties.begin(), parties.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    const std::vector<int>& odd = smaller->second;
    // With parties of one size min and max may be the same one.
    const auto& other = smaller == larger ? std::next(smaller)->second : larger->second;
    const v1::CollectiveRecord& theirs = *At(odd.front(), sequence);
    const v1::CollectiveRecord& ours = *At(other.front(), sequence);
    const auto what = [](const v1::CollectiveRecord& record) {
      return absl::StrCat(NameOf(record), " (", record.bytes(), " bytes of ", record.dtype(), ")");
    };
    return {absl::StrCat(RankList(odd), " issued ", what(theirs), " as sequence ", sequence,
                         " where ", RankList(other), " issued ", what(ours),
                         ": the ranks do not run the same step", Silence(silent_)),
            odd, FullName(theirs)};
  }

  [[nodiscard]] Place PlaceOf(std::int64_t sequence) const {
    Place place;
    for (const auto& [rank, records] : ranks_) {
      const v1::CollectiveRecord* record = At(rank, sequence);
      if (record != nullptr) place.any = record;
      if (record == nullptr || record->state() == v1::COLLECTIVE_STATE_ENQUEUED) {
        place.absent.push_back(rank);
      } else if (record->state() == v1::COLLECTIVE_STATE_STARTED) {
        place.waiting.push_back(rank);
      } else {
        place.through.push_back(rank);
      }
    }
    return place;
  }

  [[nodiscard]] CollectiveVerdict Waits(std::int64_t sequence) const {
    const Place place = PlaceOf(sequence);
    if (place.waiting.empty()) return {};
    const std::string name = FullName(*place.any);
    if (place.absent.empty() && !silent_.empty()) {
      std::vector<int> ranks;
      ranks.reserve(silent_.size());
      for (const auto& [rank, why] : silent_) ranks.push_back(rank);
      return {absl::StrCat(RankList(place.waiting), place.waiting.size() == 1 ? " waits" : " wait",
                           " in ", name, Silence(silent_)),
              std::move(ranks), name};
    }
    if (place.absent.empty()) {
      const bool all = place.through.empty();
      return {absl::StrCat(all ? "all ranks" : RankList(place.waiting), " ",
                           place.waiting.size() == 1 && !all ? "is" : "are", " in ", name,
                           all ? ", which all have come to: look at the network between them"
                               : absl::StrCat(", which ", RankList(place.through), " finished")),
              all ? std::vector<int>() : place.waiting, name};
    }
    return {absl::StrCat(RankList(place.absent),
                         place.absent.size() == 1 ? " has not come to " : " have not come to ",
                         name, ", which ", RankList(place.waiting),
                         place.waiting.size() == 1 ? " waits in" : " wait in",
                         LastOf(place.absent.front()), Silence(silent_)),
            place.absent, name};
  }

  [[nodiscard]] std::string LastOf(int rank) const {
    const Records& records = ranks_.at(rank);
    for (auto record = records.rbegin(); record != records.rend(); ++record) {
      if (record->second->state() == v1::COLLECTIVE_STATE_ENQUEUED) continue;
      return absl::StrCat("; the last that rank ", rank, " came to is ", FullName(*record->second));
    }
    return absl::StrCat("; rank ", rank, " has come to none yet");
  }

  const std::map<int, std::string>& silent_;
  std::map<int, Records> ranks_;
  std::int64_t first_ = 1;
  std::int64_t last_ = 0;
};

// Shorter waits are a running job's own.
constexpr double kLongSeconds = 1;

}  // namespace

CollectiveVerdict CompareCollectives(const std::map<int, v1::CollectiveDump>& dumps,
                                     const std::map<int, std::string>& silent) {
  return Comparison(dumps, silent).Run();
}

CollectiveVerdict DescribeCollectives(const std::map<int, v1::CollectiveDump>& dumps,
                                      const std::map<int, std::string>& silent,
                                      double pending_seconds) {
  const Comparison comparison(dumps, silent);
  if (pending_seconds >= kLongSeconds || !silent.empty()) return comparison.Run();
  if (CollectiveVerdict verdict = comparison.FirstDifference(); !verdict.message.empty()) {
    return verdict;
  }
  return {comparison.Progress(), {}, ""};
}

}  // namespace fsdp::coordinator
