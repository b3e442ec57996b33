#include "coordinator/membership/hang_rule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fsdp::coordinator {
namespace {

// A live trainer renews its pulse about once a second.
constexpr absl::Duration kFrozenAfter = absl::Seconds(3);

struct Waiting {
  std::int32_t rank = -1;
  absl::Duration pending = absl::ZeroDuration();
  std::int64_t sequence = 0;
  std::string name;
};

bool IsFrozen(MonotonicTime now, const RankPulseView& view) {
  return now - view.changed > kFrozenAfter;
}

// The longest time that a rank has been inside its collective. Ranks whose pulse still changes know
// best: a frozen one may have stopped in a collective that the others have long left.
Waiting LongestWait(MonotonicTime now, const HangFacts& facts) {
  Waiting longest;
  bool longest_is_live = false;
  for (size_t rank = 0; rank < facts.ranks.size(); ++rank) {
    if (!facts.ranks[rank]) continue;
    const RankPulseView& view = *facts.ranks[rank];
    if (view.pulse.collective_started() <= view.pulse.collective_finished()) continue;
    const absl::Duration pending =
        absl::Seconds(view.pulse.collective_pending_seconds()) + (now - view.changed);
    const bool live = !IsFrozen(now, view);
    if (longest.rank >= 0 && longest_is_live && !live) continue;
    if (longest.rank < 0 || (live && !longest_is_live) || pending > longest.pending) {
      longest_is_live = live;
      longest = {static_cast<std::int32_t>(rank), pending, view.pulse.collective_started(),
                 view.pulse.collective()};
    }
  }
  return longest;
}

// Rank to blame: the furthest behind in collectives; among equals the one silent for longest, if it
// is silent at all.
std::int32_t Culprit(MonotonicTime now, const HangFacts& facts, const Waiting& waiting) {
  std::int32_t behind = -1;
  std::int64_t least = waiting.sequence;
  std::int32_t frozen = -1;
  absl::Duration longest_silence = kFrozenAfter;
  for (size_t i = 0; i < facts.ranks.size(); ++i) {
    const auto rank = static_cast<std::int32_t>(i);
    // Never had a pulse in this epoch while peers wait.
    if (!facts.ranks[i]) return rank;
    const RankPulseView& view = *facts.ranks[i];
    if (view.pulse.collective_started() < least) {
      least = view.pulse.collective_started();
      behind = rank;
    }
    if (now - view.changed > longest_silence) {
      longest_silence = now - view.changed;
      frozen = rank;
    }
  }
  if (behind >= 0) return behind;
  return frozen >= 0 ? frozen : waiting.rank;
}

struct Medians {
  double step_seconds = 0;
  double collective_seconds = 0;
};

Medians WorstMedians(const HangFacts& facts) {
  Medians medians;
  for (const auto& view : facts.ranks) {
    if (!view) continue;
    medians.step_seconds = std::max(medians.step_seconds, view->pulse.median_step_seconds());
    medians.collective_seconds =
        std::max(medians.collective_seconds, view->pulse.median_collective_seconds());
  }
  return medians;
}

// Slow work leaves the pulse going. What a silent rank last said of itself counts only while nobody
// else speaks: a trainer stopped just after a checkpoint is not still writing it.
bool InSlowPhase(MonotonicTime now, const HangFacts& facts, const HangOptions& options) {
  const bool any_live = std::any_of(facts.ranks.begin(), facts.ranks.end(), [&](const auto& view) {
    return view && !IsFrozen(now, *view);
  });
  return std::any_of(facts.ranks.begin(), facts.ranks.end(), [&](const auto& view) {
    if (!view) return true;
    if (any_live && IsFrozen(now, *view)) return false;
    const v1::RankPulse& pulse = view->pulse;
    return pulse.phase() == v1::PHASE_CHECKPOINT || pulse.phase() == v1::PHASE_EVALUATE ||
           pulse.phase() == v1::PHASE_START ||
           pulse.step() < facts.first_step + options.warmup_steps;
  });
}

std::string RankSentence(MonotonicTime now, const HangFacts& facts, const HangVerdict& verdict,
                         const Waiting& waiting) {
  std::string why = "has not started it";
  const auto& view = facts.ranks[verdict.rank];
  if (view && IsFrozen(now, *view)) {
    why = absl::StrFormat("had not started it when it fell silent %.0f s ago",
                          absl::ToDoubleSeconds(now - view->changed));
  }
  if (!view) {
    why = "never reported";
  } else if (view->pulse.collective_started() >= waiting.sequence) {
    why = now - view->changed > kFrozenAfter
              ? absl::StrFormat("is in it and has been silent for %.0f s",
                                absl::ToDoubleSeconds(now - view->changed))
              : "is in it for longest";
  }
  return absl::StrFormat("%s pending for %.1f s (limit %.1f s): rank %d %s", verdict.collective,
                         absl::ToDoubleSeconds(verdict.pending),
                         absl::ToDoubleSeconds(verdict.limit), verdict.rank, why);
}

// Nobody waits in a collective and yet no step ends: ten times the patience, since a step has no
// bound.
HangVerdict CheckProgress(MonotonicTime now, const HangFacts& facts, absl::Duration abort_limit) {
  HangVerdict verdict;
  verdict.pending = now - facts.progressed;
  verdict.limit = abort_limit * 10;
  if (verdict.pending <= verdict.limit) return verdict;
  absl::Duration longest = absl::ZeroDuration() - absl::Seconds(1);
  for (size_t i = 0; i < facts.ranks.size(); ++i) {
    if (!facts.ranks[i] || now - facts.ranks[i]->changed <= longest) continue;
    longest = now - facts.ranks[i]->changed;
    verdict.rank = static_cast<std::int32_t>(i);
  }
  verdict.level = HangLevel::kAbort;
  const std::string who = longest > kFrozenAfter
                              ? absl::StrFormat("rank %d has been silent for %.0f s", verdict.rank,
                                                absl::ToDoubleSeconds(longest))
                              : "all ranks still report";
  verdict.message = absl::StrFormat(
      "no step ended for %.0f s (limit %.0f s) outside collectives: %s",
      absl::ToDoubleSeconds(verdict.pending), absl::ToDoubleSeconds(verdict.limit), who);
  return verdict;
}

}  // namespace

HangVerdict CheckHang(MonotonicTime now, const HangFacts& facts, const HangOptions& options) {
  const Medians medians = WorstMedians(facts);
  const double factor = InSlowPhase(now, facts, options) ? options.slow_phase_factor : 1;
  const absl::Duration diagnose =
      factor * std::max(options.diagnose_floor,
                        absl::Seconds(options.diagnose_collectives * medians.collective_seconds));
  const absl::Duration abort =
      factor * std::max(facts.job_limit.value_or(options.abort_floor),
                        absl::Seconds(options.abort_steps * medians.step_seconds));
  const Waiting waiting = LongestWait(now, facts);
  if (waiting.rank < 0) return CheckProgress(now, facts, abort);
  HangVerdict verdict;
  verdict.pending = waiting.pending;
  if (waiting.pending <= std::min(diagnose, abort)) return verdict;
  verdict.level = waiting.pending > abort ? HangLevel::kAbort : HangLevel::kDiagnose;
  verdict.limit = verdict.level == HangLevel::kAbort ? abort : diagnose;
  verdict.rank = Culprit(now, facts, waiting);
  verdict.collective = absl::StrCat(waiting.name.empty() ? "collective" : waiting.name,
                                    ", sequence ", waiting.sequence);
  verdict.message = RankSentence(now, facts, verdict, waiting);
  return verdict;
}

}  // namespace fsdp::coordinator
