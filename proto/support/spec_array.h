#ifndef FSDPCTL_PROTO_SUPPORT_SPEC_ARRAY_H_
#define FSDPCTL_PROTO_SUPPORT_SPEC_ARRAY_H_

// The jobs of an array's tasks, for who wants many of them: the array is read once. One task alone:
// ArrayTask (spec.h).

#include <memory>

#include "fsdp/v1/job.pb.h"
#include "proto/support/spec.h"

namespace fsdp {

// Immutable, thread-safe.
class ArrayTasks {
 public:
  explicit ArrayTasks(const v1::TrainingJob& array);
  ~ArrayTasks();
  ArrayTasks(const ArrayTasks&) = delete;
  ArrayTasks& operator=(const ArrayTasks&) = delete;

  // As ArrayTask.
  [[nodiscard]] SpecResult Job(int index) const;

 private:
  struct Document;
  const std::unique_ptr<const Document> document_;
};

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_SPEC_ARRAY_H_
