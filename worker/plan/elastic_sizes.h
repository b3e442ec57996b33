#ifndef FSDPCTL_WORKER_PLAN_ELASTIC_SIZES_H_
#define FSDPCTL_WORKER_PLAN_ELASTIC_SIZES_H_

// On how many ranks an elastic job may run. Pure.

#include <string>
#include <vector>

#include "fsdp/v1/job.pb.h"

namespace fsdp {

// resources.minRanks or maxRanks is given.
bool IsElastic(const v1::TrainingJob& job);

// The world sizes of a job whose spec is valid, ascending; of one that is not elastic its one.
//
// Any number of ranks shares the global batch, so the losses are the same on all of them. Left out
// are sizes that gain nothing over the next smaller one: as long as the rank with most sequences of
// a step has as many, a step takes as long. The spec's own size and the smallest always count.
// Unless resources.anyNode is set, sizes are whole nodes.
std::vector<int> ElasticSizes(const v1::TrainingJob& job);

// "2 to 8 ranks (2, 3, 4, 8: others would shorten no step of 8 sequences)".
std::string ElasticSizesText(const v1::TrainingJob& job);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PLAN_ELASTIC_SIZES_H_
