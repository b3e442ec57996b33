// The roofline and the page by their texts; profile_files_test.py parses them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>

#include "tests/unit/worker/profile/report/example_profile.h"
#include "worker/profile/report/html_report.h"
#include "worker/profile/report/report_text.h"
#include "worker/profile/report/roofline_svg.h"
#include "worker/profile/report/step_anatomy.h"

namespace fsdp {
namespace {

using testing::HasSubstr;
using testing::Not;

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

// The circle of a family, by its tooltip.
struct Circle {
  double x = 0, y = 0, radius = 0;
};
// The number after the last `name="` before `end`.
double AttributeBefore(const std::string& svg, const std::string& name, std::size_t end) {
  return std::stod(svg.substr(svg.rfind(name + "=\"", end) + name.size() + 2, 12));
}
Circle CircleOf(const std::string& svg, const std::string& family) {
  const std::size_t title = svg.find("><title>" + family + ":");
  if (title == std::string::npos) {
    ADD_FAILURE() << "no point for " << family;
    return {};
  }
  return {AttributeBefore(svg, " cx", title), AttributeBefore(svg, " cy", title),
          AttributeBefore(svg, " r", title)};
}

TEST(RooflineTest, HasAPointPerFamilyWithFlops) {
  const std::string svg = RooflineSvg(ExampleProfile(ExampleNames::kPlain));
  EXPECT_EQ(Count(svg, "<title>"), 6);
  EXPECT_THAT(svg, HasSubstr("matmul bf16 60.0 TFLOP/s"));
  EXPECT_THAT(svg, HasSubstr("memory 2.40 TB/s"));
  EXPECT_THAT(svg, HasSubstr("ridge 25"));
  EXPECT_THAT(svg, HasSubstr("Without FLOPs: loss"));
  EXPECT_THAT(svg, Not(HasSubstr("gather")));
}

TEST(RooflineTest, PointsLieWhereTheirFiguresAre) {
  const std::string svg = RooflineSvg(ExampleProfile(ExampleNames::kPlain));
  const Circle qkv = CircleOf(svg, "matmul.qkv"), norm = CircleOf(svg, "norm");
  const Circle mlp = CircleOf(svg, "matmul.mlp");
  // qkv: 25.8 TFLOP/s at 661 FLOPs a byte; norm: 32 GFLOP/s at 0.016; higher is up, denser is
  // right.
  EXPECT_GT(qkv.x, norm.x);
  EXPECT_LT(qkv.y, norm.y);
  // A decade is as wide everywhere: from norm to qkv and from norm to mlp in the same measure.
  const double per_decade_x = (qkv.x - norm.x) / std::log10((2.58e10 / 3.9e7) / (1.6e7 / 1e9));
  EXPECT_NEAR((mlp.x - norm.x) / std::log10((6.88e10 / 1e8) / (1.6e7 / 1e9)), per_decade_x, 0.2);
  const double per_decade_y = (norm.y - qkv.y) / std::log10((2.58e10 / 1e-3) / (1.6e7 / 500e-6));
  EXPECT_NEAR((norm.y - mlp.y) / std::log10((6.88e10 / 2e-3) / (1.6e7 / 500e-6)), per_decade_y,
              0.2);
  // The area tells the time: mlp takes twice as long as qkv.
  EXPECT_NEAR(mlp.radius * mlp.radius / (qkv.radius * qkv.radius), 2, 0.1);
}

TEST(RooflineTest, SaysWhichRoofIsMissing) {
  v1::JobProfile profile = ExampleProfile(ExampleNames::kPlain);
  const auto set = [&](double flops, double bytes) {
    for (auto& rank : *profile.mutable_ranks()) {
      rank.set_flops_ceiling(flops);
      rank.set_bytes_ceiling(bytes);
    }
    return RooflineSvg(profile);
  };
  EXPECT_THAT(set(0, 0), HasSubstr("neither was measured"));
  EXPECT_THAT(set(0, 2e12), HasSubstr("No compute roof is drawn"));
  EXPECT_THAT(set(6e13, 0), HasSubstr("No memory roof is drawn"));
  EXPECT_EQ(Count(set(6e13, 2e12), "is drawn"), 0);
  EXPECT_THAT(RooflineSvg(v1::JobProfile()), HasSubstr("No family of this profile"));
}

TEST(AnatomyTest, MfuAndHfuAreOfTheMeasuredCeiling) {
  const v1::JobProfile profile = ExampleProfile(ExampleNames::kPlain);
  const auto anatomies = report::Anatomies(profile);
  ASSERT_EQ(anatomies.size(), 3U);
  EXPECT_NEAR(anatomies[0].step_seconds, 10e-3, 1e-12);
  EXPECT_NEAR(anatomies[0].mfu, 8e11 / 4 / (10e-3 * 60e12), 1e-12);
  EXPECT_NEAR(anatomies[0].hfu,
              (6.88e10 + 3.4e10 + 8.5e10 + 2.58e10 + 1e8 + 1.6e7) / (10e-3 * 60e12), 1e-12);
  EXPECT_EQ(anatomies[2].mfu, 0) << "rank 3 has no ceiling";
  double sum = 0;
  for (const auto& phase : report::SummedPhases()) sum += (anatomies[0].phases.*phase.get)();
  EXPECT_NEAR(sum, anatomies[0].step_seconds, 1e-12);
}

std::string PageOf(const v1::JobProfile& profile, const HtmlOptions& options) {
  return HtmlReport(profile, BuildKernelReport(profile), options);
}

TEST(HtmlReportTest, EscapesWhatUsersName) {
  HtmlOptions options;
  options.banner = "Example: <figures> made by hand";
  const std::string html = PageOf(ExampleProfile(ExampleNames::kHostile), options);
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("<b>not")));
  EXPECT_THAT(html, HasSubstr("minillm-&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;-ü"));
  EXPECT_THAT(html, HasSubstr("Example: &lt;figures&gt; made by hand"));
  EXPECT_THAT(html, HasSubstr("softmax 核 \xf0\x9f\x9a\x80"));
  EXPECT_THAT(html, Not(HasSubstr("\x01")));
}

