#include "worker/tokenize/progress_bar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace fsdp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ProgressBarTest, Text) {
  const TokenizeProgress progress{
      .done_bytes = 30'000'000, .total_bytes = 120'000'000, .tokens = 7, .shards = 1};
  EXPECT_EQ(ProgressBarText(progress, 30e6, 0),
            " 25%  30.0 of 120.0 MB  30.0 MB/s  1 shard  ETA 3s");
  EXPECT_THAT(ProgressBarText(progress, 30e6, 100), HasSubstr("━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌   25%"));
  EXPECT_EQ(ProgressBarText({.done_bytes = 5'000'000'000, .total_bytes = 20'000'000'000}, 0, 0),
            " 25%  5.0 of 20.0 GB  0 shards");
}

TEST(ProgressBarTest, ATerminalGetsOneLineAFileALineAShard) {
  double now = 0;
  std::ostringstream terminal;
  std::ostringstream file;
  ProgressBar bar(&terminal, true, 80, [&now] { return now; });
  ProgressBar lines(&file, false, 80, [&now] { return now; });
  for (std::int64_t i = 1; i <= 10; ++i) {
    now += 1;
    const TokenizeProgress progress{.done_bytes = i * 1'000'000,
                                    .total_bytes = 10'000'000,
                                    .tokens = i,
                                    .shards = static_cast<std::size_t>(i / 5)};
    bar.Show(progress);
    lines.Show(progress);
  }
  bar.End();
  lines.End();
  EXPECT_THAT(terminal.str(), HasSubstr("\r\x1b[K"));
  EXPECT_THAT(terminal.str(), HasSubstr("100%  10.0 of 10.0 MB  1.0 MB/s"));
  EXPECT_EQ(terminal.str().back(), '\n');
  EXPECT_EQ(file.str(),
            " 50%  5.0 of 10.0 MB  1.0 MB/s  1 shard  ETA 5s\n"
            "100%  10.0 of 10.0 MB  1.0 MB/s  2 shards\n");
  EXPECT_THAT(file.str(), Not(HasSubstr("\r")));
}

}  // namespace
}  // namespace fsdp
