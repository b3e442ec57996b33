// Real handshakes on loopback: what a front lets through, and how a probe explains what it does
// not.

#include "proto/support/tls/tls_front.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <csignal>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "proto/support/clock.h"
#include "proto/support/log.h"
#include "proto/support/tls/socket.h"
#include "proto/support/tls/tls_probe.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/proto/tls/test_pki.h"

namespace fsdp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Greets everybody as an HTTP/2 server does, with an empty SETTINGS frame, and remembers whether
// they came through a front.
class Greeter {
 public:
  Greeter() : listener_(tls::ListenAt("127.0.0.1:0", &port_).value()) {
    thread_ = std::thread([this] {
      while (true) {
        sockaddr_in peer{};
        socklen_t size = sizeof peer;
        const int fd = accept(listener_->fd(), reinterpret_cast<sockaddr*>(&peer), &size);
        if (fd < 0) return;
        const tls::Socket socket(fd);
        from_front_ = IsFromFront(ntohs(peer.sin_port));
        constexpr char kSettings[] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
        send(fd, kSettings, sizeof kSettings, MSG_NOSIGNAL);
      }
    });
  }
  ~Greeter() {
    shutdown(listener_->fd(), SHUT_RDWR);
    thread_.join();
  }
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] bool from_front() const { return from_front_; }

 private:
  int port_ = 0;
  std::atomic<bool> from_front_{false};
  const std::unique_ptr<tls::Socket> listener_;
  std::thread thread_;
};

class TlsFrontTest : public ::testing::Test {
 protected:
  TlsFrontTest()
      : authority_(NewAuthority("cluster-a", absl::Now())),
        other_(NewAuthority("cluster-b", absl::Now())) {
    std::signal(SIGPIPE, SIG_IGN);
    SetLogLevel(LogLevel::kError);
    ca_ = folder_.Write("ca.crt", authority_->certificate_pem());
  }

  TlsFiles Put(const std::string& name, const tls::KeyPair& pair, const std::string& ca) {
    TlsFiles files{.certificate = folder_.Write(name + ".crt", pair.certificate),
                   .key = folder_.Write(name + ".key", pair.key),
                   .ca = ca};
    chmod(files.key.c_str(), 0600);
    return files;
  }

  void Serve(const tls::KeyPair& pair, const std::string& client_ca = "") {
    reloader_ = std::shared_ptr<TlsReloader>(
        TlsReloader::Create("metrics", Put("server", pair, client_ca), {}, Clock::Real()).value());
    front_ = TlsFront::Start({.listen = "127.0.0.1:0", .backend_port = greeter_.port()}, reloader_)
                 .value();
  }

  [[nodiscard]] TlsProbe ProbeOf(TlsFiles files) const {
    return {.server = absl::StrCat("127.0.0.1:", front_->port()),
            .files = std::move(files),
            .timeout = absl::Seconds(20)};
  }

  const TemporaryFolder folder_;
  const std::unique_ptr<tls::Authority> authority_;
  const std::unique_ptr<tls::Authority> other_;
  std::string ca_;
  Greeter greeter_;
  std::shared_ptr<TlsReloader> reloader_;
  std::unique_ptr<TlsFront> front_;
};

TEST_F(TlsFrontTest, BytesGoThroughAndTheServerKnowsWhereTheyComeFrom) {
  Serve(IssueServer(*authority_, absl::Now()));
  EXPECT_TRUE(ProbeTls(ProbeOf({.ca = ca_})).ok()) << ProbeTls(ProbeOf({.ca = ca_}));
  EXPECT_TRUE(greeter_.from_front());
  // Around the front.
  const auto direct = tls::Dial(absl::StrCat("127.0.0.1:", greeter_.port()), absl::Seconds(20));
  char byte = 0;
  ASSERT_EQ(recv(direct->fd(), &byte, 1, 0), 1);
  EXPECT_FALSE(greeter_.from_front());
}

TEST_F(TlsFrontTest, AReplacedCertificateIsShownToTheNext) {
  Serve(IssueServer(*authority_, absl::Now()));
  const std::string address = absl::StrCat("127.0.0.1:", front_->port());
  const auto serial = [&] {
    return tls::ReadCertificates(FetchChain(address, absl::Seconds(20)).value())
        .value()
        .front()
        .serial;
  };
  const std::string before = serial();
  EXPECT_EQ(serial(), before);
  Put("server", IssueServer(*authority_, absl::Now()), "");
  ASSERT_TRUE(reloader_->Reload());
  EXPECT_NE(serial(), before);
}

