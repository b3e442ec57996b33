#ifndef FSDPCTL_COORDINATOR_STORE_BACKUP_H_
#define FSDPCTL_COORDINATOR_STORE_BACKUP_H_

// Copies of the embedded store. A backup is one SQLite file of one moment, taken while a
// coordinator serves or not, and beside it FILE.sha256, as sha256sum writes and checks it.

#include <string>

#include "absl/status/status.h"

namespace fsdp::coordinator {

// Of `directory`/jobs.db into the new file `file`; both are on disk when it returns.
//   ALREADY_EXISTS       `file` or its checksum is there
//   NOT_FOUND            there is no jobs.db
//   FAILED_PRECONDITION  it is another program's
//   DATA_LOSS            it is damaged: no file is left
//   and what the file system says
absl::Status BackUpStore(const std::string& directory, const std::string& file);

// Into a directory that is empty or does not exist yet.
//   FAILED_PRECONDITION  the directory holds something, or the file is another program's or a later
//                        version's
//   NOT_FOUND            no such file, or none with its checksum
//   DATA_LOSS            the file does not match its checksum, or is damaged: nothing is restored
//   and what the file system says
absl::Status RestoreStore(const std::string& file, const std::string& directory);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_BACKUP_H_
