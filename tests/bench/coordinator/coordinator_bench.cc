// Durable submits a second with concurrent clients, and the restart of a coordinator with many
// stored jobs.
//
//   coordinator_bench [JOBS] [CLIENTS] [STATE_DIR]        default 10000 64, a new directory under
//   /tmp
//
// Prints one JSON line. The clients are threads of this process and share the machine with the
// coordinator.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/rpc/server.h"
#include "fsdp/v1/job_service.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "proto/support/log.h"

namespace {

using fsdp::coordinator::Options;
using fsdp::coordinator::Server;
namespace v1 = fsdp::v1;

double Seconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

v1::TrainingJob SmallJob() {
  v1::TrainingJob job;
  job.set_api_version("fsdp.v1");
  job.set_kind("TrainingJob");
  job.mutable_metadata()->set_name("bench");
  v1::JobSpec& spec = *job.mutable_spec();
  spec.mutable_model()->set_family(v1::MODEL_FAMILY_LLAMA);
  spec.mutable_model()->set_vocab_size(256);
  spec.mutable_model()->set_dim(32);
  spec.mutable_model()->set_num_layers(2);
  spec.mutable_model()->set_num_heads(4);
  spec.mutable_model()->set_mlp_dim(64);
  spec.mutable_data()->set_source(v1::DATA_SOURCE_SYNTHETIC);
  spec.mutable_data()->set_sequence_length(16);
  spec.mutable_train()->set_global_batch(4);
  spec.mutable_limits()->set_max_steps(1);
  return job;
}

// Submits `count` jobs from `clients` threads; false when one was refused.
bool SubmitAll(int port, int count, int clients) {
  std::atomic<int> next{0};
  std::atomic<bool> ok{true};
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] {
      grpc::ChannelArguments arguments;
      arguments.SetInt("bench.channel", i % 8);
      const auto stub = v1::JobService::NewStub(grpc::CreateCustomChannel(
          absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials(), arguments));
      v1::CreateJobRequest request;
      *request.mutable_job() = SmallJob();
      while (next++ < count && ok) {
        grpc::ClientContext context;
        v1::CreateJobResponse response;
        const grpc::Status status = stub->CreateJob(&context, request, &response);
        if (status.ok()) continue;
        std::fprintf(stderr, "CreateJob: %s\n", status.error_message().c_str());
        ok = false;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 10'000;
  const int clients = argc > 2 ? std::atoi(argv[2]) : 64;
  char pattern[] = "/tmp/fsdp-coordinator-bench-XXXXXX";
  const std::string directory = argc > 3 ? argv[3] : mkdtemp(pattern);
  if (count <= 0 || clients <= 0) {
    std::fprintf(stderr, "usage: coordinator_bench [JOBS] [CLIENTS] [STATE_DIR]\n");
    return 2;
  }
  fsdp::SetLogLevel(fsdp::LogLevel::kError);
  Options options;
  options.listen = "127.0.0.1:0";
  options.metrics_listen = "";
  options.state_dir = directory;
  options.drain_timeout = absl::Seconds(1);
  double submit_seconds = 0;
  {
    auto server = Server::Start(options, nullptr);
    if (!server.ok()) {
      std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
      return 1;
    }
    const auto start = std::chrono::steady_clock::now();
    if (!SubmitAll((*server)->port(), count, clients)) return 1;
    submit_seconds = Seconds(start);
  }
  const auto start = std::chrono::steady_clock::now();
  auto server = Server::Start(options, nullptr);
  const double restart_seconds = Seconds(start);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  std::printf(
      "{\"jobs\":%d,\"clients\":%d,\"durable_submits_per_second\":%.0f,"
      "\"restart_to_serving_seconds\":%.3f}\n",
      count, clients, count / submit_seconds, restart_seconds);
  server->reset();
  if (argc <= 3) std::filesystem::remove_all(directory);
  return 0;
}
