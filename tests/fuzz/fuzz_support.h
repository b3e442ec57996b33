#ifndef FSDPCTL_TESTS_FUZZ_FUZZ_SUPPORT_H_
#define FSDPCTL_TESTS_FUZZ_FUZZ_SUPPORT_H_

// What the fuzzers share. An input that breaks a promise ends the process (Require): libFuzzer
// keeps it.
//
// Thread rule: one thread's, as all of libFuzzer.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/message.h"

namespace fsdp::fuzz {

// `holds` or the process ends with `promise`.
void Require(bool holds, std::string_view promise);

std::string_view Text(const std::uint8_t* data, std::size_t size);

// A file in memory whose bytes are replaced for every input, for readers that take a path.
class InputFile {
 public:
  InputFile();
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  void Write(std::string_view bytes);
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

// A folder of this process, removed when it ends regularly.
class InputFolder {
 public:
  InputFolder();
  ~InputFolder();
  InputFolder(const InputFolder&) = delete;
  InputFolder& operator=(const InputFolder&) = delete;

  // Removes what is in it.
  void Clear();
  void Write(const std::string& name, std::string_view bytes) const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The payloads of the whole frames at the beginning (proto/support/framed_socket.h); a last one
// that is cut off is left out.
std::vector<std::string> Frames(std::string_view bytes);

// Calls `visit` for every message in `message`, itself first.
void VisitMessages(google::protobuf::Message* message,
                   const std::function<void(google::protobuf::Message*)>& visit);

// For LLVMFuzzerCustomMutator: bytes changed by libFuzzer, or frames of messages of the type of
// `prototype` changed field by field, so that what comes out mostly parses.
std::size_t MutateFrames(const google::protobuf::Message& prototype, std::uint8_t* data,
                         std::size_t size, std::size_t max_size, unsigned seed);
// The same of input that is one message.
std::size_t MutateMessage(const google::protobuf::Message& prototype, std::uint8_t* data,
                          std::size_t size, std::size_t max_size, unsigned seed);

}  // namespace fsdp::fuzz

#endif  // FSDPCTL_TESTS_FUZZ_FUZZ_SUPPORT_H_
