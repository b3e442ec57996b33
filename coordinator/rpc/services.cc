#include "coordinator/rpc/services.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/store/resource_names.h"
#include "fsdp/v1/cluster_service.pb.h"
#include "fsdp/v1/enrollment_service.pb.h"
#include "fsdp/v1/job_service.pb.h"
#include "fsdp/v1/worker_service.pb.h"

namespace fsdp::coordinator {

const std::vector<const google::protobuf::ServiceDescriptor*>& OurServices() {
  static const auto& services = *new std::vector<const google::protobuf::ServiceDescriptor*>{
      v1::CreateJobRequest::descriptor()->file()->FindServiceByName("JobService"),
      v1::ListWorkersRequest::descriptor()->file()->FindServiceByName("ClusterService"),
      v1::ConnectRequest::descriptor()->file()->FindServiceByName("WorkerService"),
      v1::EnrollWorkerRequest::descriptor()->file()->FindServiceByName("EnrollmentService")};
  return services;
}

absl::Status CheckJobName(const std::string& name) {
  if (name.empty()) return BadField("name", name, "is empty: want jobs/{id}");
  const std::string id = JobIdFromName(name).value();
  if (id.empty() || id.find('/') != std::string::npos) {
    return BadField("name", name, absl::StrCat("'", name.substr(0, 100), "': want jobs/{id}"));
  }
  return absl::OkStatus();
}

}  // namespace fsdp::coordinator
