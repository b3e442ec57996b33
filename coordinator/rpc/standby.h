#ifndef FSDPCTL_COORDINATOR_RPC_STANDBY_H_
#define FSDPCTL_COORDINATOR_RPC_STANDBY_H_

// What a coordinator serves while another one leads: health (NOT_SERVING), and NOT_LEADER with the
// leader's address to every other call. It has no state and asks nobody who they are.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/config/options.h"
#include "grpcpp/server_builder.h"
#include "prometheus/collectable.h"

namespace fsdp::coordinator {

class Counters;
class Transport;

class Standby {
 public:
  // The leader's address; empty: none leads. Any thread.
  using LeaderFn = std::function<std::string()>;

  // At `options.listen`. `transport` outlives it.
  //   UNAVAILABLE  the address cannot be bound
  static absl::StatusOr<std::unique_ptr<Standby>> Start(const Options& options,
                                                        const Transport& transport,
                                                        LeaderFn leader);
  // Frees the port. What is being answered is answered.
  virtual ~Standby() = default;

  [[nodiscard]] virtual int port() const = 0;
};

//   UNAVAILABLE  what Start and the serving coordinator say of an address
absl::Status CannotListen(const std::string& address);

// What the Prometheus endpoint shows meanwhile. All outlive the collectable.
std::shared_ptr<prometheus::Collectable> NewStandbyCollectable(const Counters& counters,
                                                               const Transport& transport);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_STANDBY_H_
