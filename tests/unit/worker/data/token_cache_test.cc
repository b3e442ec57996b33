#include "worker/data/token_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/worker/tokenize/small_tokenizer.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class TokenCacheTest : public testing::Test {
 protected:
  TokenCacheTest() {
    folder_.Write("tokenizer.json", SmallTokenizer({"t h", "th e"}, {"<|endoftext|>"}).dump());
    folder_.Write("text.txt", "the cat");
    options_.program = FSDP_BINARY_DIR "/fsdp-tokenize";
    options_.directory = folder_.Path("cache");
    options_.num_threads = 1;
    options_.on_event = [this](TokenCacheEvent event, const std::string& words) {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++events_[event];
      words_ += words + "\n";
    };
  }

  TextToTokens Text(const std::string& name = "text.txt") {
    TextToTokens text;
    text.field = "data.path";
    text.path = folder_.Path(name);
    text.tokenizer = folder_.Path("tokenizer.json");
    text.vocab_size = 300;
    return text;
  }
  TokenizedText Get(const TextToTokens& text) {
    const auto tokens = TokenizeOnce(text, options_);
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    return tokens.value_or(TokenizedText());
  }
  void ExpectError(const TextToTokens& text, absl::StatusCode code,
                   const testing::Matcher<std::string>& message) {
    const auto tokens = TokenizeOnce(text, options_);
    EXPECT_EQ(tokens.status().code(), code) << tokens.status();
    EXPECT_THAT(std::string(tokens.status().message()), message);
  }
  // How often the tokenizer was started.
  int makes() { return events_[TokenCacheEvent::kMaking]; }

  static std::vector<int> Ids(const std::string& folder) {
    std::vector<int> ids;
    std::vector<fs::path> shards;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".bin") shards.push_back(entry.path());
    }
    std::sort(shards.begin(), shards.end());
    for (const fs::path& shard : shards) {
      std::ifstream file(shard, std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      for (std::size_t at = 1024; at < bytes.size(); at += 2) {
        std::uint16_t id = 0;
        std::memcpy(&id, bytes.data() + at, 2);
        ids.push_back(id);
      }
    }
    return ids;
  }
  // In the cache, without the files of locks.
  std::vector<std::string> Kept() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(options_.directory)) {
      if (entry.path().extension() != ".lock") names.push_back(entry.path().filename().string());
    }
    return names;
  }
  // A program in the place of fsdp-tokenize.
  void UseProgram(const std::string& script) {
    options_.program = folder_.Write("program", "#!/bin/sh\n" + script);
    fs::permissions(options_.program, fs::perms::owner_all);
  }
  std::string BigText(int lines) {
    std::string text;
    for (int i = 0; i < lines; ++i) absl::StrAppend(&text, "the number ", i * 7919 % 10007, "\n");
    return text;
  }

  TemporaryFolder folder_;
  TokenCacheOptions options_;
  std::mutex mutex_;
  std::map<TokenCacheEvent, int> events_;
  std::string words_;
};

TEST_F(TokenCacheTest, TokensAreMadeOnceAndAreTheTokenizers) {
  const TokenizedText first = Get(Text());
  EXPECT_THAT(Ids(first.folder), ElementsAre(257, ' ', 'c', 'a', 't', 258));
  EXPECT_EQ(first.separator, 258);
  EXPECT_EQ(first.tokens, 6);
  EXPECT_EQ(first.text_bytes, 7);
  EXPECT_EQ(Get(Text()).folder, first.folder);
  EXPECT_EQ(makes(), 1);
  EXPECT_THAT(Kept(), ElementsAre(fs::path(first.folder).filename().string()));
}

TEST_F(TokenCacheTest, TheKeyIsTheContentAndNotWhereOrWhenItWasWritten) {
  const TokenizedText first = Get(Text());
  folder_.Write("elsewhere/copy.txt", "the cat");
  fs::last_write_time(folder_.Path("text.txt"), fs::file_time_type::clock::now());
  fs::create_directories(folder_.Path("model"));
  fs::copy(folder_.Path("tokenizer.json"), folder_.Path("model/tokenizer.json"));
  TextToTokens moved = Text("elsewhere/copy.txt");
  moved.tokenizer = folder_.Path("model");
  EXPECT_EQ(Get(moved).folder, first.folder);
  moved.path = folder_.Path("elsewhere");
  EXPECT_EQ(Get(moved).folder, first.folder);
  EXPECT_EQ(makes(), 1);
}

