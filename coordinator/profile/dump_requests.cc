#include "coordinator/profile/dump_requests.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/profile/collective_compare.h"

namespace fsdp::coordinator {

void DumpRequests::Ask(WorkerRegistry& workers, std::vector<Rank> ranks, double pending_seconds,
                       MonotonicTime now, Done done) {
  Request request{std::move(ranks), pending_seconds, now, std::move(done)};
  for (Rank& rank : request.ranks) {
    rank.answer.set_rank(rank.key.rank());
    rank.answer.set_worker("workers/" + rank.worker.value());
    const WorkerEntry* worker = workers.Find(rank.worker);
    if (worker == nullptr || worker->sink == nullptr) {
      rank.answer.set_message("its worker is not connected");
      rank.answered = true;
      continue;
    }
    v1::ConnectResponse message;
    *message.mutable_dump_diagnostics()->mutable_key() = rank.key;
    message.mutable_dump_diagnostics()->set_reason("a caller asked for it");
    worker->sink->Send(message);
  }
  requests_.push_back(std::move(request));
  Answer({}, {});
}

// Fills in what `key`'s rank answers, and ends the requests that are complete.
void DumpRequests::Answer(const v1::EpochKey& key, const std::function<void(Rank&)>& fill) {
  for (auto request = requests_.begin(); request != requests_.end();) {
    for (Rank& rank : request->ranks) {
      const bool mine = fill && rank.key.job() == key.job() && rank.key.epoch() == key.epoch() &&
                        rank.key.rank() == key.rank();
      if (!mine || rank.answered) continue;
      fill(rank);
      rank.answered = true;
    }
    const bool complete = std::all_of(request->ranks.begin(), request->ranks.end(),
                                      [](const Rank& rank) { return rank.answered; });
    if (!complete) {
      ++request;
      continue;
    }
    Request whole = std::move(*request);
    request = requests_.erase(request);
    Finish(whole);
  }
}

void DumpRequests::OnDump(const v1::EpochKey& key, const v1::CollectiveDump& dump) {
  Answer(key, [&](Rank& rank) { *rank.answer.mutable_dump() = dump; });
}

void DumpRequests::OnSilent(const v1::EpochKey& key, const std::string& why) {
  Answer(key, [&](Rank& rank) { rank.answer.set_message(why); });
}

void DumpRequests::Expire(MonotonicTime now) {
  for (Request& request : requests_) {
    if (now - request.asked < kPatience) continue;
    for (Rank& rank : request.ranks) {
      if (rank.answered) continue;
      rank.answer.set_message(
          absl::StrCat("it did not answer within ", absl::ToInt64Seconds(kPatience), " s"));
      rank.answered = true;
    }
  }
  Answer({}, {});
}

void DumpRequests::EndAll(const absl::Status& why) {
  for (const Request& request : std::exchange(requests_, {})) request.done(why);
}

void DumpRequests::Finish(Request& request) {
  std::map<int, v1::CollectiveDump> dumps;
  std::map<int, std::string> silent;
  v1::DumpCollectivesResponse response;
  for (Rank& rank : request.ranks) {
    if (rank.answer.has_dump()) {
      dumps[rank.key.rank()] = rank.answer.dump();
    } else {
      silent[rank.key.rank()] = rank.answer.message();
    }
    *response.add_ranks() = std::move(rank.answer);
  }
  response.set_verdict(DescribeCollectives(dumps, silent, request.pending_seconds).message);
  request.done(std::move(response));
}

}  // namespace fsdp::coordinator
