// On which numbers of ranks an elastic job runs.

#include "worker/plan/elastic_sizes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;

v1::TrainingJob Job(int asked, int fewest, int most, std::int64_t sequences) {
  v1::TrainingJob job;
  v1::ResourceSpec& resources = *job.mutable_spec()->mutable_resources();
  resources.set_devices_per_node(asked);
  resources.set_any_node(true);
  resources.set_min_ranks(fewest);
  resources.set_max_ranks(most);
  job.mutable_spec()->mutable_train()->set_global_batch(sequences);
  return job;
}

TEST(ElasticSizesTest, AJobWithNeitherBoundHasOneSize) {
  EXPECT_FALSE(IsElastic(Job(3, 0, 0, 8)));
  EXPECT_THAT(ElasticSizes(Job(3, 0, 0, 8)), ElementsAre(3));
}

TEST(ElasticSizesTest, TheOtherBoundIsTheSpecsOwnSize) {
  EXPECT_THAT(ElasticSizes(Job(3, 2, 0, 100)), ElementsAre(2, 3));
  EXPECT_THAT(ElasticSizes(Job(3, 0, 5, 100)), ElementsAre(3, 4, 5));
}

// Of 8 sequences the largest share is 8, 4, 3, 2, 2, 2, 2, 1 on 1 to 8 ranks.
TEST(ElasticSizesTest, SizesThatShortenNoStepAreLeftOut) {
  EXPECT_THAT(ElasticSizes(Job(4, 1, 12, 8)), ElementsAre(1, 2, 3, 4, 8));
  // The size that the spec names counts, whatever it gains; so does the smallest.
  EXPECT_THAT(ElasticSizes(Job(6, 5, 8, 8)), ElementsAre(5, 6, 8));
}

TEST(ElasticSizesTest, WithoutAnyNodeSizesAreWholeNodes) {
  v1::TrainingJob job = Job(4, 4, 16, 64);
  job.mutable_spec()->mutable_resources()->set_any_node(false);
  job.mutable_spec()->mutable_resources()->set_nodes(2);
  EXPECT_THAT(ElasticSizes(job), ElementsAre(4, 8, 12, 16));
}

TEST(ElasticSizesTest, TheTextNamesBoundsAndSizes) {
  EXPECT_EQ(ElasticSizesText(Job(3, 2, 3, 12)), "2 to 3 ranks (2, 3)");
  EXPECT_EQ(ElasticSizesText(Job(4, 1, 8, 8)),
            "1 to 8 ranks (1, 2, 3, 4, 8: others would shorten no step of 8 sequences)");
  EXPECT_EQ(ElasticSizesText(Job(1, 1, 64, 1 << 20)),
            "1 to 64 ranks (1, 2, 3, 4, 5, 6, 7, 8, ... 64)");
}

}  // namespace
}  // namespace fsdp
