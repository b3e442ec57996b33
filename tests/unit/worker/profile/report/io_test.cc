#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "tests/support/temporary_folder.h"
#include "tests/unit/worker/profile/report/example_profile.h"
#include "worker/profile/report/job_profile_io.h"
#include "worker/profile/report/profile_folder.h"

namespace fsdp {
namespace {

using absl::StatusCode;
using testing::HasSubstr;
using testing::StartsWith;

struct Damage {
  const char* name;
  std::function<void(v1::JobProfile*)> apply;
  // What the message begins with, or has.
  const char* message;
};

void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

v1::ProfileSpan* SpanOf(v1::JobProfile* p) { return p->mutable_ranks(1)->mutable_spans(5); }

const Damage kDamages[] = {
    {"Format", [](auto* p) { p->mutable_ranks(0)->set_format(2); }, "ranks[0].format: 2 is not 1"},
    {"Rank", [](auto* p) { p->mutable_ranks(0)->set_rank(4); }, "ranks[0].rank: 4 is not between"},
    {"World", [](auto* p) { p->mutable_ranks(2)->set_world_size(0); },
     "ranks[2].world_size: 0 is not between 1"},
    {"Twice", [](auto* p) { p->mutable_ranks(1)->set_rank(0); },
     "ranks[1].rank: 0 has two recordings"},
    {"Clock", [](auto* p) { p->mutable_ranks(0)->set_begin_ns(-1); }, "ranks[0].begin_ns: -1"},
    {"End", [](auto* p) { p->mutable_ranks(0)->set_end_ns(0); }, "ranks[0].end_ns: 0"},
    {"FirstString", [](auto* p) { p->mutable_ranks(0)->set_strings(0, "x"); },
     "ranks[0].strings[0]: x is not empty"},
    {"Name", [](auto* p) { SpanOf(p)->set_name(1'000'000); },
     "ranks[1].spans[5].name: 1000000 is beyond the "},
    {"Family", [](auto* p) { SpanOf(p)->set_family(4'294'967'295U); },
     "ranks[1].spans[5].family: 4294967295"},
    {"Shape", [](auto* p) { SpanOf(p)->set_shape(1'000'000); }, "ranks[1].spans[5].shape: "},
    {"Track", [](auto* p) { SpanOf(p)->set_track(static_cast<v1::ProfileTrack>(77)); },
     "ranks[1].spans[5].track: 77"},
    {"NoTrack", [](auto* p) { SpanOf(p)->set_track(v1::PROFILE_TRACK_UNSPECIFIED); },
     "ranks[1].spans[5].track: 0"},
    {"NegativeBegin", [](auto* p) { SpanOf(p)->set_begin_ns(-5); },
     "ranks[1].spans[5].begin_ns: -5 is not between 0"},
    {"NegativeDuration", [](auto* p) { SpanOf(p)->set_duration_ns(-5); },
     "ranks[1].spans[5].duration_ns: -5 is not between 0"},
    {"HugeDuration",
     [](auto* p) { SpanOf(p)->set_duration_ns(std::numeric_limits<std::int64_t>::max()); },
     "ranks[1].spans[5].duration_ns: 9223372036854775807"},
    {"Flops", [](auto* p) { SpanOf(p)->set_flops(std::nan("")); }, "ranks[1].spans[5].flops: "},
    {"Bytes", [](auto* p) { SpanOf(p)->set_bytes(-1); }, "ranks[1].spans[5].bytes: -1"},
    {"CounterSizes", [](auto* p) { p->mutable_ranks(0)->mutable_counters(0)->add_values(1); },
     "ranks[0].counters[0].values: 41"},
    {"CounterOrder", [](auto* p) { p->mutable_ranks(0)->mutable_counters(0)->set_time_ns(3, 1); },
     "ranks[0].counters[0].time_ns[3]: 1 is not between 1000000"},
    {"CounterValue",
     [](auto* p) { p->mutable_ranks(0)->mutable_counters(1)->set_values(2, INFINITY); },
     "ranks[0].counters[1].values[2]: inf"},
    {"Step", [](auto* p) { p->mutable_ranks(0)->mutable_steps(1)->set_duration_ns(-1); },
     "ranks[0].steps[1].duration_ns: -1"},
    {"Phase",
     [](auto* p) {
       p->mutable_ranks(0)->mutable_steps(1)->mutable_phases()->set_data_seconds(std::nan(""));
     },
     "ranks[0].steps[1].phases: "},
    {"Launches", [](auto* p) { p->mutable_ranks(0)->mutable_families(2)->set_launches(-1); },
     "ranks[0].families[2].launches: -1"},
    {"Seconds", [](auto* p) { p->mutable_ranks(0)->mutable_families(2)->set_seconds(-1); },
     "ranks[0].families[2].seconds: -1"},
    {"Dropped",
     [](auto* p) {
       p->mutable_ranks(0)->set_spans_dropped(std::numeric_limits<std::int64_t>::max());
     },
     "ranks[0].spans_dropped: "},
    {"Ceiling", [](auto* p) { p->mutable_ranks(0)->set_flops_ceiling(INFINITY); },
     "ranks[0].flops_ceiling: inf"},
    {"ClockOffset",
     [](auto* p) { p->mutable_clocks(1)->set_offset_ns(std::numeric_limits<std::int64_t>::min()); },
     "clocks[1].offset_ns: "},
    {"TwoClocks", [](auto* p) { p->mutable_clocks(1)->set_rank(0); },
     "clocks[1].rank: 0 has two clocks"},
};

class ValidateProfileTest : public testing::TestWithParam<Damage> {};

TEST_P(ValidateProfileTest, NamesTheField) {
  v1::JobProfile profile = ExampleProfile(ExampleNames::kPlain);
  ASSERT_TRUE(ValidateProfile(profile).ok());
  GetParam().apply(&profile);
  const absl::Status status = ValidateProfile(profile);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), StartsWith(GetParam().message));
  // And so does what reads it from a file, whose checksum is right.
  EXPECT_EQ(DecodeJobProfile(EncodeJobProfile(profile)).status().message(), status.message());
}

INSTANTIATE_TEST_SUITE_P(All, ValidateProfileTest, testing::ValuesIn(kDamages),
                         [](const auto& info) { return info.param.name; });

TEST(JobProfileIoTest, WhatWasWrittenIsRead) {
  const TemporaryFolder folder;
  const v1::JobProfile profile = ExampleProfile(ExampleNames::kHostile);
  ASSERT_TRUE(WriteJobProfile(profile, folder.Path("profile.pb")).ok());
  const auto read = ReadJobProfile(folder.Path("profile.pb"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), profile.SerializeAsString());
  // Other tools read it as it stands: the checksum is a field that they do not know.
  v1::JobProfile plain;
  EXPECT_TRUE(plain.ParseFromString(folder.Read("profile.pb")));
  EXPECT_EQ(plain.ranks_size(), 3);
}

TEST(JobProfileIoTest, EveryTruncationIsAnError) {
  const std::string bytes = EncodeJobProfile(ExampleProfile(ExampleNames::kPlain));
  for (std::size_t size = 0; size < bytes.size(); size += 1 + size / 97) {
    EXPECT_EQ(DecodeJobProfile(bytes.substr(0, size)).status().code(), StatusCode::kDataLoss)
        << size;
  }
}

TEST(JobProfileIoTest, EveryChangedByteIsAnError) {
  const std::string bytes = EncodeJobProfile(ExampleProfile(ExampleNames::kPlain));
  for (std::size_t at = 0; at < bytes.size(); at += 101) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x20);
    EXPECT_EQ(DecodeJobProfile(changed).status().code(), StatusCode::kDataLoss) << at;
  }
}

