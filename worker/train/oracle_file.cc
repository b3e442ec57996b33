#include "worker/train/oracle_file.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"
#include "worker/plan/config_json.h"

namespace fsdp {
namespace {

using Json = nlohmann::json;

// As config.json, with "family" in the place of "model_type" where a peer wrote it.
absl::StatusOr<ModelConfig> ReadModel(const Json& json) {
  JsonObject in(json, "config.model");
  const std::string family = in.Text("family", "");
  const std::string type = in.Text("model_type", family);
  if (type.empty()) {
    return absl::InvalidArgumentError("config.model.family (or model_type) is missing");
  }
  ModelConfig model = ReadConfigMembers(in, type);
  RETURN_IF_ERROR(in.Finish());
  RETURN_IF_ERROR(ValidateModel(model));
  return model;
}

absl::StatusOr<OptimizerConfig> ReadOptimizer(const Json& json) {
  JsonObject in(json, "config.optimizer");
  OptimizerConfig config;
  config.lr = in.Number("lr");
  config.beta1 = in.Number("beta1");
  config.beta2 = in.Number("beta2");
  config.eps = in.Number("eps");
  config.weight_decay = in.Number("weight_decay");
  config.max_grad_norm = in.Number("grad_clip", 0);
  RETURN_IF_ERROR(in.Finish());
  return config;
}

absl::Status Misshapen(const std::string& path, const SafetensorsTensor& tensor,
                       const std::vector<std::int64_t>& expected) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", tensor.name, " has shape [",
                                                 absl::StrJoin(tensor.shape, ", "), "], expected [",
                                                 absl::StrJoin(expected, ", "), "]"));
}

absl::StatusOr<std::vector<float>> ReadFloats(const SafetensorsFile& file, const std::string& name,
                                              const std::vector<std::int64_t>& shape) {
  ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, file.Get(name));
  if (tensor->shape != shape) return Misshapen(file.path(), *tensor, shape);
  return file.ReadFloats(*tensor);
}

absl::StatusOr<std::vector<std::int32_t>> ReadTokens(const SafetensorsFile& file,
                                                     const std::string& name,
                                                     const std::vector<std::int64_t>& shape) {
  ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, file.Get(name));
  if (tensor->shape != shape) return Misshapen(file.path(), *tensor, shape);
  ASSIGN_OR_RETURN(const std::vector<std::int64_t> wide, file.ReadIntegers(*tensor));
  std::vector<std::int32_t> narrow;
  narrow.reserve(wide.size());
  for (const std::int64_t value : wide) narrow.push_back(static_cast<std::int32_t>(value));
  return narrow;
}

absl::Status ReadWeights(const SafetensorsFile& file, OracleFile& oracle) {
  std::set<std::string> known;
  for (const UnitSpec& unit : UnitsOf(oracle.model)) {
    for (const ParameterSpec& parameter : unit.parameters) {
      const std::string& name = parameter.name;
      known.insert(name);
      ASSIGN_OR_RETURN(oracle.initial[name], ReadFloats(file, "init." + name, parameter.shape));
      ASSIGN_OR_RETURN(oracle.first_gradient[name],
                       ReadFloats(file, "grad0." + name, parameter.shape));
      ASSIGN_OR_RETURN(oracle.final[name], ReadFloats(file, "final." + name, parameter.shape));
    }
  }
  for (const SafetensorsTensor& tensor : file.tensors()) {
    if (tensor.name.rfind("init.", 0) == 0 && !known.contains(tensor.name.substr(5))) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), ": ", tensor.name, " is no parameter of this model"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ModelFromPeerConfig(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("config.model is not JSON");
  if (json.contains("model_type")) return ModelFromConfigJson(text);
  return ReadModel(json);
}

absl::StatusOr<OracleFile> OracleFile::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(path));
  const auto config = file->metadata().find("config");
  if (config == file->metadata().end()) {
    return absl::InvalidArgumentError(path +
                                      ": metadata \"config\" is missing: not an oracle file");
  }
  const Json json = Json::parse(config->second, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError(path + ": \"config\" is not JSON");
  JsonObject in(json, "config");
  OracleFile oracle;
  oracle.path = path;
  oracle.batch = in.Integer("batch");
  oracle.sequence_length = in.Integer("seq");
  oracle.steps = in.Integer("steps");
  in.Ignore("seed");
  in.Ignore("torch");
  const Json* model = in.Member("model", false);
  const Json* optimizer = in.Member("optimizer", false);
  RETURN_IF_ERROR(Annotate(in.Finish(), path));
  if (oracle.batch < 1 || oracle.sequence_length < 1 || oracle.steps < 1) {
    return absl::InvalidArgumentError(path + ": config.batch, seq and steps must be positive");
  }
  ASSIGN_OR_RETURN(oracle.model, ReadModel(*model));
  ASSIGN_OR_RETURN(oracle.optimizer, ReadOptimizer(*optimizer));

  const std::vector<std::int64_t> batches{oracle.steps, oracle.batch, oracle.sequence_length};
  ASSIGN_OR_RETURN(oracle.tokens, ReadTokens(*file, "tokens", batches));
  ASSIGN_OR_RETURN(oracle.targets, ReadTokens(*file, "targets", batches));
  ASSIGN_OR_RETURN(oracle.loss_fp32, ReadFloats(*file, "loss_fp32", {oracle.steps}));
  ASSIGN_OR_RETURN(oracle.grad_norm_fp32, ReadFloats(*file, "grad_norm_fp32", {oracle.steps}));
  ASSIGN_OR_RETURN(oracle.loss_bf16, ReadFloats(*file, "loss_bf16", {oracle.steps}));
  RETURN_IF_ERROR(ReadWeights(*file, oracle));
  return oracle;
}

}  // namespace fsdp
