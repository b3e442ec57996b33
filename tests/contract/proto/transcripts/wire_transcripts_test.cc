// Every release's recorded messages through today's code.
//
//   wire_transcripts_test            replays all of them
//   wire_transcripts_test --record   first writes this release's anew (transcripts/vMAJOR.MINOR);
//   what
//                                    earlier releases recorded is never touched
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "fsdp/v1/cluster_service.pb.h"
#include "fsdp/v1/enrollment_service.pb.h"
#include "fsdp/v1/job_service.pb.h"
#include "fsdp/v1/trainer.pb.h"
#include "fsdp/v1/worker_service.pb.h"
#include "tests/contract/proto/transcripts/fill_message.h"
#include "tests/contract/proto/transcripts/transcript.h"

namespace fsdp::transcripts {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FileDescriptor;

const std::string kRoot = FSDP_SOURCE_DIR "/tests/contract/proto/transcripts";
const std::string kRelease = FSDP_RELEASE;

// The conversations of this release and the messages that open them: each RPC's request and
// response in the order of the proto, and both directions of the link between daemon and trainer.
std::map<std::string, std::vector<const Descriptor*>> Conversations() {
  std::map<std::string, std::vector<const Descriptor*>> conversations;
  for (const FileDescriptor* file :
       {v1::CreateJobRequest::descriptor()->file(), v1::ConnectRequest::descriptor()->file(),
        v1::ListWorkersRequest::descriptor()->file(),
        v1::EnrollWorkerRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      auto& types = conversations[file->service(s)->name()];
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        types.push_back(file->service(s)->method(m)->input_type());
        types.push_back(file->service(s)->method(m)->output_type());
      }
    }
  }
  conversations["TrainerLink"] = {v1::DaemonToTrainer::descriptor(),
                                  v1::TrainerToDaemon::descriptor()};
  return conversations;
}

absl::Status Record() {
  const std::string folder = kRoot + "/" + kRelease;
  std::filesystem::create_directories(folder);
  for (const auto& [name, types] : Conversations()) {
    Transcript transcript = {name, {}};
    for (const Descriptor* type : types) {
      for (const auto& message : FilledMessages(type->full_name())) {
        transcript.frames.push_back(MakeFrame(*message));
      }
    }
    if (absl::Status status = WriteTranscript(folder, transcript); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Folder and name of each recorded transcript.
std::vector<std::pair<std::string, std::string>> Recorded() {
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot)) {
    if (entry.path().extension() == ".binpb") {
      found.emplace_back(entry.path().parent_path().string(), entry.path().stem().string());
    }
  }
  return found;
}

TEST(WireTranscriptsTest, EveryRecordedMessageIsStillUnderstood) {
  int replayed = 0;
  for (const auto& [folder, name] : Recorded()) {
    const auto transcript = ReadTranscript(folder, name);
    ASSERT_TRUE(transcript.ok()) << folder << ": " << transcript.status();
    for (const Frame& frame : transcript->frames) {
      EXPECT_TRUE(Replay(frame).ok()) << folder << "/" << name << ": " << Replay(frame);
      ++replayed;
    }
  }
  EXPECT_GE(replayed, 60);
}

void CollectSet(const google::protobuf::Message& message, std::set<std::string>* fields) {
  std::vector<const google::protobuf::FieldDescriptor*> set;
  const auto& reflection = *message.GetReflection();
  reflection.ListFields(message, &set);
  for (const auto* field : set) {
    fields->insert(field->full_name());
    if (field->message_type() == nullptr) continue;
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      CollectSet(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                      : reflection.GetMessage(message, field),
                 fields);
    }
  }
}

void CollectAll(const Descriptor& type, std::set<std::string>* fields) {
  for (int i = 0; i < type.field_count(); ++i) {
    fields->insert(type.field(i)->full_name());
    if (type.field(i)->message_type() != nullptr)
      CollectAll(*type.field(i)->message_type(), fields);
  }
}

// A field that no transcript shows is a field that the next release may break unseen.
TEST(WireTranscriptsTest, EveryFieldOfTheApiIsRecorded) {
  std::set<std::string> recorded;
  for (const auto& [folder, name] : Recorded()) {
    const auto transcript = ReadTranscript(folder, name);
    ASSERT_TRUE(transcript.ok()) << transcript.status();
    for (const Frame& frame : transcript->frames) {
      const auto message = NewMessage(frame.type);
      ASSERT_NE(message, nullptr) << frame.type;
      ASSERT_TRUE(message->ParseFromString(frame.bytes));
      CollectSet(*message, &recorded);
    }
  }
  std::set<std::string> all;
  for (const auto& [name, types] : Conversations()) {
    for (const Descriptor* type : types) CollectAll(*type, &all);
  }
  for (const std::string& field : all) {
    EXPECT_TRUE(recorded.contains(field))
        << field << " is in no transcript; run wire_transcripts_test --record";
  }
}

class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest() {
    v1::GetJobRequest request;
    request.set_name("jobs/a-12345678");
    frame_ = MakeFrame(request);
  }
  Frame frame_;
};

TEST_F(ReplayTest, AcceptsWhatItKnows) { EXPECT_TRUE(Replay(frame_).ok()) << Replay(frame_); }

TEST_F(ReplayTest, RefusesAFieldThatIsGone) {
  frame_.bytes += std::string("\xf8\x3f\x01", 3);  // field 1023, varint 1
  EXPECT_EQ(Replay(frame_).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ReplayTest, RefusesATypeThatIsGone) {
  frame_.type = "fsdp.v1.NoSuchMessage";
  EXPECT_EQ(Replay(frame_).code(), absl::StatusCode::kNotFound);
}

TEST_F(ReplayTest, RefusesBytesThatDoNotParse) {
  frame_.bytes.pop_back();
  EXPECT_EQ(Replay(frame_).code(), absl::StatusCode::kDataLoss);
}

TEST_F(ReplayTest, RefusesARenamedFieldAndAnotherValue) {
  Frame renamed = frame_;
  renamed.text = "title: \"jobs/a-12345678\"\n";
  EXPECT_EQ(Replay(renamed).code(), absl::StatusCode::kFailedPrecondition);
  Frame other = frame_;
  other.text = "name: \"jobs/b-12345678\"\n";
  EXPECT_EQ(Replay(other).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ReplayTest, RefusesBytesThatComeOutDifferently) {
  frame_.bytes += frame_.bytes;  // the same field twice: parses, but is written once
  EXPECT_EQ(Replay(frame_).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace fsdp::transcripts

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1 && std::string_view(argv[1]) == "--record") {
    if (const absl::Status status = fsdp::transcripts::Record(); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
  }
  return RUN_ALL_TESTS();
}
