#ifndef FSDPCTL_COORDINATOR_WEB_PAGE_ACCESS_H_
#define FSDPCTL_COORDINATOR_WEB_PAGE_ACCESS_H_

// Who may look at the status page, and at which queues' jobs.

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace fsdp::coordinator {

struct Visitor {
  std::string subject;
  std::function<bool(std::string_view queue)> sees_queue;
};

// Thread-safe.
class PageAccess {
 public:
  virtual ~PageAccess() = default;
  // Nobody has to say who they are.
  [[nodiscard]] virtual bool is_open() const = 0;
  // `token` empty: none was sent.
  //   UNAUTHENTICATED     no token, or none that is known
  //   PERMISSION_DENIED   one that may not look
  //   RESOURCE_EXHAUSTED  too many requests from there
  [[nodiscard]] virtual absl::StatusOr<Visitor> Admit(const std::string& token,
                                                      const std::string& peer) const = 0;
};

// Without access control: everybody sees everything.
class OpenPageAccess : public PageAccess {
 public:
  [[nodiscard]] bool is_open() const override { return true; }
  [[nodiscard]] absl::StatusOr<Visitor> Admit(const std::string& /*token*/,
                                              const std::string& /*peer*/) const override {
    return Visitor{"anonymous", [](std::string_view) { return true; }};
  }
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_WEB_PAGE_ACCESS_H_
