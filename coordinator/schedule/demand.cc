#include "coordinator/schedule/demand.h"

#include "absl/strings/str_cat.h"
#include "worker/plan/elastic_sizes.h"

namespace fsdp::coordinator {

void Demand::Accept(int ranks) {
  if (any_node) {
    nodes = ranks;
    devices_per_node = 1;
  } else {
    nodes = ranks / devices_per_node;
  }
}

Demand DemandOf(const v1::TrainingJob& job) {
  const v1::ResourceSpec& resources = job.spec().resources();
  Demand demand;
  demand.nodes = resources.has_nodes() ? resources.nodes() : 1;
  demand.devices_per_node = resources.has_devices_per_node() ? resources.devices_per_node() : 1;
  demand.device = DeviceOf(resources);
  demand.any_node = resources.any_node();
  demand.full_size = demand.world_size();
  demand.spares = resources.spares();
  if (IsElastic(job)) demand.sizes = ElasticSizes(job);
  return demand;
}

Demand LeastDemandOf(const v1::TrainingJob& job) {
  Demand demand = DemandOf(job);
  if (!demand.sizes.empty()) demand.Accept(demand.sizes.front());
  return demand;
}

v1::DeviceType DeviceOf(const v1::ResourceSpec& resources) {
  return resources.device() == v1::DEVICE_TYPE_UNSPECIFIED ? v1::DEVICE_TYPE_CPU
                                                           : resources.device();
}

const char* DeviceWord(v1::DeviceType device) {
  return device == v1::DEVICE_TYPE_CUDA ? "cuda" : "cpu";
}

std::string NeedsText(const Demand& demand) {
  return absl::StrCat("needs ", demand.world_size(), " ", DeviceWord(demand.device),
                      demand.world_size() == 1 ? " worker" : " workers");
}

}  // namespace fsdp::coordinator
