// How many ranks a job may have, and what that asks of the rest of the spec.
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "proto/support/spec_fields.h"
#include "proto/support/spec_validate.h"

namespace fsdp::spec {
namespace {

struct RankCount {
  std::string_view field;
  std::int64_t value = 0;
};

// Ranks come and go, and spares are held, in whole nodes.
void CheckWholeNodes(const v1::ResourceSpec& resources, const RankCount& count,
                     Findings* findings) {
  const std::int64_t per_node = resources.devices_per_node();
  if (count.value <= 0 || resources.any_node() || count.value % per_node == 0) return;
  findings->Error(count.field,
                  absl::StrCat("is no multiple of devicesPerNode ", per_node,
                               ", which a node has all or none of; resources.anyNode: true takes "
                               "devices wherever they are"),
                  {absl::StrCat(count.value), "", ""});
}

void CheckBounds(const v1::ResourceSpec& resources, std::int64_t world, Findings* findings) {
  const RankCount fewest{"spec.resources.minRanks", resources.min_ranks()};
  const RankCount most{"spec.resources.maxRanks", resources.max_ranks()};
  if (fewest.value > world) {
    findings->Error(fewest.field,
                    absl::StrCat("is more than nodes x devicesPerNode, ", world, " ranks"),
                    {absl::StrCat(fewest.value), "", ""});
  }
  if (most.value > 0 && most.value < world) {
    findings->Error(most.field,
                    absl::StrCat("is less than nodes x devicesPerNode, ", world, " ranks"),
                    {absl::StrCat(most.value), "", ""});
  }
}

// What another number of ranks asks of the rest of the spec.
void CheckElastic(const v1::JobSpec& spec, Findings* findings) {
  const RankCount most{"spec.resources.maxRanks", spec.resources().max_ranks()};
  const RankCount fewest{"spec.resources.minRanks", spec.resources().min_ranks()};
  const RankCount& given = fewest.value > 0 ? fewest : most;
  if (given.value <= 0) return;
  if (spec.checkpoint().dir().empty()) {
    findings->Error(given.field,
                    "needs checkpoint.dir: another number of ranks goes on from a checkpoint",
                    {absl::StrCat(given.value), "", ""});
  } else if (spec.checkpoint().every_steps() == 0) {
    findings->Warning(given.field,
                      "the job never grows: it does so at a checkpoint, and "
                      "checkpoint.everySteps is 0");
  }
  if (most.value > spec.train().global_batch() && spec.train().global_batch() > 0) {
    findings->Warning(most.field,
                      absl::StrCat("is more than train.globalBatch ", spec.train().global_batch(),
                                   ": ranks beyond it would have no sequence, and are not used"));
  }
  if (spec.train().deterministic()) {
    findings->Warning(given.field,
                      "train.deterministic repeats a run to the bit on the same number of ranks "
                      "only; on another one sums are added in another order");
  }
}

}  // namespace

void CheckResources(const v1::JobSpec& spec, Findings* findings) {
  if (findings->HasErrorUnder("spec.resources")) return;
  const v1::ResourceSpec& resources = spec.resources();
  const std::int64_t world =
      static_cast<std::int64_t>(resources.nodes()) * resources.devices_per_node();
  if (world > kMaxRanks) {
    findings->Error("spec.resources", absl::StrCat("nodes x devicesPerNode = ", world, " ranks"),
                    {"", absl::StrCat("1..", kMaxRanks), ""});
    return;
  }
  CheckBounds(resources, world, findings);
  for (const RankCount& count : {RankCount{"spec.resources.minRanks", resources.min_ranks()},
                                 RankCount{"spec.resources.maxRanks", resources.max_ranks()},
                                 RankCount{"spec.resources.spares", resources.spares()}}) {
    CheckWholeNodes(resources, count, findings);
  }
  if (!findings->HasErrorUnder("spec.resources")) CheckElastic(spec, findings);
}

}  // namespace fsdp::spec
