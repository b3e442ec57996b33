// engine_tool oracle ARGUMENTS | bench ARGUMENTS: the trainer's commands on the CPU, without the
// trainer.

#include <cstdio>
#include <string>
#include <vector>

#include "worker/train/bench.h"
#include "worker/train/oracle.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + std::min(argc, 2), argv + argc);
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "oracle") return fsdp::OracleMain(arguments, fsdp::CpuBackend());
  if (command == "bench") return fsdp::BenchMain(arguments, fsdp::CpuBackend());
  std::fprintf(stderr, "usage: engine_tool oracle|bench ARGUMENTS\n");
  return 2;
}
