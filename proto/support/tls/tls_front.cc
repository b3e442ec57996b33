#include "proto/support/tls/tls_front.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <list>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "proto/support/tls/openssl.h"
#include "proto/support/tls/socket.h"

namespace fsdp {
namespace {

using tls::SslContextPtr;
using tls::SslPtr;

// The client ports of connections that fronts have open to their servers.
class FrontPorts {
 public:
  static FrontPorts& Get() {
    static auto& ports = *new FrontPorts;
    return ports;
  }
  void Add(int port) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ports_.insert(port);
  }
  void Remove(int port) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ports_.erase(port);
  }
  bool Has(int port) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ports_.contains(port);
  }

 private:
  std::mutex mutex_;
  std::set<int> ports_;
};

// A connection to the server whose port is known as a front's for as long as it is open.
class BackendSocket {
 public:
  explicit BackendSocket(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    // Bound first: the port must be known before the server sees the connection.
    if (bind(socket_.fd(), plain, sizeof address) != 0) return;
    if (getsockname(socket_.fd(), plain, &size) != 0) return;
    port_ = ntohs(address.sin_port);
    FrontPorts::Get().Add(port_);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    connected_ = connect(socket_.fd(), plain, sizeof address) == 0;
  }
  ~BackendSocket() {
    // Before the close, after which somebody else may get the port.
    if (port_ != 0) FrontPorts::Get().Remove(port_);
  }
  BackendSocket(const BackendSocket&) = delete;
  BackendSocket& operator=(const BackendSocket&) = delete;
  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] int fd() const { return socket_.fd(); }

 private:
  const tls::Socket socket_;
  int port_ = 0;
  bool connected_ = false;
};

// One direction's bytes on their way.
struct Buffer {
  std::array<char, 16384> bytes{};
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] bool empty() const { return begin == end; }
  void Fill(std::size_t size) {
    begin = 0;
    end = size;
  }
};

enum class Moved { kSome, kNothing, kEnd };

// Moves bytes both ways until one side ends or nothing moves for `idle`. `ssl` null: in the clear.
class Pump {
 public:
  Pump(SSL* ssl, int client, int backend) : ssl_(ssl), client_(client), backend_(backend) {
    fcntl(client, F_SETFL, O_NONBLOCK);
    fcntl(backend, F_SETFL, O_NONBLOCK);
  }

  void Run(absl::Duration idle) {
    while (true) {
      want_client_write_ = false;
      bool moved = false;
      for (const Moved one : {FromClient(), ToBackend(), FromBackend(), ToClient()}) {
        if (one == Moved::kEnd) return;
        moved = moved || one == Moved::kSome;
      }
      if (backend_ended_ && to_client_.empty()) {
        if (ssl_ != nullptr) SSL_shutdown(ssl_);
        return;
      }
      if (!moved && !Wait(idle)) return;
    }
  }

 private:
  Moved OfClient(int result) {
    if (result > 0) return Moved::kSome;
    if (ssl_ == nullptr) {
      return result < 0 && errno == EAGAIN ? Moved::kNothing : Moved::kEnd;
    }
    switch (SSL_get_error(ssl_, result)) {
      case SSL_ERROR_WANT_WRITE:
        want_client_write_ = true;
        return Moved::kNothing;
      case SSL_ERROR_WANT_READ:
        return Moved::kNothing;
      default:
        ERR_clear_error();
        return Moved::kEnd;
    }
  }

  Moved FromClient() {
    if (!to_backend_.empty()) return Moved::kNothing;
    auto& bytes = to_backend_.bytes;
    const int size = ssl_ != nullptr
                         ? SSL_read(ssl_, bytes.data(), static_cast<int>(bytes.size()))
                         : static_cast<int>(recv(client_, bytes.data(), bytes.size(), 0));
    if (size > 0) to_backend_.Fill(static_cast<std::size_t>(size));
    return OfClient(size);
  }

  Moved ToBackend() {
    if (to_backend_.empty()) return Moved::kNothing;
    const ssize_t size = send(backend_, to_backend_.bytes.data() + to_backend_.begin,
                              to_backend_.end - to_backend_.begin, MSG_NOSIGNAL);
    if (size < 0) return errno == EAGAIN ? Moved::kNothing : Moved::kEnd;
    to_backend_.begin += static_cast<std::size_t>(size);
    return Moved::kSome;
  }

  Moved FromBackend() {
    if (!to_client_.empty() || backend_ended_) return Moved::kNothing;
    const ssize_t size = recv(backend_, to_client_.bytes.data(), to_client_.bytes.size(), 0);
    if (size < 0) return errno == EAGAIN ? Moved::kNothing : Moved::kEnd;
    backend_ended_ = size == 0;
    to_client_.Fill(static_cast<std::size_t>(size));
    return Moved::kSome;
  }

  Moved ToClient() {
    if (to_client_.empty()) return Moved::kNothing;
    const char* const data = to_client_.bytes.data() + to_client_.begin;
    const std::size_t left = to_client_.end - to_client_.begin;
    const int size = ssl_ != nullptr ? SSL_write(ssl_, data, static_cast<int>(left))
                                     : static_cast<int>(send(client_, data, left, MSG_NOSIGNAL));
    if (size > 0) to_client_.begin += static_cast<std::size_t>(size);
    return OfClient(size);
  }

  bool Wait(absl::Duration idle) {
    const int client_events = (to_backend_.empty() ? POLLIN : 0) |
                              (!to_client_.empty() || want_client_write_ ? POLLOUT : 0);
    const int backend_events =
        (to_client_.empty() && !backend_ended_ ? POLLIN : 0) | (!to_backend_.empty() ? POLLOUT : 0);
    std::array<pollfd, 2> both{pollfd{client_, static_cast<short>(client_events), 0},
                               pollfd{backend_, static_cast<short>(backend_events), 0}};
    return poll(both.data(), both.size(), static_cast<int>(absl::ToInt64Milliseconds(idle))) > 0;
  }

