#include "tests/contract/proto/transcripts/transcript.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/util/message_differencer.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp::transcripts {
namespace {

using google::protobuf::Message;

constexpr std::string_view kTypeLine = "#: ";

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

absl::Status WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  return file ? absl::OkStatus() : absl::InternalError(absl::StrCat(path, ": cannot be written"));
}

std::vector<Frame> SplitText(const std::string& text) {
  std::vector<Frame> frames;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kTypeLine)) {
      frames.push_back({line.substr(kTypeLine.size()), "", ""});
    } else if (!frames.empty()) {
      frames.back().text += line + "\n";
    }
  }
  return frames;
}

// Name of a field that the message's type does not have; empty when all are known.
std::string UnknownField(const Message& message) {
  const auto& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return absl::StrCat("field ", unknown.field(0).number(), " of ",
                        message.GetDescriptor()->full_name());
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->message_type() == nullptr) continue;
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const Message& inner = field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                                  : reflection.GetMessage(message, field);
      if (std::string name = UnknownField(inner); !name.empty()) return name;
    }
  }
  return "";
}

}  // namespace

std::unique_ptr<Message> NewMessage(const std::string& type) {
  const auto* descriptor =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(type);
  if (descriptor == nullptr) return nullptr;
  const Message* prototype =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor);
  return std::unique_ptr<Message>(prototype->New());
}

std::string DeterministicBytes(const Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

Frame MakeFrame(const Message& message) {
  Frame frame = {message.GetDescriptor()->full_name(), DeterministicBytes(message), ""};
  google::protobuf::TextFormat::PrintToString(message, &frame.text);
  return frame;
}

absl::StatusOr<Transcript> ReadTranscript(const std::string& folder, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(absl::StrCat(folder, "/", name, ".textproto")));
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(absl::StrCat(folder, "/", name, ".binpb")));
  Transcript transcript = {name, SplitText(text)};
  google::protobuf::io::CodedInputStream coded(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  for (Frame& frame : transcript.frames) {
    std::uint32_t size = 0;
    if (!coded.ReadVarint32(&size) || !coded.ReadString(&frame.bytes, static_cast<int>(size))) {
      return absl::DataLossError(absl::StrCat(name, ".binpb ends before its ", frame.type));
    }
  }
  if (coded.CurrentPosition() != static_cast<int>(bytes.size())) {
    return absl::DataLossError(absl::StrCat(name, ".binpb holds more than ", name, ".textproto"));
  }
  return transcript;
}

absl::Status WriteTranscript(const std::string& folder, const Transcript& transcript) {
  std::string text;
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    for (const Frame& frame : transcript.frames) {
      coded.WriteVarint32(static_cast<std::uint32_t>(frame.bytes.size()));
      coded.WriteString(frame.bytes);
      absl::StrAppend(&text, ToAbsl(kTypeLine), frame.type, "\n", frame.text);
    }
  }
  RETURN_IF_ERROR(WriteFile(absl::StrCat(folder, "/", transcript.name, ".textproto"), text));
  return WriteFile(absl::StrCat(folder, "/", transcript.name, ".binpb"), bytes);
}

absl::Status Replay(const Frame& frame) {
  const std::unique_ptr<Message> message = NewMessage(frame.type);
  if (message == nullptr) return absl::NotFoundError(absl::StrCat(frame.type, " is gone"));
  if (!message->ParseFromString(frame.bytes)) {
    return absl::DataLossError(absl::StrCat(frame.type, " does not parse"));
  }
  if (const std::string field = UnknownField(*message); !field.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(frame.type, ": ", field, " is not known"));
  }
  if (DeterministicBytes(*message) != frame.bytes) {
    return absl::FailedPreconditionError(absl::StrCat(frame.type, " is written differently"));
  }
  const std::unique_ptr<Message> twin = NewMessage(frame.type);
  if (!google::protobuf::TextFormat::ParseFromString(frame.text, twin.get())) {
    return absl::FailedPreconditionError(absl::StrCat(frame.type, ": its text does not parse"));
  }
  if (!google::protobuf::util::MessageDifferencer::Equals(*message, *twin)) {
    return absl::FailedPreconditionError(
        absl::StrCat(frame.type, ": bytes and text mean different messages"));
  }
  return absl::OkStatus();
}

}  // namespace fsdp::transcripts
