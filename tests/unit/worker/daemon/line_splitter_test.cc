#include "worker/daemon/line_splitter.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

using Lines = std::vector<std::pair<std::string, bool>>;

LineSplitter Into(Lines* lines, std::size_t max_bytes = kMaxLineBytes) {
  return LineSplitter([lines](std::string text,
                              bool continued) { lines->emplace_back(std::move(text), continued); },
                      max_bytes);
}

TEST(LineSplitterTest, LinesMayArriveInAnyPieces) {
  const std::string bytes = "one\n\ntwo three\nlast";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    Lines lines;
    LineSplitter splitter = Into(&lines);
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      splitter.Append(bytes.substr(at, piece));
    splitter.Finish();
    EXPECT_THAT(lines, ElementsAre(Pair("one", false), Pair("", false), Pair("two three", false),
                                   Pair("last", false)))
        << piece;
  }
}

TEST(LineSplitterTest, NothingIsEmittedForNothing) {
  Lines lines;
  Into(&lines).Finish();
  EXPECT_THAT(lines, IsEmpty());
}

TEST(LineSplitterTest, ALongLineIsSplitAndMarkedAndNothingIsLost) {
  Lines lines;
  LineSplitter splitter = Into(&lines);
  const std::string text(2 * kMaxLineBytes + 5, 'x');
  splitter.Append(text.substr(0, 100));
  splitter.Append(text.substr(100));
  splitter.Append("\nnext\n");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], std::make_pair(std::string(kMaxLineBytes, 'x'), true));
  EXPECT_EQ(lines[1], std::make_pair(std::string(kMaxLineBytes, 'x'), true));
  EXPECT_EQ(lines[2], std::make_pair(std::string(5, 'x'), false));
  EXPECT_EQ(lines[3], std::make_pair(std::string("next"), false));
}

TEST(LineSplitterTest, ALineOfExactlyTheLimitIsWhole) {
  Lines lines;
  Into(&lines, 4).Append("abcd\n");
  EXPECT_THAT(lines, ElementsAre(Pair("abcd", false)));
}

TEST(LineSplitterTest, ASplitDoesNotCutACodePoint) {
  Lines lines;
  LineSplitter splitter = Into(&lines, 4);
  splitter.Append(
      "abc\xE2\x82\xAC"
      "d\n");
  EXPECT_THAT(lines, ElementsAre(Pair("abc", true), Pair("\xE2\x82\xAC"
                                                         "d",
                                                         false)));
}

TEST(ToValidUtf8Test, KeepsWhatIsValidAndTheLength) {
  EXPECT_EQ(ToValidUtf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"),
            "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  EXPECT_EQ(ToValidUtf8("a\xff"
                        "b"),
            "a?b");
  EXPECT_EQ(ToValidUtf8("\xC3"), "?");
  EXPECT_EQ(ToValidUtf8("\xC0\x80"), "??");            // Overlong.
  EXPECT_EQ(ToValidUtf8("\xED\xA0\x80"), "???");       // A surrogate.
  EXPECT_EQ(ToValidUtf8("\xF4\x90\x80\x80"), "????");  // Above U+10FFFF.
}

}  // namespace
}  // namespace fsdp::daemon
