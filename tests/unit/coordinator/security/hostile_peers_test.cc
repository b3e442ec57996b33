// Peers that are slow, silent, or ask for much: others are served meanwhile, and what the peer
// holds is taken away.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "tests/support/generic_call.h"
#include "tests/unit/coordinator/service_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
// An empty SETTINGS frame.
constexpr std::string_view kSettings("\0\0\0\4\0\0\0\0\0", 9);
// The head of a HEADERS frame of 1000 bytes on stream 1, and the first few of them.
constexpr std::string_view kHalfHeaders("\0\3\xe8\1\4\0\0\0\1\x83\x86", 11);

// A TCP connection that says what it is told to.
class RawPeer {
 public:
  explicit RawPeer(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawPeer() { ::close(fd_); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  void Send(std::string_view bytes) const { ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // Reads what comes until the server hangs up; false: it did not within 30 s.
  [[nodiscard]] bool WaitForHangUp() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    char buffer[4096];
    while (std::chrono::steady_clock::now() < deadline) {
      pollfd input{fd_, POLLIN, 0};
      if (::poll(&input, 1, 100) <= 0) continue;
      if (::recv(fd_, buffer, sizeof buffer, 0) <= 0) return true;
    }
    return false;
  }

 private:
  const int fd_;
  bool connected_ = false;
};

class HostilePeersTest : public ServiceTest {
 protected:
  void SetUp() override {
    options_.handshake_timeout = absl::Milliseconds(300);
    options_.max_connection_idle = absl::Milliseconds(300);
    options_.limits.streams = 500;
    options_.limits.requests_per_second = 0;
    ServiceTest::SetUp();
  }
};

TEST_F(HostilePeersTest, HalfAHandshakeIsGivenUp) {
  for (const std::string_view said : {std::string_view(""), kPreface.substr(0, 10), kPreface}) {
    const RawPeer peer(server_->port());
    ASSERT_TRUE(peer.connected());
    peer.Send(said);
    EXPECT_TRUE(peer.WaitForHangUp()) << said;
  }
}

TEST_F(HostilePeersTest, AConnectionWithoutACallIsClosed) {
  const RawPeer silent(server_->port());
  silent.Send(kPreface);
  silent.Send(kSettings);
  EXPECT_TRUE(silent.WaitForHangUp());
}

TEST_F(HostilePeersTest, HeadersThatNeverEndHoldNobodyUp) {
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < 200; ++i) {
    peers.push_back(std::make_unique<RawPeer>(server_->port()));
    ASSERT_TRUE(peers.back()->connected()) << i;
    peers.back()->Send(kPreface);
    peers.back()->Send(kSettings);
    peers.back()->Send(kHalfHeaders);
  }
  const std::string name = Submit(SmallJob(1, 1));
  EXPECT_EQ(Get(name).name(), name);
  // They never had a call.
  for (const auto& peer : peers) EXPECT_TRUE(peer->WaitForHangUp());
}

TEST_F(HostilePeersTest, GarbageIsHungUpOn) {
  for (const std::string& said :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(5000, '\xff'),
        std::string(kPreface) + std::string(5000, '\0'),
        // A frame of 16 MiB.
        std::string(kPreface) + std::string("\xff\xff\xff\0\0\0\0\0\1", 9)}) {
    const RawPeer peer(server_->port());
    peer.Send(said);
    EXPECT_TRUE(peer.WaitForHangUp()) << said.substr(0, 30);
  }
  Get(Submit(SmallJob(1, 1)));
}

TEST_F(HostilePeersTest, AMessageThatIsTooLargeIsRefused) {
  auto channel = grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
  const testing::GenericReply reply = testing::CallAnything(
      channel, "/fsdp.v1.JobService/CreateJob", std::string((16 << 20) + 1000, 'x'), "");
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const testing::GenericReply metadata =
      testing::CallAnything(channel, "/fsdp.v1.JobService/ListJobs", "", std::string(100'000, 'x'));
  EXPECT_FALSE(metadata.status.ok());
  Get(Submit(SmallJob(1, 1)));
}

// Ten thousand watchers from one host: as many as the limit stay, the others are told, and whoever
// else calls is served.
TEST_F(HostilePeersTest, TenThousandOpenStreamsDoNoHarm) {
  constexpr int kConnections = 25;
  constexpr int kStreams = 400;
  v1::WatchJobRequest request;
  request.set_name(Submit(SmallJob(1, 1)));
  const std::string bytes = request.SerializeAsString();
  struct Watcher {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
    grpc::ByteBuffer buffer;
    grpc::Status status;
    int step = 0;
  };
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<Watcher>> watchers;
  grpc::ChannelArguments own;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  for (int c = 0; c < kConnections; ++c) {
    grpc::GenericStub stub(
        grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), own));
    for (int s = 0; s < kStreams; ++s) {
      watchers.push_back(std::make_unique<Watcher>());
      Watcher& watcher = *watchers.back();
      watcher.context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(3));
      watcher.call = stub.PrepareCall(&watcher.context, "/fsdp.v1.JobService/WatchJob", &queue);
      watcher.call->StartCall(&watcher);
    }
  }
  int open = 0;
  int refused = 0;
  void* tag = nullptr;
  bool ok = false;
  // Start, write, read; then those that were refused finish.
  while (open + refused < kConnections * kStreams && queue.Next(&tag, &ok)) {
    Watcher& watcher = *static_cast<Watcher*>(tag);
    const grpc::Slice slice(bytes);
    switch (watcher.step++) {
      case 0:
        watcher.call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), &watcher);
        break;
      case 1:
        watcher.call->Read(&watcher.buffer, &watcher);
        break;
      case 2:
        if (ok) {
          ++open;
        } else {
          watcher.call->Finish(&watcher.status, &watcher);
        }
        break;
      default:
        ++refused;
        EXPECT_EQ(watcher.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
            << watcher.status.error_message();
    }
  }
  EXPECT_EQ(open, 500);
  EXPECT_EQ(refused, kConnections * kStreams - 500);
  Get(Submit(SmallJob(1, 1)));
  for (const auto& watcher : watchers) watcher->context.TryCancel();
  for (const auto& watcher : watchers) {
    if (watcher->step == 3) watcher->call->Finish(&watcher->status, watcher.get());
  }
  for (int left = open; left > 0 && queue.Next(&tag, &ok); --left) {
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  // Their places are free again.
  Eventually(
      [&] {
        grpc::ClientContext context;
        auto stream = jobs_->WatchJob(&context, request);
        v1::WatchJobResponse response;
        const bool read = stream->Read(&response);
        context.TryCancel();
        while (stream->Read(&response)) {
        }
        stream->Finish();
        return read;
      },
      "a place for one more");
}

}  // namespace
}  // namespace fsdp::coordinator
