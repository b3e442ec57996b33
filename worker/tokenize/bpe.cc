#include "worker/tokenize/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fsdp {
namespace {

// 2 MiB a thread: the words of a language that are met again, in a second-level cache.
constexpr std::size_t kCacheEntries = std::size_t{1} << 15;
constexpr std::size_t kWays = 2;
constexpr std::size_t kLongPiece = 128;
constexpr std::uint64_t kNoPair = ~std::uint64_t{0};
constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ULL;
constexpr std::uint32_t kNone = 0xffffffff;

std::uint64_t PairOf(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(left) << 32U | right;
}

// 0xC0, 0xC1 and all from 0xF5 are in no valid text.
bool OccursInText(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

template <typename Word>
std::uint64_t Load(const char* bytes) {
  Word word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// Different pieces of one size have different words; reads nothing outside the piece.
std::array<std::uint64_t, 4> KeyOf(std::string_view piece) {
  const char* data = piece.data();
  const std::size_t size = piece.size();
  if (size >= 8) {
    if (size <= 16) return {Load<std::uint64_t>(data), Load<std::uint64_t>(data + size - 8), 0, 0};
    return {Load<std::uint64_t>(data), Load<std::uint64_t>(data + 8),
            Load<std::uint64_t>(data + size - 16), Load<std::uint64_t>(data + size - 8)};
  }
  if (size >= 4) {
    return {Load<std::uint32_t>(data) << 32U | Load<std::uint32_t>(data + size - 4), 0, 0, 0};
  }
  if (size >= 2) {
    return {Load<std::uint16_t>(data) << 16U | Load<std::uint16_t>(data + size - 2), 0, 0, 0};
  }
  return {Load<std::uint8_t>(data), 0, 0, 0};
}

std::uint64_t HashOf(const std::array<std::uint64_t, 4>& key, std::size_t size) {
  std::uint64_t hash = (key[0] ^ size * 0xD6E8FEB86659FD93ULL) * kGolden;
  hash = (std::rotl(hash, 29) ^ key[1]) * kGolden;
  if (size > 16) hash = ((std::rotl(hash, 29) ^ key[2]) * kGolden ^ key[3]) * kGolden;
  return hash ^ hash >> 32U;
}

}  // namespace

absl::StatusOr<BpeModel> BpeModel::Create(Options options) {
  BpeModel model;
  std::array<bool, 256> known{};
  for (const auto& [bytes, id] : options.tokens) {
    if (bytes.size() != 1) continue;
    model.id_of_byte_[static_cast<std::uint8_t>(bytes[0])] = id;
    known[static_cast<std::uint8_t>(bytes[0])] = true;
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (known[static_cast<std::size_t>(byte)] || !OccursInText(byte)) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "the vocabulary has no token for the byte 0x%02x: it is not a byte-level one", byte));
  }
  const std::size_t num_slots = std::bit_ceil(options.merges.size() * 3 / 2 + 16);
  model.slots_.assign(num_slots, {kNoPair, kNoRank, 0});
  model.mask_ = num_slots - 1;
  model.shift_ = 64 - std::countr_zero(num_slots);
  for (std::size_t rank = 0; rank < options.merges.size(); ++rank) {
    model.Insert(options.merges[rank], static_cast<std::uint32_t>(rank));
  }
  if (options.ignore_merges) {
    for (auto& [bytes, id] : options.tokens) model.whole_.emplace(std::move(bytes), id);
  }
  return model;
}

void BpeModel::Insert(const Merge& merge, std::uint32_t rank) {
  const std::uint64_t pair = PairOf(merge.left, merge.right);
  std::uint64_t at = pair * kGolden >> shift_;
  while (slots_[at].pair != kNoPair && slots_[at].pair != pair) at = (at + 1) & mask_;
  slots_[at] = {pair, rank, merge.merged};
}

const BpeModel::Slot& BpeModel::Find(TokenId left, TokenId right) const {
  const std::uint64_t pair = PairOf(left, right);
  std::uint64_t at = pair * kGolden >> shift_;
  while (slots_[at].pair != pair && slots_[at].pair != kNoPair) at = (at + 1) & mask_;
  return slots_[at];
}

BpeEncoder::BpeEncoder(std::shared_ptr<const BpeModel> model)
    : model_(std::move(model)), cache_(kCacheEntries) {}

