#include "coordinator/rendezvous/rendezvous.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fsdp::coordinator {
namespace {

std::string DataText(const std::string& path, std::int64_t bytes, std::uint64_t fingerprint) {
  return absl::StrCat(path, " with ", bytes, " bytes, fingerprint ", absl::Hex(fingerprint));
}

}  // namespace

absl::Status RendezvousTable::Put(const std::string& name, std::string value, size_t world_size,
                                  std::vector<int>* waiters) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous name of ", name.size(), " bytes: want 1..", kMaxNameBytes));
  }
  if (value.size() > kMaxValueBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rendezvous value '", name, "' has ", value.size(), " bytes: at most ", kMaxValueBytes));
  }
  if (values_.size() >= kMaxEntriesPerRank * world_size && !values_.contains(name)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the epoch already holds ", values_.size(), " rendezvous values"));
  }
  values_[name] = std::move(value);
  if (const auto waiting = waiters_.find(name); waiting != waiters_.end()) {
    waiters->assign(waiting->second.begin(), waiting->second.end());
    waiters_.erase(waiting);
  }
  return absl::OkStatus();
}

const std::string* RendezvousTable::Get(int rank, const std::string& name) {
  const auto value = values_.find(name);
  if (value != values_.end()) return &value->second;
  if (name.size() <= kMaxNameBytes) waiters_[name].insert(rank);
  return nullptr;
}

void RendezvousTable::Clear() {
  values_.clear();
  waiters_.clear();
}

std::optional<Disagreement> CompareJoined(
    const google::protobuf::RepeatedPtrField<fsdp::records::v1::MemberRecord>& members) {
  const fsdp::records::v1::MemberRecord* first = nullptr;
  for (const auto& member : members) {
    if (!member.has_joined()) continue;
    if (first == nullptr) {
      first = &member;
      continue;
    }
    const auto& a = first->joined();
    const auto& b = member.joined();
    const auto differ = [&](const std::string& what, const std::string& of_first,
                            const std::string& of_this) {
      return Disagreement{
          member.rank(),
          absl::StrCat("rank ", member.rank(), " (", member.worker(), ") ", what, " ", of_this,
                       ", but rank ", first->rank(), " (", first->worker(), ") ", of_first)};
    };
    for (int i = 0; i < std::min(a.data_sources_size(), b.data_sources_size()); ++i) {
      const auto& source_of_a = a.data_sources(i);
      const auto& source_of_b = b.data_sources(i);
      if (source_of_a.bytes() == source_of_b.bytes() &&
          source_of_a.fingerprint() == source_of_b.fingerprint()) {
        continue;
      }
      const auto describe = [](const fsdp::v1::DataProof& source) {
        return DataText(source.path(), source.bytes(), source.fingerprint());
      };
      return differ(absl::StrCat("reads other data as source '", source_of_b.name(), "':"),
                    describe(source_of_a), describe(source_of_b));
    }
    if (a.data_bytes() != b.data_bytes() || a.data_fingerprint() != b.data_fingerprint()) {
      const auto describe = [](const auto& joined) {
        return DataText(joined.data_path(), joined.data_bytes(), joined.data_fingerprint());
      };
      return differ("reads other data:", describe(a), describe(b));
    }
    if (a.checkpoint_dir_token() != b.checkpoint_dir_token()) {
      return differ("does not share checkpoint.dir: it found token",
                    absl::StrCat("'", a.checkpoint_dir_token(), "'"),
                    absl::StrCat("'", b.checkpoint_dir_token(), "'"));
    }
    if (a.resume_step() != b.resume_step()) {
      return differ("resumes at step", absl::StrCat(a.resume_step()),
                    absl::StrCat(b.resume_step()));
    }
    if (a.plan_hash() != b.plan_hash()) {
      return differ("made another plan: hash", absl::StrCat(absl::Hex(a.plan_hash())),
                    absl::StrCat(absl::Hex(b.plan_hash())));
    }
  }
  return std::nullopt;
}

}  // namespace fsdp::coordinator
