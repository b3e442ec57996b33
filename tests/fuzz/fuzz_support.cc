#include "tests/fuzz/fuzz_support.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "proto/support/framed_socket.h"

namespace fsdp::fuzz {

void Require(bool holds, std::string_view promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %.*s\n", static_cast<int>(promise.size()), promise.data());
  std::abort();
}

std::string_view Text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

InputFile::InputFile()
    : fd_(::memfd_create("fuzz-input", MFD_CLOEXEC)), path_(absl::StrCat("/proc/self/fd/", fd_)) {
  Require(fd_ >= 0, "memfd_create");
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::Write(std::string_view bytes) {
  Require(::ftruncate(fd_, 0) == 0, "ftruncate");
  Require(::pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
          "pwrite");
}

InputFolder::InputFolder() {
  std::string name = std::filesystem::temp_directory_path() / "fsdp-fuzz-XXXXXX";
  Require(::mkdtemp(name.data()) != nullptr, "mkdtemp");
  path_ = name;
}

InputFolder::~InputFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void InputFolder::Clear() {
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    std::filesystem::remove_all(entry.path());
  }
}

void InputFolder::Write(const std::string& name, std::string_view bytes) const {
  std::ofstream file(std::filesystem::path(path_) / name, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  Require(file.good(), "the input folder can be written");
}

std::vector<std::string> Frames(std::string_view bytes) {
  FrameDecoder decoder;
  decoder.Append(bytes);
  std::vector<std::string> frames;
  while (true) {
    auto frame = decoder.Next();
    if (!frame.ok() || !frame->has_value()) return frames;
    frames.push_back(*std::move(*frame));
  }
}

void VisitMessages(google::protobuf::Message* message,
                   const std::function<void(google::protobuf::Message*)>& visit) {
  visit(message);
  const auto* reflection = message->GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      VisitMessages(reflection->MutableMessage(message, field), visit);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      VisitMessages(reflection->MutableRepeatedMessage(message, field, i), visit);
    }
  }
}

}  // namespace fsdp::fuzz