TEST_F(TlsFrontTest, AnUnknownAuthorityIsNamed) {
  Serve(IssueServer(*other_, absl::Now()));
  const absl::Status status = ProbeTls(ProbeOf({.ca = ca_}));
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("signed by CN = cluster-b"), HasSubstr("--tls-ca " + ca_)));
}

TEST_F(TlsFrontTest, AWrongNameIsTold) {
  Serve(IssueServer(*authority_, absl::Now()));
  TlsProbe probe = ProbeOf({.ca = ca_});
  probe.server_name = "other.example";
  const absl::Status status = ProbeTls(probe);
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("localhost, 127.0.0.1"), HasSubstr("not for other.example")));
  probe.server_name = "localhost";
  EXPECT_TRUE(ProbeTls(probe).ok());
}

TEST_F(TlsFrontTest, AnEndedCertificateIsTold) {
  // Good in the eyes of a server whose clock is a day behind.
  class Yesterday : public Clock {
   public:
    [[nodiscard]] MonotonicTime Now() const override { return Clock::Real().Now(); }
    [[nodiscard]] absl::Time WallNow() const override { return absl::Now() - absl::Hours(24); }
  } yesterday;
  const TlsFiles files = Put("server", IssueServer(*authority_, absl::Now(), -absl::Hours(1)), "");
  reloader_ =
      std::shared_ptr<TlsReloader>(TlsReloader::Create("metrics", files, {}, yesterday).value());
  front_ = TlsFront::Start({.listen = "127.0.0.1:0", .backend_port = greeter_.port()}, reloader_)
               .value();
  const absl::Status status = ProbeTls(ProbeOf({.ca = ca_}));
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("ended"), HasSubstr("ca renew")));
}

TEST_F(TlsFrontTest, ClientsAreCheckedWhenThereIsAnAuthorityForThem) {
  Serve(IssueServer(*authority_, absl::Now()), ca_);
  const absl::Status none = ProbeTls(ProbeOf({.ca = ca_}));
  EXPECT_TRUE(absl::IsUnauthenticated(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("wants a client certificate"));
  EXPECT_TRUE(
      ProbeTls(ProbeOf(Put("alice", IssueUser(*authority_, "alice", absl::Now()), ca_))).ok());
  const absl::Status foreign =
      ProbeTls(ProbeOf(Put("eve", IssueUser(*other_, "eve", absl::Now()), ca_)));
  EXPECT_TRUE(absl::IsUnauthenticated(foreign)) << foreign;
  EXPECT_THAT(std::string(foreign.message()),
              HasSubstr("refuses the certificate of fsdp://user/eve"));
}

TEST_F(TlsFrontTest, OneSideInTheClearIsTold) {
  Serve(IssueServer(*authority_, absl::Now()));
  const absl::Status plain_client = ProbeTls(ProbeOf({}));
  EXPECT_TRUE(absl::IsUnauthenticated(plain_client)) << plain_client;
  EXPECT_THAT(std::string(plain_client.message()), HasSubstr("speaks TLS: give --tls-ca"));
  TlsProbe probe = ProbeOf({.ca = ca_});
  probe.server = absl::StrCat("127.0.0.1:", greeter_.port());
  const absl::Status plain_server = ProbeTls(probe);
  EXPECT_TRUE(absl::IsUnauthenticated(plain_server)) << plain_server;
  EXPECT_THAT(std::string(plain_server.message()), HasSubstr("does not speak TLS"));
}

TEST_F(TlsFrontTest, WithoutAReloaderItIsAWayInOverIpv6InTheClear) {
  auto front = TlsFront::Start({.listen = "[::1]:0", .backend_port = greeter_.port()}, nullptr);
  if (absl::IsUnavailable(front.status())) GTEST_SKIP() << "no IPv6 here: " << front.status();
  ASSERT_TRUE(front.ok()) << front.status();
  const auto socket = tls::Dial(absl::StrCat("[::1]:", (*front)->port()), absl::Seconds(20));
  ASSERT_NE(socket, nullptr);
  char greeting[9] = {};
  EXPECT_EQ(recv(socket->fd(), greeting, sizeof greeting, MSG_WAITALL), 9);
  EXPECT_EQ(greeting[3], 4);
  EXPECT_TRUE(greeter_.from_front());
}

TEST_F(TlsFrontTest, NobodyThereIsNoMatterOfTls) {
  Serve(IssueServer(*authority_, absl::Now()));
  const TlsProbe probe = ProbeOf({.ca = ca_});
  front_.reset();
  EXPECT_TRUE(ProbeTls(probe).ok());
  EXPECT_TRUE(absl::IsUnavailable(FetchChain(probe.server, absl::Seconds(20)).status()));
}

}  // namespace
}  // namespace fsdp
