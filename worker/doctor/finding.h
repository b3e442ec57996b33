#ifndef FSDPCTL_WORKER_DOCTOR_FINDING_H_
#define FSDPCTL_WORKER_DOCTOR_FINDING_H_

// What a check found: a value that was measured, how bad it is, what to do.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::doctor {

inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;
inline constexpr std::int64_t kGiB = std::int64_t{1} << 30;

enum class Level {
  kOk,
  // Works, and will hurt some day or some jobs.
  kWarning,
  // Something that people ask of the system does not work.
  kFault,
};

struct Finding {
  Level level = Level::kOk;
  // "host", "cluster" or "tls".
  std::string scope;
  // Stable over releases; for scripts: "open-files".
  std::string check;
  // Which of several: a path, a device, a worker; empty: there is one only.
  std::string subject;
  // "1024 (at most 524288)".
  std::string measured;
  // What to do; empty for kOk.
  std::string remedy;
};

using Findings = std::vector<Finding>;

// About this host; well until Say says otherwise.
inline Finding HostFinding(std::string check, std::string measured) {
  return {.scope = "host", .check = std::move(check), .measured = std::move(measured)};
}

inline void Say(Finding* finding, Level level, std::string remedy) {
  finding->level = level;
  finding->remedy = std::move(remedy);
}

// "ok", "warning", "fault".
inline const char* LevelName(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kWarning:
      return "warning";
    case Level::kFault:
      break;
  }
  return "fault";
}

}  // namespace fsdp::doctor

#endif  // FSDPCTL_WORKER_DOCTOR_FINDING_H_
