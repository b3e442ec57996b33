#include "worker/profile/report/perfetto_packets.h"

#include <algorithm>

#include "worker/profile/report/report_text.h"

namespace fsdp::report {

std::string Packet(const ProtoWriter& packet) {
  constexpr std::uint32_t kPacketOfTrace = 1;
  return ProtoWriter().Message(kPacketOfTrace, packet).bytes();
}

std::string TrackPacket(const ProtoWriter& track_descriptor) {
  return Packet(ProtoWriter()
                    .Varint(packet::kSequenceId, kSequence)
                    .Message(packet::kTrackDescriptor, track_descriptor));
}

std::string EventPacket(std::int64_t time_ns, const ProtoWriter& track_event) {
  return Packet(ProtoWriter()
                    .Varint(packet::kTimestamp, time_ns)
                    .Varint(packet::kSequenceId, kSequence)
                    .Message(packet::kTrackEvent, track_event)
                    .Varint(packet::kSequenceFlags, packet::kNeedsState));
}

std::string EndPacket(std::int64_t time_ns, std::uint64_t track_uuid) {
  return EventPacket(time_ns,
                     ProtoWriter()
                         .Varint(event::kType, event::kSliceEnd)
                         .Varint(event::kTrackUuid, static_cast<std::int64_t>(track_uuid)));
}

std::int64_t Interner::Iid(Table table, const std::string& text, std::int64_t index) {
  const auto [found, is_new] = entries_.try_emplace({table, text});
  Entry& entry = found->second;
  if (is_new) entry = {++last_iid_[table], index};
  entry.first_index = std::min(entry.first_index, index);
  return entry.iid;
}

std::string Interner::Definitions(std::int64_t limit) const {
  ProtoWriter data;
  for (const auto& [key, entry] : entries_) {
    if (entry.first_index >= limit) continue;
    data.Message(static_cast<std::uint32_t>(key.first),
                 ProtoWriter().Varint(1, entry.iid).Bytes(2, CleanText(key.second)));
  }
  return Packet(ProtoWriter()
                    .Varint(packet::kSequenceId, kSequence)
                    .Message(packet::kInternedData, data)
                    .Varint(packet::kSequenceFlags, packet::kStateCleared)
                    .Varint(packet::kFirstOnSequence, 1));
}

}  // namespace fsdp::report