TEST(JobProfileIoTest, HostileBytesAreErrors) {
  // A recording that claims to be longer than the file.
  EXPECT_EQ(DecodeJobProfile("\x1a\xff\xff\xff\x7f" + EncodeJobProfile({})).status().code(),
            StatusCode::kDataLoss);
}

TEST(JobProfileIoTest, ManyTinyPartsAreRefusedBeforeTheyAreUnpacked) {
  // Two bytes of file each, with a checksum that is right: empty strings of a recording.
  std::string strings;
  strings.resize(42'000'000);
  constexpr char kTag = v1::RankProfile::kStringsFieldNumber << 3 | 2;
  for (std::size_t i = 0; i < strings.size(); i += 2) strings[i] = kTag;
  v1::JobProfile profile;
  profile.GetReflection()->MutableUnknownFields(&profile)->AddLengthDelimited(
      v1::JobProfile::kRanksFieldNumber, strings);
  const absl::Status status = DecodeJobProfile(EncodeJobProfile(profile)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than 20000000 parts"));
}

TEST(JobProfileIoTest, WhatIsNoFileOfOursIsTold) {
  const TemporaryFolder folder;
  EXPECT_EQ(ReadJobProfile(folder.Path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadJobProfile(folder.path()).status().code(), StatusCode::kInvalidArgument);
  const std::string text = folder.Write("text", "not a profile at all\n");
  const absl::Status status = ReadJobProfile(text).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), StartsWith(text));
}