  SSL* const ssl_;
  const int client_;
  const int backend_;
  Buffer to_backend_;
  Buffer to_client_;
  bool backend_ended_ = false;
  bool want_client_write_ = false;
};

absl::StatusOr<SslContextPtr> MakeContext(const TlsMaterial& material) {
  SslContextPtr context(SSL_CTX_new(TLS_server_method()));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // A resumed session would outlive a certificate that was replaced.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  ASSIGN_OR_RETURN(const auto chain, tls::ParseCertificates(material.certificate_pem));
  ASSIGN_OR_RETURN(const tls::KeyPtr key, tls::ParseKey(material.key_pem));
  if (SSL_CTX_use_certificate(context.get(), chain.front().get()) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    return tls::OpensslToStatus("SSL_CTX_use_certificate");
  }
  for (std::size_t i = 1; i < chain.size(); ++i) {
    SSL_CTX_add1_chain_cert(context.get(), chain[i].get());
  }
  if (!material.ca_pem.empty()) {
    ASSIGN_OR_RETURN(tls::StorePtr store, tls::MakeTrustStore(material.ca_pem));
    SSL_CTX_set_cert_store(context.get(), store.release());
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return context;
}

class TlsFrontImpl : public TlsFront {
 public:
  TlsFrontImpl(Options options, std::shared_ptr<const TlsReloader> reloader)
      : options_(std::move(options)), reloader_(std::move(reloader)) {}

  ~TlsFrontImpl() override {
    if (!acceptor_.joinable()) return;
    stopping_ = true;
    const std::uint64_t one = 1;
    if (write(stop_.fd(), &one, sizeof one) < 0) LOG_ERROR("cannot wake the acceptor");
    acceptor_.join();
    for (Connection& connection : connections_) shutdown(connection.socket.fd(), SHUT_RDWR);
    for (Connection& connection : connections_) connection.thread.join();
  }

  absl::Status Start() {
    if (reloader_ != nullptr) {
      ASSIGN_OR_RETURN(context_, MakeContext(*reloader_->current()));
      served_ = reloader_->current();
    }
    ASSIGN_OR_RETURN(listener_, tls::ListenAt(options_.listen, &port_));
    acceptor_ = std::thread([this] { AcceptLoop(); });
    return absl::OkStatus();
  }

  int port() const override { return port_; }

 private:
  struct Connection {
    explicit Connection(int fd) : socket(fd) {}
    tls::Socket socket;
    SslPtr ssl;
    std::atomic<bool> done{false};
    std::thread thread;
  };

  void AcceptLoop() {
    while (!stopping_) {
      std::array<pollfd, 2> both{pollfd{listener_->fd(), POLLIN, 0}, pollfd{stop_.fd(), POLLIN, 0}};
      if (poll(both.data(), both.size(), -1) < 0 && errno != EINTR) return;
      if (stopping_) return;
      const int fd = accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC);
      Reap();
      if (fd < 0) continue;
      Take(fd);
    }
  }

  void Reap() {
    for (auto one = connections_.begin(); one != connections_.end();) {
      if (!one->done) {
        ++one;
        continue;
      }
      one->thread.join();
      one = connections_.erase(one);
    }
  }

  void Take(int fd) {
    if (connections_.size() >= static_cast<std::size_t>(options_.max_connections)) {
      close(fd);
      return;
    }
    Renew();
    Connection& connection = connections_.emplace_back(fd);
    if (context_ != nullptr) connection.ssl.reset(SSL_new(context_.get()));
    connection.thread = std::thread([this, &connection] {
      Serve(connection);
      shutdown(connection.socket.fd(), SHUT_RDWR);
      connection.done = true;
    });
  }

  // What a handshake gets is decided here, on the acceptor's thread.
  void Renew() {
    if (reloader_ == nullptr) return;
    const std::shared_ptr<const TlsMaterial> material = reloader_->current();
    if (material == served_) return;
    auto context = MakeContext(*material);
    if (!context.ok()) {
      LOG_WARNING("metrics certificate: %s", std::string(context.status().message()));
      return;
    }
    context_ = *std::move(context);
    served_ = material;
  }

  void Serve(Connection& connection) const {
    const timeval limit = absl::ToTimeval(options_.handshake_timeout);
    const int fd = connection.socket.fd();
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    SSL* const ssl = connection.ssl.get();
    if (ssl != nullptr) {
      SSL_set_fd(ssl, fd);
      ERR_clear_error();
      if (SSL_accept(ssl) != 1) {
        ERR_clear_error();
        return;
      }
    }
    const BackendSocket backend(options_.backend_port);
    if (backend.connected()) Pump(ssl, fd, backend.fd()).Run(options_.idle_timeout);
  }

  const Options options_;
  const std::shared_ptr<const TlsReloader> reloader_;
  const tls::Socket stop_{eventfd(0, EFD_CLOEXEC)};
  std::atomic<bool> stopping_{false};
  std::unique_ptr<tls::Socket> listener_;
  int port_ = 0;
  // The rest belongs to the acceptor's thread while there is one.
  SslContextPtr context_;
  std::shared_ptr<const TlsMaterial> served_;
  std::list<Connection> connections_;
  std::thread acceptor_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TlsFront>> TlsFront::Start(
    Options options, std::shared_ptr<const TlsReloader> reloader) {
  auto front = std::make_unique<TlsFrontImpl>(std::move(options), std::move(reloader));
  RETURN_IF_ERROR(front->Start());
  return front;
}

bool IsFromFront(int client_port) { return FrontPorts::Get().Has(client_port); }

}  // namespace fsdp
