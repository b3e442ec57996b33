#include "worker/comm/log_steps.h"

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace fsdp {
namespace {

// Ranks as threads; what is sent waits for its receiver.
class Mail {
 public:
  SwapMessages Of(int rank) {
    return [this, rank](int round, int to, std::span<const std::byte> out, int from,
                        std::span<std::byte> in) -> absl::Status {
      std::unique_lock<std::mutex> lock(mutex_);
      ++num_messages_;
      letters_[{rank, to, round}].assign(out.begin(), out.end());
      changed_.notify_all();
      const Key key{from, rank, round};
      changed_.wait(lock, [&] { return letters_.contains(key); });
      EXPECT_EQ(letters_[key].size(), in.size());
      std::memcpy(in.data(), letters_[key].data(), in.size());
      return absl::OkStatus();
    };
  }
  [[nodiscard]] int num_messages() const { return num_messages_; }

 private:
  using Key = std::tuple<int, int, int>;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::vector<std::byte>> letters_;
  int num_messages_ = 0;
};

void OnAllRanks(int world, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

// Tells where it comes from and whom it is for.
std::uint32_t Word(int from, int to) { return static_cast<std::uint32_t>(from * 1000 + to); }

class LogStepsTest : public testing::TestWithParam<int> {};

TEST_P(LogStepsTest, AGatherHasEveryRanksBlockInOrder) {
  const int world = GetParam();
  Mail mail;
  OnAllRanks(world, [&](int rank) {
    const std::uint32_t mine[2] = {Word(rank, 1), Word(rank, 2)};
    std::vector<std::uint32_t> all(static_cast<std::size_t>(2 * world));
    EXPECT_TRUE(GatherInLogSteps(rank, world, std::as_bytes(std::span(mine)),
                                 std::as_writable_bytes(std::span(all)), mail.Of(rank))
                    .ok());
    for (int r = 0; r < world; ++r) {
      EXPECT_EQ(all[static_cast<std::size_t>(2 * r)], Word(r, 1));
      EXPECT_EQ(all[static_cast<std::size_t>(2 * r + 1)], Word(r, 2));
    }
  });
  int rounds = 0;
  while ((1 << rounds) < world) ++rounds;
  EXPECT_EQ(mail.num_messages(), world * rounds);
}

TEST_P(LogStepsTest, AnExchangeBringsEachBlockToItsRank) {
  const int world = GetParam();
  Mail mail;
  OnAllRanks(world, [&](int rank) {
    std::vector<std::uint32_t> blocks(static_cast<std::size_t>(world));
    std::vector<std::uint32_t> received(blocks.size());
    for (int to = 0; to < world; ++to) blocks[static_cast<std::size_t>(to)] = Word(rank, to);
    EXPECT_TRUE(ExchangeInLogSteps(rank, world, std::as_bytes(std::span(blocks)),
                                   std::as_writable_bytes(std::span(received)), mail.Of(rank))
                    .ok());
    for (int from = 0; from < world; ++from) {
      EXPECT_EQ(received[static_cast<std::size_t>(from)], Word(from, rank));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, LogStepsTest, testing::Values(1, 2, 3, 4, 5, 7, 8, 9, 16, 23));

TEST(LogStepsErrorTest, AFailedMessageEndsTheCollective) {
  const SwapMessages swap = [](int round, int, std::span<const std::byte>, int,
                               std::span<std::byte>) {
    return round < 1 ? absl::OkStatus() : absl::UnavailableError("gone");
  };
  std::vector<std::byte> all(8);
  std::vector<std::byte> received(8);
  EXPECT_EQ(GatherInLogSteps(0, 8, std::span(all).first(1), received, swap).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(ExchangeInLogSteps(0, 8, all, received, swap).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace fsdp
