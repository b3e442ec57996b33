#include "worker/data/read_ahead.h"

#include <utility>

namespace fsdp {

ReadAhead::ReadAhead(BatchSource& source, std::int64_t num_sequences, bool with_documents)
    : source_(source) {
  const auto elements = static_cast<std::size_t>(num_sequences * source.sequence_length());
  for (Batch* batch : {&taken_, &ahead_}) {
    batch->tokens.resize(elements);
    batch->targets.resize(elements);
    if (with_documents) batch->document_begins.resize(elements);
  }
  thread_ = std::thread([this] { Loop(); });
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ReadAhead::Ask(std::int64_t position) {
  asked_ = position;
  done_ = false;
  changed_.notify_all();
}

absl::Status ReadAhead::Take(std::int64_t position, std::optional<std::int64_t> next) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto wait = [&] { changed_.wait(lock, [this] { return done_; }); };
  // Not what was expected: after a rollback, for one.
  if (asked_.has_value() && *asked_ != position) {
    wait();
    asked_.reset();
  }
  if (!asked_.has_value()) Ask(position);
  wait();
  asked_.reset();
  if (!status_.ok()) return status_;
  std::swap(taken_, ahead_);
  if (next.has_value()) Ask(*next);
  return absl::OkStatus();
}

void ReadAhead::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || (asked_.has_value() && !done_); });
    if (stopping_) return;
    const std::int64_t position = *asked_;
    lock.unlock();
    absl::Status status =
        source_.Read(position, ahead_.tokens, ahead_.targets, ahead_.document_begins);
    lock.lock();
    status_ = std::move(status);
    done_ = true;
    changed_.notify_all();
  }
}

}  // namespace fsdp
