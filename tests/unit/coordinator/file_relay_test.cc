// Pieces of files between callers and workers: who is asked, and how a caller learns of what went
// wrong.

#include "coordinator/membership/file_relay.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fakes/recording_sink.h"

namespace fsdp::coordinator {
namespace {

class FileRelayTest : public ::testing::Test {
 protected:
  RecordingSink& Connect(const std::string& name) {
    v1::WorkerHello hello;
    hello.set_worker(name);
    hello.set_incarnation("1");
    auto sink = std::make_shared<RecordingSink>();
    workers_.Accept(hello, sink, {.mono = now_, .wall = absl::UnixEpoch()});
    return *sink;
  }
  void Ask(const std::vector<std::string>& names) {
    std::vector<WorkerId> candidates;
    for (const std::string& name : names) candidates.emplace_back(name);
    v1::ReadFilePiece piece;
    piece.set_file("manifest.json");
    relay_.Ask(workers_, candidates, piece, now_,
               [this](absl::StatusOr<v1::ReadCheckpointResponse> answer) {
                 answers_.push_back(std::move(answer));
               });
  }
  void Answer(const std::string& worker, std::int64_t request, absl::StatusCode code,
              const std::string& data = "") {
    v1::FilePiece piece;
    piece.set_request(request);
    piece.set_code(static_cast<int>(code));
    piece.set_message("open(/c): text");
    piece.set_data(data);
    piece.set_size_bytes(9);
    relay_.OnPiece(workers_, WorkerId(worker), piece, now_);
  }

  MonotonicTime now_ = MonotonicTime::FromSinceStart(absl::Seconds(100));
  WorkerRegistry workers_;
  FileRelay relay_;
  std::vector<absl::StatusOr<v1::ReadCheckpointResponse>> answers_;
};

TEST_F(FileRelayTest, TheFirstConnectedWorkerAnswers) {
  RecordingSink& sink = Connect("b");
  Ask({"a", "b"});
  ASSERT_EQ(sink.sent.size(), 1U);
  EXPECT_EQ(sink.sent[0].read_file_piece().file(), "manifest.json");
  const std::int64_t request = sink.sent[0].read_file_piece().request();
  // Nobody else's answer counts, nor one to another question.
  Answer("a", request, absl::StatusCode::kOk, "forged");
  Answer("b", request + 1, absl::StatusCode::kOk, "other");
  EXPECT_TRUE(answers_.empty());
  Answer("b", request, absl::StatusCode::kOk, "piece");
  Answer("b", request, absl::StatusCode::kOk, "again");
  ASSERT_EQ(answers_.size(), 1U);
  EXPECT_EQ(answers_[0]->data(), "piece");
  EXPECT_EQ(answers_[0]->size_bytes(), 9);
}

TEST_F(FileRelayTest, AWorkerWithoutTheFileSendsItToTheNext) {
  RecordingSink& a = Connect("a");
  RecordingSink& b = Connect("b");
  Ask({"a", "b"});
  Answer("a", a.sent[0].read_file_piece().request(), absl::StatusCode::kNotFound);
  ASSERT_EQ(b.sent.size(), 1U);
  Answer("b", b.sent[0].read_file_piece().request(), absl::StatusCode::kNotFound);
  ASSERT_EQ(answers_.size(), 1U);
  EXPECT_EQ(answers_[0].status().code(), absl::StatusCode::kNotFound);
  // Another error is the answer.
  Ask({"a", "b"});
  Answer("a", a.sent[1].read_file_piece().request(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(answers_[1].status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(b.sent.size(), 1U);
}

TEST_F(FileRelayTest, NobodyThereLeftOrStuckIsUnavailable) {
  Ask({"a"});
  ASSERT_EQ(answers_.size(), 1U);
  EXPECT_EQ(answers_[0].status().code(), absl::StatusCode::kUnavailable);
  Connect("a");
  Ask({"a"});
  relay_.OnDisconnect(WorkerId("b"));
  EXPECT_EQ(answers_.size(), 1U);
  relay_.OnDisconnect(WorkerId("a"));
  ASSERT_EQ(answers_.size(), 2U);
  EXPECT_EQ(answers_[1].status().code(), absl::StatusCode::kUnavailable);
  Ask({"a"});
  relay_.Expire(now_ + FileRelay::kPatience - absl::Milliseconds(1));
  EXPECT_EQ(answers_.size(), 2U);
  relay_.Expire(now_ + FileRelay::kPatience);
  ASSERT_EQ(answers_.size(), 3U);
  EXPECT_EQ(answers_[2].status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(FileRelayTest, OnlySoManyAreUnderWay) {
  RecordingSink& a = Connect("a");
  for (std::size_t i = 0; i < FileRelay::kMaxPieces; ++i) Ask({"a"});
  EXPECT_TRUE(answers_.empty());
  Ask({"a"});
  ASSERT_EQ(answers_.size(), 1U);
  EXPECT_EQ(answers_[0].status().code(), absl::StatusCode::kResourceExhausted);
  Answer("a", a.sent[0].read_file_piece().request(), absl::StatusCode::kOk);
  Ask({"a"});
  EXPECT_EQ(answers_.size(), 2U);
  relay_.EndAll(absl::UnavailableError("draining"));
  EXPECT_EQ(answers_.size(), 2U + FileRelay::kMaxPieces);
}

}  // namespace
}  // namespace fsdp::coordinator
