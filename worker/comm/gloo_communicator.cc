#include "worker/comm/gloo_communicator.h"

#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"
#include "worker/comm/gloo_store.h"
#include "worker/comm/host_communicator.h"
#include "worker/comm/host_reduce.h"
#include "worker/comm/log_steps.h"

namespace fsdp {
namespace {

using gloo::transport::UnboundBuffer;

std::chrono::milliseconds Milliseconds(absl::Duration duration) {
  return absl::ToChronoMilliseconds(duration);
}

// All-reduces up to this size go in one round.
constexpr std::size_t kSmallBytes = 1024;
// Among more ranks than this, slices up to this size go in log2(world) rounds: world - 1 messages a
// rank cost more in wake-ups than the bytes they carry, and few ranks gain nothing.
constexpr int kManyRanks = 8;
constexpr std::size_t kLogStepBytes = 16 << 10;
// Bytes of an address in the exchange that follows connecting.
constexpr std::size_t kAddressBytes = 96;

class GlooCommunicator final : public HostCommunicator {
 public:
  GlooCommunicator(const GlooOptions& options, std::shared_ptr<gloo::rendezvous::Context> context)
      : HostCommunicator(options.rank, options.world_size),
        options_(options),
        context_(std::move(context)),
        addresses_(static_cast<std::size_t>(options.world_size)) {}

  // Gloo's errors name addresses, ours name ranks: every rank tells each peer the address that the
  // peer sees at its end of their connection.
  absl::Status LearnAddresses();

  [[nodiscard]] std::string kind() const override { return "gloo"; }

 private:
  // One message in flight: `bytes` at `offset` of a buffer, to or from `peer`.
  struct Part {
    int peer;
    std::size_t offset;
    std::size_t bytes;
    std::uint64_t slot;
  };
  class Exchange;

  absl::Status RunAllGather(const Vector& shard, const Vector& unit) override;
  absl::Status RunReduceScatter(const Vector& unit, const Vector& shard) override;
  absl::Status RunAllReduce(const Vector& data) override;
  absl::Status RunBroadcast(const Vector& data, int root) override;
  absl::Status RunBarrier() override;
  void Interrupt() override;

  absl::Status GatherSlices(const char* operation, const void* mine, const Vector& unit,
                            const std::vector<std::int64_t>& begins);
  absl::Status ReduceSlices(const char* operation, const Vector& unit,
                            const std::vector<std::int64_t>& begins, void* out);
  // Slices of one size that log steps are for.
  [[nodiscard]] bool UsesLogSteps(std::size_t slice_bytes) const {
    return world_size() > kManyRanks && slice_bytes <= kLogStepBytes;
  }
  // The messages of log steps that begin at `slot`.
  SwapMessages SwapFrom(std::uint64_t slot);
  absl::Status GatherManySmall(const char* operation, const void* mine, const Vector& unit);
  absl::Status ReduceManySmall(const char* operation, const Vector& unit, const Vector& shard);

  // Runs `body`, which may throw out of gloo, and gives errors our form.
  template <typename Body>
  absl::Status Guard(const char* operation, Body body);
  absl::Status Translate(const char* operation, const std::string& what) const;
  absl::Status Interrupted() const { return Health(); }
  // Unique to a message: 24 bits of collective number, 16 of what it is, 24 of segment (added by
  // the caller). Ranks that issue different collectives never match, and time out: gloo's reader
  // thread would end the process over a message of another length.
  std::uint64_t NextSlot(const char* operation, std::int64_t size_bytes);
  std::byte* Scratch(std::size_t size_bytes);