void BpeEncoder::Encode(std::string_view piece, std::vector<TokenId>* ids) {
  if (piece.empty()) return;
  if (piece.size() > kMaxKeyBytes) {
    EncodeUncached(piece, ids);
    return;
  }
  const std::array<std::uint64_t, 4> key = KeyOf(piece);
  const std::uint64_t hash = HashOf(key, piece.size());
  CacheEntry* set = &cache_[hash % (kCacheEntries / kWays) * kWays];
  for (std::size_t way = 0; way < kWays; ++way) {
    const CacheEntry& entry = set[way];
    if (entry.size_bytes != piece.size() || entry.key != key) continue;
    for (std::size_t i = 0; i < entry.num_ids; ++i) ids->push_back(entry.ids[i]);
    return;
  }
  const std::size_t before = ids->size();
  EncodeUncached(piece, ids);
  const std::size_t count = ids->size() - before;
  if (count > kMaxCachedIds) return;
  // The newest comes first; the older of the two makes room.
  set[1] = set[0];
  set[0].key = key;
  std::copy(ids->begin() + static_cast<std::ptrdiff_t>(before), ids->end(), set[0].ids.begin());
  set[0].size_bytes = static_cast<std::uint8_t>(piece.size());
  set[0].num_ids = static_cast<std::uint8_t>(count);
}

void BpeEncoder::EncodeUncached(std::string_view piece, std::vector<TokenId>* ids) {
  if (!model_->whole_.empty()) {
    const auto found = model_->whole_.find(piece);
    if (found != model_->whole_.end()) {
      ids->push_back(found->second);
      return;
    }
  }
  nodes_.clear();
  for (const char c : piece) {
    nodes_.push_back({model_->id_of_byte_[static_cast<std::uint8_t>(c)], BpeModel::kNoRank, 0});
  }
  for (std::size_t i = 0; i + 1 < nodes_.size(); ++i) Rate(&nodes_[i], nodes_[i + 1]);
  if (nodes_.size() <= kLongPiece) {
    MergeShort(ids);
  } else {
    MergeLong(ids);
  }
}

void BpeEncoder::Rate(Node* node, const Node& next) const {
  const BpeModel::Slot& slot = model_->Find(node->id, next.id);
  node->rank = slot.rank;
  node->merged = slot.merged;
}

void BpeEncoder::MergeShort(std::vector<TokenId>* ids) {
  for (;;) {
    const auto best = std::min_element(
        nodes_.begin(), nodes_.end(), [](const Node& a, const Node& b) { return a.rank < b.rank; });
    if (best->rank == BpeModel::kNoRank) break;
    best->id = best->merged;
    nodes_.erase(best + 1);
    best->rank = BpeModel::kNoRank;
    if (best + 1 != nodes_.end()) Rate(&*best, *(best + 1));
    if (best != nodes_.begin()) Rate(&*(best - 1), *best);
  }
  for (const Node& node : nodes_) ids->push_back(node.id);
}

void BpeEncoder::MergeLong(std::vector<TokenId>* ids) {
  const auto count = static_cast<std::uint32_t>(nodes_.size());
  heap_.clear();
  next_.resize(count);
  previous_.resize(count);
  const auto offer = [this](std::uint32_t at) {
    if (nodes_[at].rank == BpeModel::kNoRank) return;
    heap_.push_back({nodes_[at].rank, at, nodes_[at].id, nodes_[next_[at]].id});
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    next_[i] = i + 1 < count ? i + 1 : kNone;
    previous_[i] = i > 0 ? i - 1 : kNone;
  }
  for (std::uint32_t i = 0; i + 1 < count; ++i) offer(i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const Candidate top = heap_.back();
    heap_.pop_back();
    Node& left = nodes_[top.at];
    const std::uint32_t right = next_[top.at];
    // One of the two was merged with another neighbour since.
    if (right == kNone || left.id != top.left || nodes_[right].id != top.right) continue;
    left.id = left.merged;
    nodes_[right].id = kNone;
    next_[top.at] = next_[right];
    left.rank = BpeModel::kNoRank;
    if (next_[right] != kNone) {
      previous_[next_[right]] = top.at;
      Rate(&left, nodes_[next_[right]]);
      offer(top.at);
    }
    if (const std::uint32_t before = previous_[top.at]; before != kNone) {
      Rate(&nodes_[before], left);
      offer(before);
    }
  }
  for (std::uint32_t at = 0; at != kNone; at = next_[at]) ids->push_back(nodes_[at].id);
}

}  // namespace fsdp
