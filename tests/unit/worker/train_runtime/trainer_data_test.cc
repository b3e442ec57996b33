// What a rank makes of its data: text through a tokenizer, and a source that is slow.

#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>

#include "proto/support/status.h"
#include "tests/unit/worker/tokenize/small_tokenizer.h"
#include "tests/unit/worker/train_runtime/trainer_fixture.h"

namespace fsdp {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class TrainerDataTest : public TrainerTest {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << bytes;
    return directory_ + "/" + name;
  }
  // Job's text, through a tokenizer.
  v1::TrainingJob TextJob(std::int64_t steps) {
    v1::TrainingJob job = Job(steps);
    v1::DataSpec& data = *job.mutable_spec()->mutable_data();
    data.set_tokenizer(
        Write("tokenizer.json",
              SmallTokenizer({"t h", "th e", "q u", "b r", "br o"}, {"<|endoftext|>"}).dump()));
    data.set_cache_dir(directory_ + "/cache");
    job.mutable_spec()->mutable_model()->set_vocab_size(262);
    return job;
  }
  Epoch RunEpoch(const v1::TrainingJob& job, int world_size = 1) {
    Epoch epoch(job, world_size);
    epoch.data.cache.program = FSDP_BINARY_DIR "/fsdp-tokenize";
    epoch.Run();
    return epoch;
  }
  static std::vector<std::string> Notices(Epoch& epoch) {
    std::vector<std::string> types;
    for (const auto& link : epoch.links) {
      for (const auto& message : link->Messages()) {
        if (message.has_notice()) types.push_back(message.notice().type());
      }
    }
    return types;
  }
};

TEST_F(TrainerDataTest, TextTrainsAsTheTokensThatAreMadeOfIt) {
  Epoch text = RunEpoch(TextJob(6));
  ASSERT_TRUE(text.results[0].ok()) << text.results[0].status();
  const int made = std::system((FSDP_BINARY_DIR "/fsdp-tokenize --tokenizer " + directory_ +
                                "/tokenizer.json --output " + directory_ + "/tokens " + directory_ +
                                "/text > /dev/null")
                                   .c_str());
  ASSERT_EQ(made, 0);
  v1::TrainingJob job = TextJob(6);
  v1::DataSpec& data = *job.mutable_spec()->mutable_data();
  data.set_source(v1::DATA_SOURCE_TOKENS);
  data.set_path(directory_ + "/tokens");
  Epoch tokens = RunEpoch(job);
  ASSERT_TRUE(tokens.results[0].ok()) << tokens.results[0].status();
  EXPECT_EQ(text.links[0]->Losses(), tokens.links[0]->Losses());
  EXPECT_EQ(text.done().result().validation_loss(), tokens.done().result().validation_loss());
  // Bytes of the text over its tokens.
  const auto bytes = static_cast<double>(std::filesystem::file_size(directory_ + "/text"));
  EXPECT_GT(text.done().result().bytes_per_token(), 1.0);
  EXPECT_NEAR(text.done().result().bytes_per_token(),
              bytes * 2 /
                  static_cast<double>(
                      std::filesystem::file_size(directory_ + "/tokens/tokens_000000.bin") - 1024),
              1e-12);
  EXPECT_FALSE(tokens.done().result().has_bytes_per_token());
}

TEST_F(TrainerDataTest, RanksMakeTheTokensOnceAndProveTheText) {
  Epoch epoch = RunEpoch(TextJob(3), 3);
  for (const auto& result : epoch.results) ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(Notices(epoch), testing::UnorderedElementsAre("TOKENIZING", "TOKENIZED"));
  const auto joined = [](Epoch& of) {
    for (const auto& message : of.links[0]->Messages()) {
      if (message.has_joined()) return message.joined();
    }
    return v1::RankJoined();
  };
  EXPECT_EQ(joined(epoch).data_path(), directory_ + "/text") << "not that of the cache";
  // The same ids of another text are another proof: trailing empty documents give no tokens.
  v1::TrainingJob job = TextJob(3);
  job.mutable_spec()->mutable_data()->set_path(directory_ + "/folder");
  std::filesystem::create_directories(directory_ + "/folder");
  std::filesystem::copy(directory_ + "/text", directory_ + "/folder/a");
  Epoch alone = RunEpoch(job);
  Write("folder/b", "");
  Epoch with_empty = RunEpoch(job);
  EXPECT_EQ(alone.links[0]->Losses(), with_empty.links[0]->Losses());
  EXPECT_NE(joined(alone).data_fingerprint(), joined(with_empty).data_fingerprint());
}

