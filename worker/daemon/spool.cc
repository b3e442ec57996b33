#include "worker/daemon/spool.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/crc32c.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/daemon/files.h"

namespace fsdp::daemon {
namespace {

constexpr std::size_t kHeaderBytes = 8;
constexpr std::string_view kSuffix = ".spool";
// A payload is one gRPC message; anything longer is a damaged length.
constexpr std::uint32_t kMaxPayloadBytes = std::uint32_t{64} << 20;

std::uint32_t Checksum(std::string_view payload) {
  return Crc32c(std::as_bytes(std::span(payload)));
}

void AppendFixed32(std::string* to, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) to->push_back(static_cast<char>((value >> (8 * i)) & 0xff));
}

std::uint32_t DecodeFixed32(const char* bytes) {
  const auto* b = reinterpret_cast<const unsigned char*>(bytes);
  return b[0] | (b[1] << 8) | (b[2] << 16) | (static_cast<std::uint32_t>(b[3]) << 24);
}

std::string EncodeRecord(const v1::Report& report) {
  const std::string payload = report.SerializeAsString();
  std::string record;
  record.reserve(kHeaderBytes + payload.size());
  AppendFixed32(&record, static_cast<std::uint32_t>(payload.size()));
  AppendFixed32(&record, Checksum(payload));
  record += payload;
  return record;
}

// The payload of the record that `bytes` starts with; nullopt: torn or damaged.
std::optional<std::string_view> DecodeRecord(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes) return std::nullopt;
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): it reads four bytes, no string.
  const std::uint32_t length = DecodeFixed32(bytes.data());
  if (length > kMaxPayloadBytes || bytes.size() < kHeaderBytes + length) return std::nullopt;
  const std::string_view payload = bytes.substr(kHeaderBytes, length);
  if (Checksum(payload) != DecodeFixed32(bytes.data() + 4)) return std::nullopt;
  return payload;
}

bool IsDroppable(const v1::Report& report) {
  return report.has_logs() || (report.has_step() && !report.step().final());
}

std::string SegmentPath(const std::string& dir, std::int64_t first) {
  return absl::StrFormat("%s/%020d%s", dir, first, ToAbsl(kSuffix));
}

// The first sequence numbers of the segments in `dir`, ascending.
absl::StatusOr<std::vector<std::int64_t>> ListSegments(const std::string& dir) {
  DIR* const open = ::opendir(dir.c_str());
  if (open == nullptr) return ErrnoToStatus(errno, absl::StrCat("opendir(", dir, ")"));
  std::vector<std::int64_t> found;
  while (const dirent* entry = ::readdir(open)) {
    const std::string_view name = entry->d_name;
    if (name.size() != 20 + kSuffix.size() || !name.ends_with(kSuffix)) continue;
    std::int64_t first = 0;
    if (absl::SimpleAtoi(ToAbsl(name.substr(0, 20)), &first)) found.push_back(first);
  }
  ::closedir(open);
  std::ranges::sort(found);
  return found;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Spool>> Spool::Open(Options options) {
  RETURN_IF_ERROR(MakeDirectories(options.dir));
  std::unique_ptr<Spool> spool(new Spool(std::move(options)));
  RETURN_IF_ERROR(spool->Load());
  return spool;
}

Spool::~Spool() {
  for (auto& [first, segment] : segments_) ::close(segment.fd);
}

absl::Status Spool::Load() {
  ASSIGN_OR_RETURN(const std::vector<std::int64_t> firsts, ListSegments(options_.dir));
  next_sequence_ = firsts.empty() ? options_.first_sequence : firsts.front();
  for (const std::int64_t first : firsts) {
    next_sequence_ = std::max(next_sequence_, first);
    RETURN_IF_ERROR(LoadSegment(first, first == firsts.back()));
  }
  if (segments_.empty()) RETURN_IF_ERROR(AddSegment(next_sequence_));
  RemoveDeadSegments();
  return absl::OkStatus();
}

absl::Status Spool::LoadSegment(std::int64_t first, bool is_last) {
  RETURN_IF_ERROR(AddSegment(first));
  Segment& segment = segments_[first];
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(segment.path));
  std::int64_t offset = 0;
  while (offset < static_cast<std::int64_t>(bytes.size())) {
    const auto payload = DecodeRecord(std::string_view(bytes).substr(offset));
    v1::Report report;
    if (!payload || !report.ParseFromArray(payload->data(), static_cast<int>(payload->size()))) {
      break;
    }
    const auto num_bytes = static_cast<std::int64_t>(kHeaderBytes + payload->size());
    entries_.push_back(
        {report.sequence(), first, offset, num_bytes, IsDroppable(report), report.has_logs(), ""});
    next_sequence_ = std::max(next_sequence_, report.sequence() + 1);
    ++segment.num_live;
    live_bytes_ += num_bytes;
    offset += num_bytes;
  }
  if (offset < static_cast<std::int64_t>(bytes.size())) {
    ++counters_.num_corrupt;
    LOG_WARNING("%s: %d bytes from offset %d are damaged and left out", segment.path,
                static_cast<std::int64_t>(bytes.size()) - offset, offset);
    if (is_last && ::ftruncate(segment.fd, offset) != 0) {
      return ErrnoToStatus(errno, absl::StrCat("ftruncate(", segment.path, ")"));
    }
  }
  segment.num_bytes = offset;
  return absl::OkStatus();
}

