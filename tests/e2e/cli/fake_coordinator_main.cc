// Stands in for fsdp-coordinator in tests of `fsdpctl local`: serves a FakeService, writes the port
// file, notes where it was to listen, has four ready workers once the stand-in worker has noted its
// processes, and ends at SIGTERM. With a file "die" in its state directory it fails at once.

#include <unistd.h>

#include <csignal>
#include <ctime>
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

// Of --name=host:port; `any` for port 0. Nothing is served there.
std::string PortOf(int argc, char** argv, const std::string& name, int any) {
  const std::string address = FlagOf(argc, argv, name);
  const std::string port = address.substr(address.rfind(':') + 1);
  return port == "0" ? std::to_string(any) : port;
}

void PutReadyWorkers(fsdp::FakeService& service) {
  for (int i = 0; i < 4; ++i) {
    fsdp::v1::Worker worker;
    worker.set_name("workers/local-" + std::to_string(i));
    worker.set_state(fsdp::v1::WORKER_STATE_READY);
    worker.set_metrics_address("127.0.0.1:1");
    service.PutWorker(worker);
  }
}

// True when the stand-in worker's last note is there.
bool WorkerHasNoted(const std::filesystem::path& coordinator_dir) {
  std::ifstream orphans(coordinator_dir.parent_path() / "worker/orphans");
  return orphans.peek() != std::ifstream::traits_type::eof();
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
  std::ofstream(state_dir / "pids", std::ios::app) << getpid() << "\n";
  const std::string port_file = FlagOf(argc, argv, "port-file");
  const std::string port = service.address().substr(service.address().rfind(':') + 1);
  std::ofstream(port_file + ".tmp")
      << "{\"grpc\":" << port << ",\"metrics\":" << PortOf(argc, argv, "metrics-listen", 40001)
      << ",\"web\":" << PortOf(argc, argv, "web-listen", 40002) << "}\n";
  std::ofstream(state_dir / "listens", std::ios::app)
      << FlagOf(argc, argv, "metrics-listen") << " " << FlagOf(argc, argv, "web-listen") << "\n";
  std::filesystem::rename(port_file + ".tmp", port_file);
  const timespec poll = {.tv_sec = 0, .tv_nsec = 10'000'000};
  while (!WorkerHasNoted(state_dir)) {
    if (sigtimedwait(&signals, nullptr, &poll) == SIGTERM) return 0;
  }
  PutReadyWorkers(service);
  int signal = 0;
  sigwait(&signals, &signal);
  return 0;
}