TEST(ProfileFolderTest, HasEveryFileAndTheirSizes) {
  const TemporaryFolder folder;
  WrittenProfile written;
  const std::string path = folder.Path("a/b");
  ASSERT_TRUE(WriteProfileFolder(ExampleProfile(ExampleNames::kHostile), {}, path, &written).ok());
  std::vector<std::string> names;
  for (const WrittenFile& file : written.files) {
    names.push_back(file.name);
    EXPECT_EQ(static_cast<std::int64_t>(folder.Read("a/b/" + file.name).size()), file.size_bytes);
  }
  EXPECT_THAT(names, testing::ElementsAre("profile.pb", "trace.perfetto-trace", "trace.json.gz",
                                          "kernels.txt", "roofline.svg", "report.html"));
  EXPECT_EQ(written.trace_left_out, 0);
  // Again into the same folder.
  EXPECT_TRUE(WriteProfileFolder(ExampleProfile(ExampleNames::kPlain), {}, path).ok());
  EXPECT_TRUE(ReadJobProfile(path + "/profile.pb").ok());
}

TEST(ProfileFolderTest, CapsAreToldInThePage) {
  const TemporaryFolder folder;
  ReportOptions options;
  options.max_trace_bytes = 8'000;
  options.max_json_bytes = 20'000;
  WrittenProfile written;
  ASSERT_TRUE(
      WriteProfileFolder(ExampleProfile(ExampleNames::kPlain), options, folder.path(), &written)
          .ok());
  EXPECT_GT(written.trace_left_out, 0);
  EXPECT_LE(folder.Read("trace.perfetto-trace").size(), 8'000U);
  EXPECT_THAT(folder.Read("report.html"),
              HasSubstr(std::to_string(written.trace_left_out) +
                        " events did not fit into trace.perfetto-trace"));
  EXPECT_THAT(folder.Read("report.html"), HasSubstr(std::to_string(written.json_left_out) +
                                                    " events did not fit into trace.json.gz"));
}

TEST(ProfileFolderTest, NothingIsWrittenOfABadProfile) {
  const TemporaryFolder folder;
  v1::JobProfile profile = ExampleProfile(ExampleNames::kPlain);
  SpanOf(&profile)->set_duration_ns(-1);
  const absl::Status status = WriteProfileFolder(profile, {}, folder.Path("x"));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(folder.Path("x")));
  const std::string file = folder.Write("file", "");
  EXPECT_FALSE(WriteProfileFolder(ExampleProfile(ExampleNames::kPlain), {}, file).ok());
}

}  // namespace
}  // namespace fsdp