TEST_F(TokenCacheTest, EverythingThatChangesTheTokensIsInTheKey) {
  const std::string line = "{\"text\": \"the\", \"body\": \"cat\"}";
  folder_.Write("lines.jsonl", line);
  folder_.Write("lines.txt", line);
  folder_.Write("two/a.txt", "the ");
  folder_.Write("two/b.txt", "cat");
  folder_.Write("other.json", SmallTokenizer({"t h"}, {"<|endoftext|>"}).dump());
  folder_.Write("configured/tokenizer.json", folder_.Read("tokenizer.json"));
  folder_.Write("configured/tokenizer_config.json", "{\"eos_token\": \"the\"}");
  std::vector<TextToTokens> texts = {Text(), Text("lines.jsonl"), Text("lines.txt"), Text("two")};
  texts.push_back(Text("lines.jsonl"));
  texts.back().text_field = "body";
  texts.push_back(Text());
  texts.back().tokenizer = folder_.Path("other.json");
  texts.push_back(Text());
  texts.back().tokenizer = folder_.Path("configured");
  texts.push_back(Text());
  texts.back().separator = 10;
  texts.push_back(Text());
  texts.back().tokenizer = "bytes";
  std::set<std::string> folders;
  for (const TextToTokens& text : texts) folders.insert(Get(text).folder);
  EXPECT_EQ(folders.size(), texts.size());
  EXPECT_EQ(makes(), static_cast<int>(texts.size()));
  EXPECT_THAT(Ids(Get(texts[4]).folder), ElementsAre('c', 'a', 't', 258));
  EXPECT_THAT(Ids(Get(texts[6]).folder).back(), 257) << "the end-of-text token of the config";
  EXPECT_THAT(Ids(Get(texts[7]).folder).back(), 10);
}

TEST_F(TokenCacheTest, BadTextIsNamedWithFileLineAndRemedy) {
  folder_.Write("bad.jsonl", "{\"text\": \"a\"}\n{\"body\": \"b\"}\n");
  ExpectError(Text("bad.jsonl"), absl::StatusCode::kInvalidArgument,
              AllOf(StartsWith("data.path: "), HasSubstr("bad.jsonl:2: no text in the field"),
                    HasSubstr("data.textField names it"), Not(HasSubstr("--"))));
  folder_.Write("worse.jsonl", "{\"text\": \"a\"}\n\nthe\n");
  ExpectError(Text("worse.jsonl"), absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr("worse.jsonl:3: not a JSON object"), Not(HasSubstr("--"))));
  EXPECT_THAT(Kept(), testing::Each(HasSubstr(".work")));
  // Mended, it is another text.
  folder_.Write("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  EXPECT_THAT(Ids(Get(Text("bad.jsonl")).folder), ElementsAre('a', 258, 'b', 258));
  ExpectError(Text("nowhere.txt"), absl::StatusCode::kNotFound,
              AllOf(StartsWith("data.path: "), HasSubstr("nowhere.txt")));
}

TEST_F(TokenCacheTest, AnUnfitTokenizerIsRefusedBeforeAndAfterItsTokensAreMade) {
  TextToTokens text = Text();
  const auto words = AllOf(StartsWith("data.tokenizer: "), HasSubstr("ids up to 258"),
                           HasSubstr("model.vocabSize is 258"), HasSubstr("at least 259"));
  text.vocab_size = 258;
  ExpectError(text, absl::StatusCode::kInvalidArgument, words);
  text.vocab_size = 259;
  Get(text);
  text.vocab_size = 258;
  ExpectError(text, absl::StatusCode::kInvalidArgument, words);
  folder_.Write("broken.json", "{\"model\": {}}");
  text.tokenizer = folder_.Path("broken.json");
  ExpectError(text, absl::StatusCode::kInvalidArgument,
              AllOf(StartsWith("data.tokenizer: "), HasSubstr("broken.json")));
  text.tokenizer = folder_.Path("nowhere.json");
  ExpectError(text, absl::StatusCode::kNotFound,
              AllOf(StartsWith("data.tokenizer: "), HasSubstr("nowhere.json")));
  // Which token ends a text must be known.
  folder_.Write("endless.json", SmallTokenizer({"t h"}).dump());
  text.tokenizer = folder_.Path("endless.json");
  ExpectError(text, absl::StatusCode::kInvalidArgument, HasSubstr("data.documentSeparator"));
  text.separator = 257;
  ExpectError(text, absl::StatusCode::kInvalidArgument, HasSubstr("data.documentSeparator 257"));
}

TEST_F(TokenCacheTest, AStoppedRunLeavesNoEntryAndIsGoneOnWith) {
  options_.shard_tokens = 4000;
  const auto work = [&] {
    for (const std::string& name : Kept()) {
      if (name.ends_with(".work")) return options_.directory + "/" + name;
    }
    return std::string();
  };
  // The stop comes once a shard is finished, which the next run must not write again. A machine
  // that has made all tokens by then gets more to do.
  absl::Status stopped;
  for (int lines = 100'000; stopped.ok() && lines < 10'000'000; lines *= 2) {
    std::string text;
    for (int i = 0; i < lines; ++i) absl::StrAppend(&text, "{\"text\": \"the number ", i, "\"}\n");
    folder_.Write("big.jsonl", text);
    fs::remove_all(options_.directory);
    options_.stop_requested = [&] {
      return fs::exists(options_.directory) && !work().empty() &&
             fs::exists(work() + "/tokens_000000.bin");
    };
    stopped = TokenizeOnce(Text("big.jsonl"), options_).status();
  }
  ASSERT_TRUE(absl::IsCancelled(stopped)) << stopped;
  ASSERT_THAT(Kept(), ElementsAre(testing::EndsWith(".work")));
  const auto written = fs::last_write_time(work() + "/tokens_000000.bin");
  options_.stop_requested = nullptr;
  const TokenizedText tokens = Get(Text("big.jsonl"));
  EXPECT_EQ(fs::last_write_time(tokens.folder + "/tokens_000000.bin"), written);
  EXPECT_THAT(Kept(), ElementsAre(fs::path(tokens.folder).filename().string()));
  // As made in one go.
  const std::vector<int> ids = Ids(tokens.folder);
  options_.directory = folder_.Path("fresh");
  EXPECT_EQ(Ids(Get(Text("big.jsonl")).folder), ids);
}