TEST_F(TrainerDataTest, JsonlIsItsLinesWithATokenizerOrByBytes) {
  std::string lines;
  std::string bytes;
  for (int i = 0; i < 200; ++i) {
    absl::StrAppend(&lines, "{\"id\": ", i, ", \"body\": \"the quick brown fox ", i, "\"}\n");
    absl::StrAppend(&bytes, "the quick brown fox ", i);
  }
  v1::TrainingJob job = Job(3);
  v1::DataSpec& data = *job.mutable_spec()->mutable_data();
  data.set_path(Write("lines.jsonl", lines));
  data.set_text_field("body");
  data.set_cache_dir(directory_ + "/cache");
  Epoch jsonl = RunEpoch(job);
  ASSERT_TRUE(jsonl.results[0].ok()) << jsonl.results[0].status();
  EXPECT_EQ(jsonl.done().result().bytes_per_token(), 1.0);
  // The same bytes as a file.
  data.set_path(Write("bytes.txt", bytes));
  data.clear_text_field();
  Epoch text = RunEpoch(job);
  EXPECT_EQ(jsonl.links[0]->Losses(), text.links[0]->Losses());
  // A line is a document: with the mask, fewer tokens count.
  v1::TrainingJob masked = TextJob(3);
  v1::DataSpec& of_masked = *masked.mutable_spec()->mutable_data();
  of_masked.set_path(directory_ + "/lines.jsonl");
  of_masked.set_text_field("body");
  of_masked.set_mask_document_ends(true);
  Epoch with_mask = RunEpoch(masked);
  ASSERT_TRUE(with_mask.results[0].ok()) << with_mask.results[0].status();
  EXPECT_LT(with_mask.links[0]->Steps()[0].metrics().tokens(), 5 * 16);
}

TEST_F(TrainerDataTest, EveryPathOfAJobGoesThroughItsTokenizer) {
  v1::TrainingJob job = TextJob(3);
  Mix(&job);
  v1::DataSpec& data = *job.mutable_spec()->mutable_data();
  data.clear_validation_fraction();
  data.set_validation_path(Write("held-out.txt", data.mixture(0).path() + " the brown the quick"));
  data.add_evaluation_sets()->set_name("numbers");
  // A text that is there already.
  data.mutable_evaluation_sets(0)->set_path(data.mixture(1).path());
  Epoch epoch = RunEpoch(job);
  ASSERT_TRUE(epoch.results[0].ok()) << epoch.results[0].status();
  EXPECT_THAT(Notices(epoch), testing::ElementsAre("TOKENIZING", "TOKENIZED", "TOKENIZING",
                                                   "TOKENIZED", "TOKENIZING", "TOKENIZED"));
  const v1::JobResult& result = epoch.done().result();
  ASSERT_EQ(result.data_sources_size(), 2);
  EXPECT_EQ(result.data_sources(0).name(), "words");
  ASSERT_EQ(result.evaluations_size(), 1);
  EXPECT_EQ(result.evaluations(0).name(), "numbers");
  EXPECT_TRUE(result.has_validation_loss());
}

TEST_F(TrainerDataTest, ABadLineIsTheRanksFailureOfCauseData) {
  v1::TrainingJob job = TextJob(3);
  job.mutable_spec()->mutable_data()->set_path(Write("bad.jsonl", "{\"text\": 1}\n"));
  Epoch epoch = RunEpoch(job);
  EXPECT_FALSE(epoch.results[0].ok());
  const v1::RankFailure failure = epoch.links[0]->Failure();
  EXPECT_EQ(failure.cause(), v1::FAILURE_CAUSE_DATA);
  EXPECT_EQ(failure.phase(), v1::PHASE_TOKENIZE);
  EXPECT_THAT(failure.message(), AllOf(StartsWith("data.path: "), HasSubstr("bad.jsonl:1: no text"),
                                       HasSubstr("data.textField")));
}

// Reads take as long as it is told; by nobody's clock but the machine's, which phases are measured
// with.
class SlowSource final : public BatchSource {
 public:
  SlowSource(std::unique_ptr<BatchSource> inner, std::chrono::milliseconds delay)
      : inner_(std::move(inner)), delay_(delay) {}
  absl::Status Read(std::int64_t position, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets,
                    std::span<std::int32_t> document_begins) override {
    std::this_thread::sleep_for(delay_);
    return inner_->Read(position, tokens, targets, document_begins);
  }
  [[nodiscard]] std::int64_t sequence_length() const override { return inner_->sequence_length(); }
  [[nodiscard]] std::int64_t num_sequences() const override { return inner_->num_sequences(); }
  [[nodiscard]] std::int64_t vocab_size() const override { return inner_->vocab_size(); }
  [[nodiscard]] const DataIdentity& identity() const override { return inner_->identity(); }

 private:
  std::unique_ptr<BatchSource> inner_;
  std::chrono::milliseconds delay_;
};

TEST_F(TrainerDataTest, ASlowSourceShowsAsThePhaseOfWaitingForData) {
  constexpr auto kDelay = std::chrono::milliseconds(100);
  Epoch slow(Job(4));
  slow.data.open = [&](const DataOptions& options) -> absl::StatusOr<DataSet> {
    ASSIGN_OR_RETURN(DataSet data, OpenData(options));
    data.train = std::make_unique<SlowSource>(std::move(data.train), kDelay);
    return data;
  };
  slow.Run();
  Epoch fast(Job(4));
  fast.Run();
  EXPECT_EQ(slow.links[0]->Losses(), fast.links[0]->Losses());
  const std::vector<v1::StepReport> steps = slow.links[0]->Steps();
  ASSERT_EQ(steps.size(), 4U);
  double before = 0;  // that the step before took without its own waiting
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const v1::StepPhases& phases = steps[i].metrics().phases();
    const double total = steps[i].metrics().step_seconds();
    // A read begins when the batch before is taken: what that step did meanwhile and what this one
    // waits are the delay together, and nothing else is blamed for it.
    EXPECT_GE(phases.data_seconds() + before, 0.095) << i;
    before = total - phases.data_seconds();
  }
}

}  // namespace
}  // namespace fsdp
