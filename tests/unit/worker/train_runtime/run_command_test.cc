// fsdp-trainer as people start it: processes, exit codes, words.

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using testing::HasSubstr;

struct Ended {
  int code = -1;
  std::string output;  // stdout and stderr
};

Ended Shell(const std::string& command) {
  Ended ended;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  for (std::size_t got; (got = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    ended.output.append(buffer, got);
  }
  const int state = ::pclose(pipe);
  ended.code = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
  return ended;
}

class RunCommandTest : public testing::Test {
 protected:
  RunCommandTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "fsdp-run-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~RunCommandTest() override { std::filesystem::remove_all(directory_); }

  static std::string Trainer() { return FSDP_BINARY_DIR "/fsdp-trainer "; }
  // The smoke example for `steps` steps.
  [[nodiscard]] Ended Run(const std::string& more) const {
    return Shell(Trainer() +
                 "run " FSDP_SOURCE_DIR
                 "/deploy/examples/tiny.yaml --set model.dim=16 --set model.mlpDim=24 --set "
                 "model.numLayers=1 --set model.numHeads=2 --set model.numKvHeads=1 --set "
                 "data.sequenceLength=16 --set limits.maxSteps=4 " +
                 more);
  }
  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << bytes;
    return directory_ + "/" + name;
  }
  // The losses of the printed table.
  static std::string Losses(const std::string& output) {
    std::string losses;
    for (std::size_t at = output.find('\n'); at != std::string::npos;
         at = output.find('\n', at + 1)) {
      const std::size_t bar = output.find(" | ", at);
      if (bar == std::string::npos) break;
      if (output.substr(at + 1, bar - at - 1).find_first_not_of("0123456789") !=
          std::string::npos) {
        continue;
      }
      losses += output.substr(bar + 3, output.find(" | ", bar + 3) - bar - 3) + " ";
    }
    return losses;
  }

  std::string directory_;
};

TEST_F(RunCommandTest, PrintsTheTableAndTheSameLossesOnAnyNumberOfRanks) {
  const Ended one = Run("");
  ASSERT_EQ(one.code, 0) << one.output;
  EXPECT_THAT(one.output, HasSubstr("Step | Loss | Peak memory per rank"));
  EXPECT_THAT(one.output, HasSubstr("4 steps, 512 tokens"));
  ASSERT_NE(Losses(one.output), "");
  const Ended processes = Run("--local-ranks 3");
  ASSERT_EQ(processes.code, 0) << processes.output;
  EXPECT_EQ(Losses(processes.output), Losses(one.output));
  const Ended threads = Run("--local-ranks 2 --communicator in_process");
  ASSERT_EQ(threads.code, 0) << threads.output;
  EXPECT_EQ(Losses(threads.output), Losses(one.output));
}

TEST_F(RunCommandTest, MistakesInTheCommandLineExitWithTwo) {
  EXPECT_EQ(Shell(Trainer()).code, 2);
  EXPECT_EQ(Shell(Trainer() + "fly").code, 2);
  EXPECT_EQ(Shell(Trainer() + "run").code, 2);
  EXPECT_EQ(Shell(Trainer() + "run /nowhere.yaml").code, 2);
  EXPECT_EQ(Run("--local-ranks 0").code, 2);
  EXPECT_EQ(Run("--local-ranks many").code, 2);
  EXPECT_EQ(Run("--communicator carrier-pigeon").code, 2);
  const Ended unknown = Run("--colour red");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.output, HasSubstr("unknown flag --colour"));
  EXPECT_EQ(Shell(Trainer() + "--device abacus run x").code, 2);
}

TEST_F(RunCommandTest, HelpAndVersionExitWithZero) {
  EXPECT_THAT(Shell(Trainer() + "--help").output, HasSubstr("oracle FILE"));
  EXPECT_EQ(Shell(Trainer() + "--version").code, 0);
}

TEST_F(RunCommandTest, ABadSpecExitsWithThreeAndNamesTheField) {
  const Ended ended = Run("--set model.numHeads=5");
  EXPECT_EQ(ended.code, 3);
  EXPECT_THAT(ended.output, HasSubstr("model.numHeads"));
}

TEST_F(RunCommandTest, BadDataExitsWithTenAndNamesThePlace) {
  const Ended none = Run("--set data.source=tokens --set data.path=" + directory_ + "/none");
  EXPECT_EQ(none.code, 10) << none.output;
  const std::string path = Write("a.bin", std::string(4000, '\x07'));  // ids 0x0707
  const Ended large = Run("--local-ranks 2 --set data.source=tokens --set data.path=" + path);
  EXPECT_EQ(large.code, 10) << large.output;
  EXPECT_THAT(large.output, HasSubstr("a.bin, byte 0: token id 1799"));
}

TEST_F(RunCommandTest, ABadCheckpointExitsWithEleven) {
  const Ended none = Run("--set checkpoint.resumeFrom=" + directory_);
  EXPECT_EQ(none.code, 11) << none.output;
  EXPECT_THAT(none.output, HasSubstr("is no checkpoint"));
}

TEST_F(RunCommandTest, ResumesFromWhatItWrote) {
  const Ended first = Run("--local-ranks 2 --set checkpoint.dir=" + directory_);
  ASSERT_EQ(first.code, 0) << first.output;
  std::string written;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
    if (entry.path().filename() == "manifest.json") written = entry.path().parent_path();
  }
  ASSERT_NE(written, "");
  const Ended more =
      Run("--local-ranks 3 --set limits.maxSteps=6 --set checkpoint.resumeFrom=" + written);
  ASSERT_EQ(more.code, 0) << more.output;
  const Ended whole = Run("--set limits.maxSteps=6");
  const std::string losses = Losses(whole.output);
  EXPECT_TRUE(losses.ends_with(Losses(more.output))) << losses << " / " << more.output;
}

TEST_F(RunCommandTest, WithoutACudaBuildTheDeviceFlagSaysSo) {
  if (std::filesystem::exists(FSDP_BINARY_DIR "/fsdp-trainer-cuda")) {
    GTEST_SKIP() << "this build has one";
  }
  const Ended ended = Run("--device cuda");
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.output, HasSubstr("fsdp-trainer-cuda does not exist"));
}

TEST_F(RunCommandTest, AProfileEndsTheTrainingAndSaysWhyItHasNoCounters) {
  const std::string folder = directory_ + "/profile";
  const Ended ended = Shell(Trainer() +
                            "profile " FSDP_SOURCE_DIR
                            "/deploy/examples/tiny.yaml --set limits.maxSteps=1000000 "
                            "--local-ranks 2 --steps 3 --counters --output " +
                            folder);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("matmul.mlp"));
  for (const char* name : {"report.html", "kernels.txt", "profile.pb", "trace.perfetto-trace"}) {
    EXPECT_TRUE(std::filesystem::exists(folder + "/" + name)) << name;
  }
  std::ifstream page(folder + "/report.html");
  const std::string text(std::istreambuf_iterator<char>(page), {});
  EXPECT_THAT(text, HasSubstr("without hardware counters"));
}

}  // namespace
