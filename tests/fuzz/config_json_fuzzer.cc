// config.json of a model: what was read can be written, and reads back to the same model.

#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz_support.h"
#include "worker/plan/config_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const absl::StatusOr<fsdp::ModelConfig> model =
      fsdp::ModelFromConfigJson(fsdp::fuzz::Text(data, size));
  if (!model.ok()) return 0;
  const auto json = fsdp::ModelToConfigJson(*model, {});
  if (!json.ok()) return 0;
  const auto again = fsdp::ModelFromConfigJson(json->dump());
  fsdp::fuzz::Require(again.ok(), "a model that was written is read");
  const auto twice = fsdp::ModelToConfigJson(*again, {});
  fsdp::fuzz::Require(twice.ok() && *twice == *json, "writing and reading change nothing");
  return 0;
}
