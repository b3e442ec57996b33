#include "proto/support/framed_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fsdp/v1/trainer.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

struct Ends {
  Ends() : Ends(MakeSocketPair().value()) {}
  explicit Ends(std::pair<int, int> fds) : raw(fds.second), socket(fds.first) {}
  void CloseRaw() { ::close(raw); }
  void SendRaw(const std::string& bytes) const {
    ASSERT_EQ(::send(raw, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  int raw;
  FramedSocket socket;
};

v1::TrainerToDaemon Hello(int pid) {
  v1::TrainerToDaemon message;
  message.mutable_hello()->set_pid(pid);
  message.mutable_hello()->set_backend("cpu");
  return message;
}

TEST(FramedSocketTest, MessagesArriveInOrderAndTheEndIsOutOfRange) {
  Ends ends;
  FramedSocket peer(ends.raw);
  ASSERT_TRUE(ends.socket.Write(Hello(1)).ok());
  ASSERT_TRUE(ends.socket.Write(v1::TrainerToDaemon()).ok());  // An empty payload is a message.
  ASSERT_TRUE(ends.socket.Write(Hello(2)).ok());
  ends.socket.Shutdown();
  v1::TrainerToDaemon got;
  ASSERT_TRUE(peer.Read(&got).ok());
  EXPECT_EQ(got.hello().pid(), 1);
  ASSERT_TRUE(peer.Read(&got).ok());
  EXPECT_EQ(got.message_case(), v1::TrainerToDaemon::MESSAGE_NOT_SET);
  ASSERT_TRUE(peer.Read(&got).ok());
  EXPECT_EQ(got.hello().pid(), 2);
  EXPECT_TRUE(absl::IsOutOfRange(peer.Read(&got)));
}

TEST(FramedSocketTest, TheWireFormIsALittleEndianLengthAndTheMessage) {
  Ends ends;
  ASSERT_TRUE(ends.socket.Write(Hello(5)).ok());
  const std::string payload = Hello(5).SerializeAsString();
  std::string bytes(4 + payload.size(), '\0');
  ASSERT_EQ(::recv(ends.raw, bytes.data(), bytes.size(), MSG_WAITALL),
            static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(bytes, std::string({static_cast<char>(payload.size()), 0, 0, 0}) + payload);
  ends.CloseRaw();
}

TEST(FramedSocketTest, AnEndInsideAMessageIsDataLossAtEveryByte) {
  const std::string frame = EncodeFrame(Hello(77)).value();
  for (std::size_t cut = 1; cut < frame.size(); ++cut) {
    Ends ends;
    ends.SendRaw(frame.substr(0, cut));
    ends.CloseRaw();
    v1::TrainerToDaemon got;
    EXPECT_TRUE(absl::IsDataLoss(ends.socket.Read(&got))) << cut;
  }
}

TEST(FramedSocketTest, AnOversizeLengthIsRefusedWithoutAllocating) {
  Ends ends;
  ends.SendRaw("\xff\xff\xff\xff");
  v1::TrainerToDaemon got;
  const absl::Status status = ends.socket.Read(&got);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("4294967295 bytes"));
  ends.CloseRaw();
}

TEST(FramedSocketTest, GarbageIsDataLossAndNamesTheMessage) {
  Ends ends;
  ends.SendRaw(std::string("\x03\x00\x00\x00\xff\xff\xff", 7));
  v1::TrainerToDaemon got;
  const absl::Status status = ends.socket.Read(&got);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("fsdp.v1.TrainerToDaemon"));
  ends.CloseRaw();
}

TEST(FramedSocketTest, TooLongAMessageIsRefusedAndTheLinkStaysUsable) {
  Ends ends;
  FramedSocket peer(ends.raw);
  v1::TrainerToDaemon big;
  big.mutable_notice()->set_message(std::string(kMaxFrameBytes + 1, 'x'));
  EXPECT_TRUE(absl::IsResourceExhausted(ends.socket.Write(big)));
  ASSERT_TRUE(ends.socket.Write(Hello(3)).ok());
  v1::TrainerToDaemon got;
  ASSERT_TRUE(peer.Read(&got).ok());
  EXPECT_EQ(got.hello().pid(), 3);
}

TEST(FramedSocketTest, WritingToAClosedPeerIsUnavailable) {
  Ends ends;
  ends.CloseRaw();
  EXPECT_TRUE(absl::IsUnavailable(ends.socket.Write(Hello(1))));
}

TEST(FramedSocketTest, APeerThatReadsNothingTimesOutAndTheLinkIsBroken) {
  const std::pair<int, int> fds = MakeSocketPair().value();
  FramedSocket socket(fds.first, {.write_timeout = absl::Milliseconds(1)});
  v1::TrainerToDaemon big;
  big.mutable_notice()->set_message(std::string(8 << 20, 'x'));
  EXPECT_TRUE(absl::IsDeadlineExceeded(socket.Write(big)));
  EXPECT_TRUE(absl::IsFailedPrecondition(socket.Write(Hello(1))));
  ::close(fds.second);
}

TEST(FramedSocketTest, FramesOfConcurrentWritersDoNotMixOnANonBlockingSocket) {
  Ends ends;
  ASSERT_EQ(::fcntl(ends.raw, F_SETFL, O_NONBLOCK), 0);
  ASSERT_EQ(::fcntl(ends.socket.fd(), F_SETFL, O_NONBLOCK), 0);
  FramedSocket peer(ends.raw);
  constexpr int kWriters = 4;
  constexpr int kEach = 100;
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < kEach; ++i) {
        v1::TrainerToDaemon message = Hello(w * kEach + i);
        message.mutable_hello()->set_backend(std::string(5000 + i, static_cast<char>('a' + w)));
        ASSERT_TRUE(ends.socket.Write(message).ok());
      }
    });
  }
  std::set<int> seen;
  for (int i = 0; i < kWriters * kEach; ++i) {
    v1::TrainerToDaemon got;
    ASSERT_TRUE(peer.Read(&got).ok());
    const int pid = got.hello().pid();
    EXPECT_EQ(got.hello().backend(),
              std::string(5000 + pid % kEach, static_cast<char>('a' + pid / kEach)));
    seen.insert(pid);
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kWriters * kEach));
  for (std::thread& writer : writers) writer.join();
}

TEST(FrameDecoderTest, GivesTheSameMessagesForEverySplitOfTheBytes) {
  const std::string bytes = EncodeFrame(Hello(1)).value() + EncodeFrame(Hello(2)).value();
  for (std::size_t split = 0; split <= bytes.size(); ++split) {
    FrameDecoder decoder;
    std::vector<int> pids;
    for (const std::string& part : {bytes.substr(0, split), bytes.substr(split)}) {
      decoder.Append(part);
      while (true) {
        const std::optional<std::string> payload = decoder.Next().value();
        if (!payload) break;
        v1::TrainerToDaemon got;
        ASSERT_TRUE(ParsePayload(*payload, &got).ok());
        pids.push_back(got.hello().pid());
      }
    }
    EXPECT_EQ(pids, (std::vector<int>{1, 2})) << split;
    EXPECT_EQ(decoder.num_pending_bytes(), 0u);
  }
}

TEST(FrameDecoderTest, AnOversizeLengthIsAnErrorThatStays) {
  FrameDecoder decoder;
  decoder.Append(std::string("\x01\x00\x00\x01", 4));
  EXPECT_TRUE(absl::IsResourceExhausted(decoder.Next().status()));
  EXPECT_TRUE(absl::IsResourceExhausted(decoder.Next().status()));
}

}  // namespace
}  // namespace fsdp