TEST_F(TokenCacheTest, ATokenizerThatDiesLeavesNoEntry) {
  UseProgram(
      "mkdir -p \"$4\"; echo half > \"$4/tokens_000000.bin\"; echo no memory >&2; kill -9 $$");
  ExpectError(Text(), absl::StatusCode::kAborted,
              AllOf(StartsWith("data.path: "), HasSubstr("signal 9"), HasSubstr("no memory")));
  ASSERT_THAT(Kept(), ElementsAre(testing::EndsWith(".work")));
  // What it left is none of a run that could go on: it begins afresh.
  options_.program = FSDP_BINARY_DIR "/fsdp-tokenize";
  EXPECT_THAT(Ids(Get(Text()).folder), ElementsAre(257, ' ', 'c', 'a', 't', 258));
}

TEST_F(TokenCacheTest, ADamagedEntryIsMadeAgain) {
  const std::string folder = Get(Text()).folder;
  const std::string shard = folder + "/tokens_000000.bin";
  const auto damage = [&](auto how) {
    const int before = makes();
    how();
    EXPECT_THAT(Ids(Get(Text()).folder), ElementsAre(257, ' ', 'c', 'a', 't', 258));
    EXPECT_EQ(makes(), before + 1);
    EXPECT_THAT(words_, HasSubstr("are damaged and made again"));
    words_.clear();
  };
  damage([&] {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1026);
    file.put('x');
  });
  damage([&] { fs::resize_file(shard, 1030); });
  damage([&] { fs::remove(shard); });
  damage([&] { fs::resize_file(folder + "/manifest.json", 20); });
  damage([&] { fs::remove(folder + "/manifest.json"); });
  EXPECT_EQ(events_[TokenCacheEvent::kDamaged], 5);
}

TEST_F(TokenCacheTest, ManyAtOnceMakeOneEntry) {
  folder_.Write("big.txt", BigText(20000));
  std::vector<std::thread> threads;
  std::vector<std::string> folders(6);
  for (std::string& folder : folders) {
    threads.emplace_back([&] { folder = Get(Text("big.txt")).folder; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(folders, testing::Each(folders[0]));
  EXPECT_EQ(makes(), 1);
  EXPECT_EQ(events_[TokenCacheEvent::kReady], 6);
}

TEST_F(TokenCacheTest, WhoWaitsGivesUpOnAHolderWithoutProgress) {
  const std::string folder = Get(Text()).folder;
  fs::remove_all(folder);
  const int fd = ::open((folder + ".lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  options_.stall_limit = absl::Milliseconds(200);
  ExpectError(Text(), absl::StatusCode::kDeadlineExceeded,
              AllOf(StartsWith("data.path: "), HasSubstr(folder), HasSubstr("no progress")));
  EXPECT_EQ(events_[TokenCacheEvent::kWaiting], 1);
  options_.stall_limit = absl::Minutes(10);
  options_.stop_requested = [] { return true; };
  EXPECT_TRUE(absl::IsCancelled(TokenizeOnce(Text(), options_).status()));
  ::close(fd);
  options_.stop_requested = nullptr;
  Get(Text());
}

TEST_F(TokenCacheTest, ATokenizerWithoutProgressIsEnded) {
  options_.stall_limit = absl::Milliseconds(300);
  UseProgram("exec sleep 60");
  ExpectError(Text(), absl::StatusCode::kDeadlineExceeded, HasSubstr("no progress for 300ms"));
}

TEST_F(TokenCacheTest, TextThatChangesMeanwhileIsRefused) {
  UseProgram(absl::StrCat("echo 'the dog' > ", folder_.Path("text.txt"), "; exec ",
                          FSDP_BINARY_DIR "/fsdp-tokenize \"$@\""));
  ExpectError(Text(), absl::StatusCode::kFailedPrecondition,
              AllOf(StartsWith("data.path: "), HasSubstr("text.txt changed while"),
                    HasSubstr("restart the job")));
  EXPECT_THAT(Kept(), ElementsAre()) << "tokens of the other text must not be found by this key";
}

TEST_F(TokenCacheTest, WhatCannotWorkIsNamed) {
  options_.program = folder_.Path("nothing");
  ExpectError(Text(), absl::StatusCode::kFailedPrecondition,
              AllOf(HasSubstr(options_.program), HasSubstr("belongs beside fsdp-trainer")));
  options_.directory = folder_.Path("text.txt") + "/cache";
  ExpectError(Text(), absl::StatusCode::kInternal, StartsWith("data.cacheDir: "));
}

}  // namespace
}  // namespace fsdp
