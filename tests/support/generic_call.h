#ifndef FSDPCTL_TESTS_SUPPORT_GENERIC_CALL_H_
#define FSDPCTL_TESTS_SUPPORT_GENERIC_CALL_H_

// Any method by its path, with any bytes as its request: for tests over all methods.

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/channel.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

namespace fsdp::testing {

struct GenericReply {
  grpc::Status status;
  std::vector<std::string> messages;
};

// Sends one message and closes the sending side. Of a stream that sends, the first message is taken
// and the stream cancelled: the status is then OK. A call that hangs ends after a minute with
// DEADLINE_EXCEEDED. `channel` shared by the caller.
inline GenericReply CallAnything(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
    const std::string& request, const std::string& authorization,
    const std::vector<std::pair<std::string, std::string>>& metadata = {}) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  if (!authorization.empty()) context.AddMetadata("authorization", authorization);
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub.PrepareCall(&context, path, &queue);
  call->StartCall(nullptr);
  wait();
  const grpc::Slice slice(request);
  grpc::WriteOptions last;
  last.set_last_message();
  call->WriteLast(grpc::ByteBuffer(&slice, 1), last, nullptr);
  wait();
  GenericReply reply;
  grpc::ByteBuffer buffer;
  call->Read(&buffer, nullptr);
  const bool got = wait();
  if (got) {
    grpc::Slice all;
    buffer.DumpToSingleSlice(&all);
    reply.messages.emplace_back(reinterpret_cast<const char*>(all.begin()), all.size());
    // The end of a unary call comes by itself; a stream is not waited for.
    call->Read(&buffer, nullptr);
    context.TryCancel();
    wait();
  }
  call->Finish(&reply.status, nullptr);
  wait();
  if (got && reply.status.error_code() == grpc::StatusCode::CANCELLED) {
    reply.status = grpc::Status::OK;
  }
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
  return reply;
}

}  // namespace fsdp::testing

#endif  // FSDPCTL_TESTS_SUPPORT_GENERIC_CALL_H_
