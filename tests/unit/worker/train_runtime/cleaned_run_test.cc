#include "worker/train/cleaned_run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "tests/support/temporary_folder.h"

namespace fsdp {
namespace {

// RunCleaned in a process of its own; `clean` removes `file`, which `body` finds made.
class CleanedRunTest : public ::testing::Test {
 protected:
  int Run(const std::function<int()>& body) const {
    return RunCleaned(
        [&] {
          std::ofstream(file_) << "x";
          return body();
        },
        [&] { std::filesystem::remove(file_); });
  }
  [[nodiscard]] bool IsClean() const { return !std::filesystem::exists(file_); }

  TemporaryFolder folder_;
  const std::string file_ = folder_.path() + "/ranks";
};

TEST_F(CleanedRunTest, CleansAfterWhateverCode) {
  for (const int code : {0, 7}) {
    EXPECT_EQ(Run([code] { return code; }), code);
    EXPECT_TRUE(IsClean());
  }
}

TEST_F(CleanedRunTest, CleansAfterADeath) {
  EXPECT_EQ(Run([] { return raise(SIGKILL); }), 128 + SIGKILL);
  EXPECT_TRUE(IsClean());
}

// An interrupted fsdp-trainer profile left its folder.
TEST_F(CleanedRunTest, CleansWhenItIsInterrupted) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    int started[2];
    ASSERT_EQ(pipe(started), 0);
    const pid_t runner = fork();
    if (runner == 0) {
      Run([&]() -> int {
        // The parent may go on: the body runs.
        if (write(started[1], "x", 1) != 1) _exit(1);
        while (true) pause();
      });
      _exit(3);
    }
    close(started[1]);
    char byte = 0;
    ASSERT_EQ(read(started[0], &byte, 1), 1);
    EXPECT_FALSE(IsClean());
    kill(runner, signal);
    int state = 0;
    ASSERT_EQ(waitpid(runner, &state, 0), runner);
    EXPECT_TRUE(WIFSIGNALED(state) && WTERMSIG(state) == signal) << state;
    EXPECT_TRUE(IsClean());
    // The body's end of the pipe is closed with it.
    EXPECT_EQ(read(started[0], &byte, 1), 0);
    close(started[0]);
  }
}

}  // namespace
}  // namespace fsdp
