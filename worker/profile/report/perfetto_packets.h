#ifndef FSDPCTL_WORKER_PROFILE_REPORT_PERFETTO_PACKETS_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_PERFETTO_PACKETS_H_

// Packets of Perfetto's trace format, as far as profiles need them. Field numbers are those of
// https://github.com/google/perfetto, protos/perfetto/trace: trace.proto, trace_packet.proto,
// interned_data/interned_data.proto and track_event/*.proto; how the messages are used together:
// https://perfetto.dev/docs/reference/synthetic-track-event. Thread-safe, Interner apart.

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "worker/profile/report/proto_writer.h"

namespace fsdp::report {

namespace packet {
inline constexpr std::uint32_t kTimestamp = 8, kSequenceId = 10, kTrackEvent = 11,
                               kInternedData = 12, kSequenceFlags = 13, kTrackDescriptor = 60,
                               kFirstOnSequence = 87;
inline constexpr int kStateCleared = 1, kNeedsState = 2;  // SequenceFlags
}  // namespace packet
namespace descriptor {
inline constexpr std::uint32_t kUuid = 1, kName = 2, kProcess = 3, kParentUuid = 5, kCounter = 8,
                               kChildOrdering = 11, kSiblingRank = 12;
inline constexpr int kExplicit = 3;                         // ChildTracksOrdering
inline constexpr std::uint32_t kPid = 1, kProcessName = 6;  // ProcessDescriptor
inline constexpr std::uint32_t kUnit = 3, kUnitName = 6;    // CounterDescriptor
inline constexpr int kUnitBytes = 3;                        // CounterDescriptor.Unit
}  // namespace descriptor
namespace event {
inline constexpr std::uint32_t kCategoryIids = 3, kAnnotations = 4, kType = 9, kNameIid = 10,
                               kTrackUuid = 11, kName = 23, kDoubleValue = 44, kFlowIds = 47;
enum Type { kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4 };
}  // namespace event
namespace annotation {
inline constexpr std::uint32_t kNameIid = 1, kInt = 4, kDouble = 5, kString = 6, kStringIid = 17;
}

// Every packet is on one sequence.
inline constexpr int kSequence = 1;

// As the trace file has it.
std::string Packet(const ProtoWriter& packet);
std::string TrackPacket(const ProtoWriter& track_descriptor);
std::string EventPacket(std::int64_t time_ns, const ProtoWriter& track_event);
std::string EndPacket(std::int64_t time_ns, std::uint64_t track_uuid);

// Of InternedData, by field number; each entry is {iid = 1, text = 2}.
enum class Table : std::uint32_t {
  kCategory = 1,
  kEventName = 2,
  kAnnotationName = 3,
  kStringValue = 29,
};

// Texts that stand in the trace once and are referred to by number. Not thread-safe.
class Interner {
 public:
  // For the event at `index` of its list: lists cut at or before it do not need the text.
  std::int64_t Iid(Table table, const std::string& text, std::int64_t index);
  // The packet, first of the trace, that defines what lists cut to `limit` events refer to.
  [[nodiscard]] std::string Definitions(std::int64_t limit) const;

 private:
  struct Entry {
    std::int64_t iid = 0;
    std::int64_t first_index = 0;
  };
  std::map<std::pair<Table, std::string>, Entry> entries_;
  std::map<Table, std::int64_t> last_iid_;
};

}  // namespace fsdp::report

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_PERFETTO_PACKETS_H_
