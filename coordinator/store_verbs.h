#ifndef FSDPCTL_COORDINATOR_STORE_VERBS_H_
#define FSDPCTL_COORDINATOR_STORE_VERBS_H_

// What fsdp-coordinator does with a store instead of serving: `backup`, `restore`, `migrate`.

#include <string>

#include "absl/status/statusor.h"
#include "coordinator/config/options.h"
#include "coordinator/config/store_options.h"

namespace fsdp::coordinator {

bool IsStoreVerb(const std::string& verb);

struct StoreVerbFlags {
  std::string from;
  std::string to;
  // --state-dir, --insecure.
  Options options;
  // --etcd-tls-*, --etcd-history-bytes.
  StoreOptions store;
};

// What to tell when it is done.
//   INVALID_ARGUMENT     a flag is missing or means nothing to the verb
//   FAILED_PRECONDITION  migrate: a coordinator leads there, or uses the directory
//   others               as BackUpStore, RestoreStore, CopyStore and the stores
absl::StatusOr<std::string> RunStoreVerb(const std::string& verb, const StoreVerbFlags& flags);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_VERBS_H_