  const GlooOptions options_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::vector<std::string> addresses_;
  std::uint64_t collective_ = 0;
  std::vector<std::byte> scratch_;
  std::mutex live_mutex_;
  bool interrupted_ = false;       // guarded by live_mutex_
  std::set<UnboundBuffer*> live_;  // guarded by live_mutex_; what Interrupt must wake
};

// A buffer with its messages of one collective; Interrupt wakes its waits.
class GlooCommunicator::Exchange {
 public:
  Exchange(GlooCommunicator& owner, void* data, std::size_t size_bytes)
      : owner_(owner), buffer_(owner.context_->createUnboundBuffer(data, size_bytes)) {
    const std::lock_guard<std::mutex> lock(owner_.live_mutex_);
    owner_.live_.insert(buffer_.get());
    if (owner_.interrupted_) Wake(*buffer_);
  }
  ~Exchange() {
    const std::lock_guard<std::mutex> lock(owner_.live_mutex_);
    owner_.live_.erase(buffer_.get());
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  static void Wake(UnboundBuffer& buffer) {
    buffer.abortWaitRecv();
    buffer.abortWaitSend();
  }

  void Send(const Part& part) {
    buffer_->send(part.peer, part.slot, part.offset, part.bytes);
    ++sends_;
  }
  void Receive(const Part& part) {
    buffer_->recv(part.peer, part.slot, part.offset, part.bytes);
    missing_.insert(part.peer);
    ++receives_;
  }
  // All posted receives have arrived; false: interrupted.
  bool WaitReceives() {
    for (; receives_ > 0; --receives_) {
      int from = -1;
      if (!buffer_->waitRecv(&from, Milliseconds(owner_.options_.timeout))) return false;
      missing_.erase(from);
    }
    return true;
  }
  bool WaitSends() {
    for (; sends_ > 0; --sends_) {
      if (!buffer_->waitSend(nullptr, Milliseconds(owner_.options_.timeout))) return false;
    }
    return true;
  }

 private:
  GlooCommunicator& owner_;
  std::unique_ptr<UnboundBuffer> buffer_;
  std::set<int> missing_;
  int sends_ = 0;
  int receives_ = 0;
};

std::uint64_t GlooCommunicator::NextSlot(const char* operation, std::int64_t size_bytes) {
  std::uint64_t what = static_cast<std::uint64_t>(size_bytes);
  for (const char* c = operation; *c != '\0'; ++c) {
    what = (what ^ static_cast<unsigned char>(*c)) * 0x9E3779B97F4A7C15ULL;
    what ^= what >> 29;
  }
  return (++collective_ << 40) | ((what >> 48) << 24);
}

std::byte* GlooCommunicator::Scratch(std::size_t size_bytes) {
  if (scratch_.size() < size_bytes) scratch_.resize(size_bytes);
  return scratch_.data();
}

void GlooCommunicator::Interrupt() {
  {
    const std::lock_guard<std::mutex> lock(live_mutex_);
    interrupted_ = true;
    for (UnboundBuffer* buffer : live_) Exchange::Wake(*buffer);
  }
  context_->closeConnections();
}

absl::Status GlooCommunicator::Translate(const char* operation, const std::string& what) const {
  const std::string where = absl::StrFormat("rank %d: %s (%s)", rank(), operation, options_.name);
  if (absl::StrContains(what, "Timed out")) {
    return absl::DeadlineExceededError(
        absl::StrFormat("%s: a peer did not answer within %s: it hangs, or is much slower", where,
                        absl::FormatDuration(options_.timeout)));
  }
  for (int peer = 0; peer < world_size(); ++peer) {
    const std::string& address = addresses_[static_cast<std::size_t>(peer)];
    if (!address.empty() && absl::StrContains(what, address)) {
      return WithPeer(absl::UnavailableError(absl::StrFormat(
                          "%s: rank %d is gone (connection to %s lost)", where, peer, address)),
                      peer);
    }
  }
  return absl::UnavailableError(absl::StrFormat("%s: a peer is gone: %s", where, what));
}

template <typename Body>
absl::Status GlooCommunicator::Guard(const char* operation, Body body) {
  absl::Status status;
  try {
    status = body();
  } catch (const std::exception& error) {
    status = Translate(operation, error.what());
  }
  if (status.ok()) return status;
  status = Fail(status);
  // Peers that still wait for this rank must not wait for their timeouts.
  Interrupt();
  return status;
}

SwapMessages GlooCommunicator::SwapFrom(std::uint64_t slot) {
  return [this, slot](int round, int to, std::span<const std::byte> out, int from,
                      std::span<std::byte> in) -> absl::Status {
    const std::uint64_t of_round = slot + static_cast<std::uint64_t>(round);
    Exchange sent(*this, const_cast<std::byte*>(out.data()), out.size());
    Exchange received(*this, in.data(), in.size());
    received.Receive({from, 0, in.size(), of_round});
    sent.Send({to, 0, out.size(), of_round});
    return received.WaitReceives() && sent.WaitSends() ? absl::OkStatus() : Interrupted();
  };
}

absl::Status GlooCommunicator::GatherManySmall(const char* operation, const void* mine,
                                               const Vector& unit) {
  return Guard(operation, [&] {
    const auto bytes = static_cast<std::size_t>(unit.size_bytes());
    return GatherInLogSteps(rank(), world_size(),
                            {static_cast<const std::byte*>(mine), bytes / addresses_.size()},
                            {static_cast<std::byte*>(unit.data), bytes},
                            SwapFrom(NextSlot(operation, unit.size_bytes())));
  });
}

absl::Status GlooCommunicator::ReduceManySmall(const char* operation, const Vector& unit,
                                               const Vector& shard) {
  return Guard(operation, [&]() -> absl::Status {
    const auto bytes = static_cast<std::size_t>(unit.size_bytes());
    const auto slice_bytes = static_cast<std::size_t>(shard.size_bytes());
    std::byte* received = Scratch(bytes);
    RETURN_IF_ERROR(
        ExchangeInLogSteps(rank(), world_size(), {static_cast<const std::byte*>(unit.data), bytes},
                           {received, bytes}, SwapFrom(NextSlot(operation, unit.size_bytes()))));
    std::vector<const void*> sources;
    for (std::size_t r = 0; r < addresses_.size(); ++r) {
      sources.push_back(received + r * slice_bytes);
    }
    SumInOrder(unit.dtype, sources, shard.size, shard.data);
    return absl::OkStatus();
  });
}

// unit[begins[p], begins[p + 1]) = rank p's; `mine` (this rank's) may already lie in place.
absl::Status GlooCommunicator::GatherSlices(const char* operation, const void* mine,
                                            const Vector& unit,
                                            const std::vector<std::int64_t>& begins) {
  return Guard(operation, [&]() -> absl::Status {
    const std::size_t element = SizeOf(unit.dtype);
    const auto bytes_of = [&](int r) {
      const auto i = static_cast<std::size_t>(r);
      return static_cast<std::size_t>(begins[i + 1] - begins[i]) * element;
    };
    const auto offset_of = [&](int r) {
      return static_cast<std::size_t>(begins[static_cast<std::size_t>(r)]) * element;
    };
    auto* base = static_cast<std::byte*>(unit.data);
    const std::uint64_t slot = NextSlot(operation, unit.size_bytes());
    Exchange in(*this, base, static_cast<std::size_t>(unit.size_bytes()));
    Exchange out(*this, const_cast<void*>(mine), bytes_of(rank()));
    for (int step = 1; step < world_size(); ++step) {
      const int from = (rank() - step + world_size()) % world_size();
      const int to = (rank() + step) % world_size();
      if (bytes_of(from) > 0) in.Receive({from, offset_of(from), bytes_of(from), slot});
      if (bytes_of(rank()) > 0) out.Send({to, 0, bytes_of(rank()), slot});
    }
    if (mine != base + offset_of(rank())) {
      std::memcpy(base + offset_of(rank()), mine, bytes_of(rank()));
    }
    if (!in.WaitReceives() || !out.WaitSends()) return Interrupted();
    return absl::OkStatus();
  });
}

// out = sum over ranks of unit[begins[rank], begins[rank + 1]). In segments, two in flight.
absl::Status GlooCommunicator::ReduceSlices(const char* operation, const Vector& unit,
                                            const std::vector<std::int64_t>& begins, void* out) {
  return Guard(operation, [&]() -> absl::Status {
    const auto world = static_cast<std::size_t>(world_size());
    const std::size_t element = SizeOf(unit.dtype);
    const auto segment =
        std::max<std::int64_t>(1, options_.segment_bytes / static_cast<std::int64_t>(element));
    const auto slice_size = [&](std::size_t r) { return begins[r + 1] - begins[r]; };
    const std::int64_t my_size = slice_size(static_cast<std::size_t>(rank()));
    std::int64_t largest = 0;
    for (std::size_t r = 0; r < world; ++r) largest = std::max(largest, slice_size(r));
    const std::int64_t width = std::min(segment, std::max<std::int64_t>(my_size, 1));
    const std::size_t half_bytes = world * static_cast<std::size_t>(width) * element;
    std::byte* scratch = Scratch(2 * half_bytes);
    const std::uint64_t slot = NextSlot(operation, unit.size_bytes());
    Exchange out_going(*this, unit.data, static_cast<std::size_t>(unit.size_bytes()));
    Exchange halves[2] = {{*this, scratch, half_bytes}, {*this, scratch + half_bytes, half_bytes}};
    const auto count_at = [&](std::int64_t size, std::int64_t k) {
      return std::clamp<std::int64_t>(size - k * segment, 0, segment);
    };
    const auto post = [&](std::int64_t k) {
      for (int step = 1; step < world_size(); ++step) {
        const int from = (rank() - step + world_size()) % world_size();
        const int to = (rank() + step) % world_size();
        if (const std::int64_t count = count_at(my_size, k); count > 0) {
          halves[k % 2].Receive({from, static_cast<std::size_t>(from * width) * element,
                                 static_cast<std::size_t>(count) * element,
                                 slot + static_cast<std::uint64_t>(k)});
        }
        const auto peer = static_cast<std::size_t>(to);
        if (const std::int64_t count = count_at(slice_size(peer), k); count > 0) {
          out_going.Send({to, static_cast<std::size_t>(begins[peer] + k * segment) * element,
                          static_cast<std::size_t>(count) * element,
                          slot + static_cast<std::uint64_t>(k)});
        }
      }
    };
    const std::int64_t num_segments = (largest + segment - 1) / segment;
    auto* base = static_cast<std::byte*>(unit.data);
    std::vector<const void*> sources(world);
    post(0);
    for (std::int64_t k = 0; k < num_segments; ++k) {
      if (k + 1 < num_segments) post(k + 1);
      if (!halves[k % 2].WaitReceives()) return Interrupted();
      const std::int64_t count = count_at(my_size, k);
      if (count == 0) continue;
      for (std::size_t r = 0; r < world; ++r) {
        sources[r] = scratch + static_cast<std::size_t>(k % 2) * half_bytes +
                     r * static_cast<std::size_t>(width) * element;
      }
      const auto me = static_cast<std::size_t>(rank());
      sources[me] = base + static_cast<std::size_t>(begins[me] + k * segment) * element;
      SumInOrder(unit.dtype, sources, count,
                 static_cast<std::byte*>(out) + static_cast<std::size_t>(k * segment) * element);
    }
    if (!out_going.WaitSends()) return Interrupted();
    return absl::OkStatus();
  });
}

absl::Status GlooCommunicator::RunAllGather(const Vector& shard, const Vector& unit) {
  if (UsesLogSteps(static_cast<std::size_t>(shard.size_bytes()))) {
    return GatherManySmall("all_gather", shard.data, unit);
  }
  std::vector<std::int64_t> begins;
  for (int r = 0; r <= world_size(); ++r) begins.push_back(r * shard.size);
  return GatherSlices("all_gather", shard.data, unit, begins);
}

absl::Status GlooCommunicator::RunReduceScatter(const Vector& unit, const Vector& shard) {
  if (UsesLogSteps(static_cast<std::size_t>(shard.size_bytes()))) {
    return ReduceManySmall("reduce_scatter", unit, shard);
  }
  std::vector<std::int64_t> begins;
  for (int r = 0; r <= world_size(); ++r) begins.push_back(r * shard.size);
  return ReduceSlices("reduce_scatter", unit, begins, shard.data);
}

// Large: slices are summed by one rank each and then gathered, so every rank gets that rank's bits.
// Small: everybody gets everything and sums alike, which saves a round trip.
absl::Status GlooCommunicator::RunAllReduce(const Vector& data) {
  const auto world = static_cast<std::size_t>(world_size());
  const auto bytes = static_cast<std::size_t>(data.size_bytes());
  if (bytes <= kSmallBytes) {
    const Vector all{Scratch(bytes * world), data.dtype, data.size * world_size()};
    std::vector<std::int64_t> begins;
    std::vector<const void*> sources;
    for (std::size_t r = 0; r <= world; ++r) {
      begins.push_back(static_cast<std::int64_t>(r) * data.size);
      if (r < world) sources.push_back(static_cast<const std::byte*>(all.data) + r * bytes);
    }
    RETURN_IF_ERROR(UsesLogSteps(bytes) ? GatherManySmall("all_reduce", data.data, all)
                                        : GatherSlices("all_reduce", data.data, all, begins));
    SumInOrder(data.dtype, sources, data.size, data.data);
    return absl::OkStatus();
  }
  std::vector<std::int64_t> begins;
  for (std::int64_t r = 0; r <= world_size(); ++r) begins.push_back(data.size * r / world_size());
  auto* mine =
      static_cast<std::byte*>(data.data) +
      static_cast<std::size_t>(begins[static_cast<std::size_t>(rank())]) * SizeOf(data.dtype);
  RETURN_IF_ERROR(ReduceSlices("all_reduce", data, begins, mine));
  return GatherSlices("all_reduce", mine, data, begins);
}

absl::Status GlooCommunicator::RunBroadcast(const Vector& data, int root) {
  return Guard("broadcast", [&]() -> absl::Status {
    const std::uint64_t slot = NextSlot("broadcast", data.size_bytes());
    const auto bytes = static_cast<std::size_t>(data.size_bytes());
    Exchange exchange(*this, data.data, bytes);
    if (rank() != root) {
      exchange.Receive({root, 0, bytes, slot});
      return exchange.WaitReceives() ? absl::OkStatus() : Interrupted();
    }
    for (int peer = 0; peer < world_size(); ++peer) {
      if (peer != root) exchange.Send({peer, 0, bytes, slot});
    }
    return exchange.WaitSends() ? absl::OkStatus() : Interrupted();
  });
}

absl::Status GlooCommunicator::LearnAddresses() {
  return Guard("connect", [&]() -> absl::Status {
    std::vector<char> mine(addresses_.size() * kAddressBytes, '\0');
    std::vector<char> theirs(mine.size(), '\0');
    const std::uint64_t slot = NextSlot("connect", 0);
    Exchange out(*this, mine.data(), mine.size());
    Exchange in(*this, theirs.data(), theirs.size());
    for (int peer = 0; peer < world_size(); ++peer) {
      if (peer == rank()) continue;
      const std::size_t offset = static_cast<std::size_t>(peer) * kAddressBytes;
      const std::string address = context_->getPair(peer)->address().str();
      address.copy(mine.data() + offset, kAddressBytes - 1);
      in.Receive({peer, offset, kAddressBytes, slot});
      out.Send({peer, offset, kAddressBytes, slot});
    }
    if (!in.WaitReceives() || !out.WaitSends()) return Interrupted();
    for (std::size_t peer = 0; peer < addresses_.size(); ++peer) {
      addresses_[peer] = theirs.data() + peer * kAddressBytes;
    }
    return absl::OkStatus();
  });
}

absl::Status GlooCommunicator::RunBarrier() {
  std::vector<std::uint16_t> marks(static_cast<std::size_t>(world_size()));
  std::uint16_t mine = 1;
  const Vector all{marks.data(), DType::kU16, world_size()};
  if (UsesLogSteps(sizeof(mine))) return GatherManySmall("barrier", &mine, all);
  std::vector<std::int64_t> begins;
  for (int r = 0; r <= world_size(); ++r) begins.push_back(r);
  return GatherSlices("barrier", &mine, all, begins);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> CreateGlooCommunicator(const GlooOptions& options,
                                                                     RendezvousStore& store) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rank %d is not one of %d", options.rank, options.world_size));
  }
  static const auto ignored = std::signal(SIGPIPE, SIG_IGN);
  static_cast<void>(ignored);
  try {
    auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.world_size);
    context->setTimeout(Milliseconds(options.timeout));
    if (options.world_size > 1) {
      gloo::transport::tcp::attr attr;
      attr.hostname = options.bind_address.empty() ? "127.0.0.1" : options.bind_address;
      std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attr);
      StoreAdapter adapter(store, absl::StrCat("gloo/", options.name, "/"), options.timeout);
      context->connectFullMesh(adapter, device);
    }
    auto communicator = std::make_unique<GlooCommunicator>(options, std::move(context));
    if (options.world_size > 1) RETURN_IF_ERROR(communicator->LearnAddresses());
    return communicator;
  } catch (const StoreError& error) {
    return Annotate(error.status,
                    absl::StrFormat("rank %d: connecting %s", options.rank, options.name));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrFormat("rank %d: connecting %s at \"%s\": %s",
                                                  options.rank, options.name, options.bind_address,
                                                  error.what()));
  }
}

}  // namespace fsdp
