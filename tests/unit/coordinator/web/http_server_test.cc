#include "coordinator/web/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>

#include "absl/strings/str_cat.h"

namespace fsdp::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(HttpServerOptions options = {}, HttpServer::Admit admit = nullptr) {
    options.listen = "127.0.0.1:0";
    auto server = HttpServer::Start(
        options,
        [this](const HttpRequest& request) {
          ++handled_;
          HttpResponse response;
          response.body = absl::StrCat(request.method, " ", request.path, "?", request.query, " ",
                                       std::string(request.Header("x-one")), " ", request.body);
          return response;
        },
        std::move(admit));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  [[nodiscard]] int Connect() const {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(server_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  static void Write(int fd, const std::string& text) {
    send(fd, text.data(), text.size(), MSG_NOSIGNAL);
  }
  // Until the server closes.
  static std::string ReadAll(int fd) {
    std::string text;
    std::array<char, 4096> buffer{};
    for (ssize_t size = 0; (size = read(fd, buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<std::size_t>(size));
    }
    close(fd);
    return text;
  }
  [[nodiscard]] std::string Exchange(const std::string& request) const {
    const int fd = Connect();
    Write(fd, request);
    return ReadAll(fd);
  }

  std::atomic<int> handled_ = 0;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, PassesRequestsOn) {
  Start();
  EXPECT_THAT(Exchange("GET /a%20b?c=%20d HTTP/1.1\r\nHost: x\r\nX-One: 1\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("GET /a b?c=%20d 1 ")));
  EXPECT_THAT(Exchange("POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"),
              HasSubstr("POST /p?  abc"));
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  Start();
  const std::string answer = Exchange("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Length: "),
                            ::testing::EndsWith("\r\n\r\n")));
}

TEST_F(HttpServerTest, WhatIsNoRequestIsRefusedWithTheSameHeaders) {
  Start();
  for (const char* request :
       {"GARBAGE\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n"}) {
    const std::string answer = Exchange(request);
    if (answer.empty()) continue;  // Closed at once: as good.
    EXPECT_THAT(answer, AllOf(Not(StartsWith("HTTP/1.1 2")), HasSubstr("frame-ancestors 'none'"),
                              HasSubstr("nosniff")))
        << request;
  }
  EXPECT_EQ(handled_, 0);
}

TEST_F(HttpServerTest, OversizedRequestsAreRefused) {
  Start({.max_head_bytes = 2048, .max_body_bytes = 100});
  const std::string head = Exchange(
      absl::StrCat("GET / HTTP/1.1\r\nHost: x\r\nA: ", std::string(4000, 'a'), "\r\n\r\n"));
  EXPECT_THAT(head, Not(StartsWith("HTTP/1.1 2")));
  EXPECT_THAT(Exchange(absl::StrCat("GET /", std::string(4000, 'a'), " HTTP/1.1\r\n\r\n")),
              Not(StartsWith("HTTP/1.1 2")));
  EXPECT_THAT(Exchange(absl::StrCat("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n",
                                    std::string(101, 'b'))),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Exchange(absl::StrCat("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n",
                                    "\r\n80\r\n", std::string(128, 'b'), "\r\n0\r\n\r\n")),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_EQ(handled_, 0);
}

// One that says a little and stops has a thread for the timeout, no longer, and others are served.
TEST_F(HttpServerTest, ASlowClientIsCutOffAndHoldsNobodyUp) {
  Start({.num_threads = 2, .request_timeout = absl::Milliseconds(300)});
  const int slow = Connect();
  Write(slow, "GET / HTTP/1.1\r\nHost:");
  EXPECT_THAT(Exchange("GET /fast HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("GET /fast"));
  EXPECT_THAT(ReadAll(slow), Not(StartsWith("HTTP/1.1 2")));
  EXPECT_EQ(handled_, 1);
}

TEST_F(HttpServerTest, AnswersOnlyWhomItAdmits) {
  Start({}, [](int port) { return port < 0; });
  EXPECT_THAT(Exchange("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), StartsWith("HTTP/1.1 403 "));
  EXPECT_EQ(handled_, 0);
}

TEST_F(HttpServerTest, ATakenAddressIsSaid) {
  Start();
  const auto second = HttpServer::Start({.listen = absl::StrCat("127.0.0.1:", server_->port())},
                                        [](const HttpRequest&) { return HttpResponse(); });
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(
      std::string(second.status().message()),
      AllOf(HasSubstr(absl::StrCat("127.0.0.1:", server_->port())), HasSubstr("--web-listen")));
}

}  // namespace
}  // namespace fsdp::coordinator
