#ifndef FSDPCTL_TESTS_SUPPORT_ETCD_PROCESS_H_
#define FSDPCTL_TESTS_SUPPORT_ETCD_PROCESS_H_

// An etcd of one member on loopback (Debian's etcd-server), which ends with this object and with
// the process that made it.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "coordinator/store/etcd/etcd_client.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_folder.h"

namespace fsdp {

class EtcdProcess {
 public:
  explicit EtcdProcess(std::vector<std::string> flags = {}) {
    const std::string client = "http://127.0.0.1:" + std::to_string(port_);
    const std::string peer = "http://127.0.0.1:" + std::to_string(FreePort());
    std::vector<std::string> words = {"etcd",
                                      "--data-dir=" + folder_.Path("data"),
                                      "--listen-client-urls=" + client,
                                      "--advertise-client-urls=" + client,
                                      "--listen-peer-urls=" + peer,
                                      "--initial-advertise-peer-urls=" + peer,
                                      "--initial-cluster=default=" + peer,
                                      "--heartbeat-interval=50",
                                      "--election-timeout=500"};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string log = folder_.Path("log");
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    execvp("etcd", arguments.data());
    _exit(127);
  }
  ~EtcdProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  EtcdProcess(const EtcdProcess&) = delete;
  EtcdProcess& operator=(const EtcdProcess&) = delete;

  [[nodiscard]] std::string member() const { return "127.0.0.1:" + std::to_string(port_); }

  // Once it answers; a failure of the test, and null, when it does not within a minute.
  [[nodiscard]] std::unique_ptr<coordinator::EtcdClient> Connect() const {
    auto client =
        coordinator::EtcdClient::Create({.members = {member()}, .patience = absl::Seconds(60)});
    EXPECT_TRUE(client.ok()) << client.status();
    coordinator::etcd::RangeRequest request;
    request.set_key("ready");
    const auto answered = (*client)->Range(request);
    EXPECT_TRUE(answered.ok()) << answered.status() << " (is etcd-server installed?)\n"
                               << folder_.Read("log");
    return answered.ok() ? *std::move(client) : nullptr;
  }

 private:
  static int FreePort() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                       getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    close(fd);
    EXPECT_TRUE(bound);
    return ntohs(address.sin_port);
  }

  TemporaryFolder folder_;
  const int port_ = FreePort();
  pid_t pid_ = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_SUPPORT_ETCD_PROCESS_H_