absl::Status Spool::AddSegment(std::int64_t first) {
  if (segments_.contains(first)) return absl::OkStatus();
  const std::string path = SegmentPath(options_.dir, first);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  segments_[first] = {path, fd, 0, 0};
  return SyncDirectory(options_.dir);
}

std::int64_t Spool::Append(v1::Report report) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::int64_t sequence = next_sequence_++;
  report.set_sequence(sequence);
  Entry entry{sequence, -1, 0, 0, IsDroppable(report), report.has_logs(), ""};
  std::string record = EncodeRecord(report);
  entry.num_bytes = static_cast<std::int64_t>(record.size());
  const absl::Status written = WriteRecord(record, !entry.droppable);
  if (written.ok()) {
    auto& [first, segment] = *segments_.rbegin();
    entry.segment = first;
    entry.offset = segment.num_bytes - entry.num_bytes;
    ++segment.num_live;
  } else {
    ++counters_.num_write_errors;
    LOG_ERROR("spool: %s; the report %s", written.message(),
              entry.droppable ? "is dropped" : "stays in memory");
    if (entry.droppable) {
      ++(entry.is_logs ? counters_.num_dropped_logs : counters_.num_dropped_steps);
      return sequence;
    }
    entry.memory = std::move(record);
  }
  live_bytes_ += entry.num_bytes;
  entries_.push_back(std::move(entry));
  EnforceBound();
  return sequence;
}