TEST(HtmlReportTest, TellsWhatIsMissing) {
  const std::string html = PageOf(ExampleProfile(ExampleNames::kPlain), {});
  EXPECT_THAT(html, HasSubstr("rank 2: its worker did not answer within 30s"));
  EXPECT_THAT(html, HasSubstr("rank 1: 7 spans did not fit into the recording"));
  EXPECT_THAT(html, HasSubstr("3 of 4"));
  EXPECT_THAT(html, Not(HasSubstr("class=\"banner\"")));
  EXPECT_THAT(PageOf(v1::JobProfile(), {}), HasSubstr("Nothing is missing"));
}

TEST(HtmlReportTest, CurvesAreInTheCountersUnits) {
  v1::JobProfile profile = ExampleProfile(ExampleNames::kPlain);
  const std::string html = PageOf(profile, {});
  EXPECT_EQ(Count(html, "<polyline"), 2 * 3) << "memory and sm of three ranks";
  EXPECT_THAT(html, HasSubstr(">4.6 GiB</text>"));
  EXPECT_THAT(html, HasSubstr(">62.0 %</text>"));
  for (auto& rank : *profile.mutable_ranks()) rank.clear_counters();
  EXPECT_THAT(PageOf(profile, {}), HasSubstr("No hardware counters were read"));
}

TEST(HtmlReportTest, ManyNotesAreCut) {
  v1::JobProfile profile;
  for (int i = 0; i < 250; ++i) profile.add_missing("rank " + std::to_string(i) + " gone");
  const std::string html = PageOf(profile, {});
  EXPECT_THAT(html, HasSubstr("rank 199 gone"));
  EXPECT_THAT(html, Not(HasSubstr("rank 200 gone")));
  EXPECT_THAT(html, HasSubstr("... 50 more"));
}

TEST(ReportTextTest, NumbersHaveThreeDigits) {
  using namespace report;  // NOLINT(google-build-using-namespace)
  EXPECT_EQ(TimeText(1.2345), "1.23 s");
  EXPECT_EQ(TimeText(0.0123), "12.3 ms");
  EXPECT_EQ(TimeText(-45.67e-6), "-45.7 us");
  EXPECT_EQ(TimeText(999.7e-6), "1.00 ms");
  EXPECT_EQ(TimeText(0), "0 us");
  EXPECT_EQ(TimeText(NAN), "-");
  EXPECT_EQ(RateText(312e12), "312 T");
  EXPECT_EQ(RateText(0), "-");
  EXPECT_EQ(RateText(42), "42.0");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1.5 * (1 << 30)), "1.5 GiB");
  EXPECT_EQ(CallsText(24), "24");
  EXPECT_EQ(CallsText(23.75), "23.8");
  EXPECT_EQ(PercentText(0.1234), "12.3 %");
}

TEST(ReportTextTest, TextsAreCleanedAndCutByCharacters) {
  EXPECT_EQ(report::CleanText("a\x1b[1m\xc2\x85z"), "a\xef\xbf\xbd[1m\xef\xbf\xbdz");
  EXPECT_EQ(report::CleanText("\xf4\x90\x80\x80"),
            "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(report::Shortened("核核核核", 3), "核核…");
  EXPECT_EQ(report::Shortened("核核核", 3), "核核核");
  EXPECT_EQ(report::HtmlEscaped("<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
  EXPECT_EQ(report::JsonQuoted("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(report::AlignedTable({{"name", false}, {"n"}}, {{"核", "10"}, {"ab", "5"}}),
            "name   n\n核     10\nab     5\n");
}

}  // namespace
}  // namespace fsdp
