// Stands in for fsdp-coordinator in tests of `fsdpctl local`: serves a FakeService with four ready
// workers, writes the port file, and ends at SIGTERM. With a file "die" in its state directory it
// fails at once.

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "tests/unit/client/fake_service.h"

namespace {

// Value of --name=value.
std::string FlagOf(int argc, char** argv, const std::string& name) {
  const std::string prefix = "--" + name + "=";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind(prefix, 0) == 0) return argument.substr(prefix.size());
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const std::filesystem::path state_dir = FlagOf(argc, argv, "state-dir");
  if (std::filesystem::exists(state_dir / "die")) {
    std::cerr << "the store is corrupt\n";
    return 3;
  }
  const std::string listen = FlagOf(argc, argv, "listen");
  fsdp::FakeService service(std::stoi(listen.substr(listen.rfind(':') + 1)));
  for (int i = 0; i < 4; ++i) {
    fsdp::v1::Worker worker;
    worker.set_name("workers/local-" + std::to_string(i));
    worker.set_state(fsdp::v1::WORKER_STATE_READY);
    worker.set_metrics_address("127.0.0.1:1");
    service.PutWorker(worker);
  }
  std::ofstream(state_dir / "pids", std::ios::app) << getpid() << "\n";
  const std::string port_file = FlagOf(argc, argv, "port-file");
  const std::string port = service.address().substr(service.address().rfind(':') + 1);
  std::ofstream(port_file + ".tmp") << "{\"grpc\":" << port << "}\n";
  std::filesystem::rename(port_file + ".tmp", port_file);
  int signal = 0;
  sigwait(&signals, &signal);
  return 0;
}
