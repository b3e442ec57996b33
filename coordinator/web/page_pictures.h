#ifndef FSDPCTL_COORDINATOR_WEB_PAGE_PICTURES_H_
#define FSDPCTL_COORDINATOR_WEB_PAGE_PICTURES_H_

// The pictures of a job's page. They stretch with the page; their texts are the page's own, so that
// they are as large on a phone. Thread-safe (no state).

#include "coordinator/web/html.h"
#include "coordinator/web/job_history.h"
#include "fsdp/v1/job_record.pb.h"

namespace fsdp::coordinator {

// Loss by step, what its points stand for as a band around it, validation loss beside it, and a
// sentence with the figures. A sentence alone before there are two points.
Html LossCurve(const HistoryView& view);

// One bar with a step's phases in the order of a step, and their figures. Empty without figures.
Html AnatomyBar(const v1::StepPhases& phases);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_WEB_PAGE_PICTURES_H_