// On success the last segment ends with the record; otherwise it is as it was before.
absl::Status Spool::WriteRecord(std::string_view record, bool sync) {
  if (segments_.rbegin()->second.num_bytes >= options_.segment_bytes) {
    RETURN_IF_ERROR(AddSegment(next_sequence_ - 1));
    RemoveDeadSegments();
  }
  Segment& segment = segments_.rbegin()->second;
  const ssize_t written = ::write(segment.fd, record.data(), record.size());
  const int error = errno;
  if (written != static_cast<ssize_t>(record.size())) {
    // A torn record in the middle of a file would hide all that follow it.
    if (written > 0 && ::ftruncate(segment.fd, segment.num_bytes) != 0) {
      LOG_ERROR("ftruncate(%s): %s", segment.path, std::strerror(errno));
      (void)AddSegment(next_sequence_);
    }
    return ErrnoToStatus(written < 0 ? error : ENOSPC, absl::StrCat("write(", segment.path, ")"));
  }
  segment.num_bytes += written;
  if (sync && ::fdatasync(segment.fd) != 0) {
    // The record is in the page cache and will be read from there: only power loss can take it.
    ++counters_.num_write_errors;
    LOG_ERROR("fdatasync(%s): %s", segment.path, std::strerror(errno));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Report> Spool::ReadEntry(const Entry& entry) const {
  std::string record = entry.memory;
  if (entry.segment >= 0) {
    const Segment& segment = segments_.at(entry.segment);
    record.resize(entry.num_bytes);
    const ssize_t got = ::pread(segment.fd, record.data(), record.size(), entry.offset);
    record.resize(std::max<ssize_t>(got, 0));
  }
  const auto payload = DecodeRecord(record);
  v1::Report report;
  if (!payload || !report.ParseFromArray(payload->data(), static_cast<int>(payload->size()))) {
    return absl::DataLossError(absl::StrCat("report ", entry.sequence, " cannot be read back"));
  }
  return report;
}

std::vector<v1::Report> Spool::ReadAfter(std::int64_t sequence, std::int64_t max_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<v1::Report> reports;
  auto entry = std::ranges::upper_bound(entries_, sequence, {}, &Entry::sequence);
  std::int64_t num_bytes = 0;
  for (; entry != entries_.end(); ++entry) {
    num_bytes += entry->num_bytes;
    if (!reports.empty() && num_bytes > max_bytes) break;
    absl::StatusOr<v1::Report> report = ReadEntry(*entry);
    if (report.ok()) {
      reports.push_back(*std::move(report));
    } else {
      ++counters_.num_corrupt;
      LOG_ERROR("spool: %s", report.status().message());
    }
  }
  return reports;
}

void Spool::Acknowledge(std::int64_t sequence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!entries_.empty() && entries_.front().sequence <= sequence) {
    const Entry& entry = entries_.front();
    live_bytes_ -= entry.num_bytes;
    if (entry.segment >= 0) --segments_.at(entry.segment).num_live;
    entries_.pop_front();
  }
  // A new file for every acknowledgement would be more work than reading some records twice.
  const Segment& last = segments_.rbegin()->second;
  if (last.num_live == 0 && last.num_bytes >= options_.segment_bytes / 4) {
    if (const absl::Status added = AddSegment(next_sequence_); !added.ok()) {
      LOG_ERROR("spool: %s", added.message());
    }
  }
  RemoveDeadSegments();
}

void Spool::SkipPast(std::int64_t sequence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  next_sequence_ = std::max(next_sequence_, sequence + 1);
}

void Spool::RemoveSegment(std::int64_t first) {
  Segment& segment = segments_.at(first);
  if (::unlink(segment.path.c_str()) != 0) {
    LOG_ERROR("unlink(%s): %s", segment.path, std::strerror(errno));
  }
  ::close(segment.fd);
  segments_.erase(first);
}

// The last one stays: its name keeps the numbering.
void Spool::RemoveDeadSegments() {
  for (auto it = segments_.begin(); it != std::prev(segments_.end());) {
    const std::int64_t first = it->first;
    const bool dead = it->second.num_live == 0;
    ++it;
    if (dead) RemoveSegment(first);
  }
}

void Spool::EnforceBound() {
  if (live_bytes_ <= options_.max_bytes) return;
  // Some air, so that the next reports do not each rewrite a file.
  const std::int64_t target = options_.max_bytes - options_.max_bytes / 10;
  std::set<std::int64_t> touched;
  std::deque<Entry> kept;
  for (Entry& entry : entries_) {
    if (!entry.droppable || live_bytes_ <= target) {
      kept.push_back(std::move(entry));
      continue;
    }
    ++(entry.is_logs ? counters_.num_dropped_logs : counters_.num_dropped_steps);
    live_bytes_ -= entry.num_bytes;
    --segments_.at(entry.segment).num_live;
    touched.insert(entry.segment);
  }
  entries_ = std::move(kept);
  if (touched.contains(segments_.rbegin()->first)) {
    if (!AddSegment(next_sequence_).ok()) return;
  }
  for (const std::int64_t first : touched) {
    if (segments_.at(first).num_live == 0) continue;
    if (const absl::Status done = Compact(first); !done.ok()) {
      LOG_ERROR("spool: %s", done.message());
    }
  }
  RemoveDeadSegments();
}

// Rewrites a segment with its live records only.
absl::Status Spool::Compact(std::int64_t first) {
  Segment& segment = segments_.at(first);
  std::string bytes;
  std::vector<std::pair<Entry*, std::int64_t>> moved;
  for (Entry& entry : entries_) {
    if (entry.segment != first) continue;
    ASSIGN_OR_RETURN(const v1::Report report, ReadEntry(entry));
    moved.emplace_back(&entry, static_cast<std::int64_t>(bytes.size()));
    bytes += EncodeRecord(report);
  }
  RETURN_IF_ERROR(WriteFileAtomically(segment.path, bytes));
  const int fd = ::open(segment.path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", segment.path, ")"));
  ::close(std::exchange(segment.fd, fd));
  segment.num_bytes = static_cast<std::int64_t>(bytes.size());
  for (const auto& [entry, offset] : moved) entry->offset = offset;
  return absl::OkStatus();
}

std::int64_t Spool::first_sequence() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return entries_.empty() ? next_sequence_ : entries_.front().sequence;
}

std::int64_t Spool::last_sequence() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return entries_.empty() ? next_sequence_ - 1 : entries_.back().sequence;
}

Spool::Stats Spool::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stats stats = counters_;
  stats.num_bytes = live_bytes_;
  stats.num_reports = static_cast<std::int64_t>(entries_.size());
  return stats;
}

}  // namespace fsdp::daemon
