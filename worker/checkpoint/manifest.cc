#include "worker/checkpoint/manifest.h"

#include <cmath>
#include <set>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/support/crc32c.h"
#include "proto/support/status.h"
#include "proto/support/strict_json.h"

namespace fsdp {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "fsdp.checkpoint";
constexpr int kMaxNesting = 6;
// The file ends with this, eight hexadecimal digits and kChecksumEnd; the checksum is of all bytes
// before it.
constexpr char kChecksumBegin[] = ",\n \"checksum\": \"0x";
constexpr char kChecksumEnd[] = "\"\n}\n";

// Reads the keys of one object and remembers the first problem: the caller checks `Done` once.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) Complain("", "is not an object");
  }

  const json* Get(const char* key) {
    if (!status_.ok()) return nullptr;
    known_.insert(key);
    const auto it = object_.find(key);
    if (it != object_.end()) return &*it;
    Complain(key, "is missing");
    return nullptr;
  }
  void Text(const char* key, std::string* out) {
    const json* value = Get(key);
    if (value == nullptr) return;
    if (!value->is_string()) return Complain(key, "is not a string");
    *out = value->get<std::string>();
  }
  // In 0..max.
  template <typename T>
  void Number(const char* key, T* out, std::uint64_t max = INT64_MAX) {
    const json* value = Get(key);
    if (value == nullptr) return;
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() > max) {
      return Complain(key, absl::StrCat("is ", Shorten(*value), ", not an integer in 0..", max));
    }
    *out = static_cast<T>(value->get<std::uint64_t>());
  }
  // 64 and 32-bit hashes are hexadecimal strings: JSON readers round large numbers.
  template <typename T>
  void Hex(const char* key, T* out) {
    std::string text;
    Text(key, &text);
    if (!status_.ok()) return;
    std::uint64_t value = 0;
    const bool plain = text.size() == 2 + 2 * sizeof(T) && text.rfind("0x", 0) == 0 &&
                       text.find_first_not_of("0123456789abcdef", 2) == std::string::npos;
    if (!plain || !absl::SimpleHexAtoi(text, &value)) {
      return Complain(key, absl::StrCat("is \"", text.substr(0, 40), "\", not 0x and ",
                                        2 * sizeof(T), " hexadecimal digits"));
    }
    *out = static_cast<T>(value);
  }
  // A number, or null for none.
  void Loss(const char* key, std::optional<double>* out) {
    const json* value = Get(key);
    if (value == nullptr || value->is_null()) return;
    if (!value->is_number()) return Complain(key, "is neither a number nor null");
    *out = value->get<double>();
  }
  // A number.
  void Real(const char* key, double* out) {
    const json* value = Get(key);
    if (value == nullptr) return;
    if (!value->is_number()) return Complain(key, "is not a number");
    *out = value->get<double>();
  }
  // Null where the key is left out.
  const json* Optional(const char* key) {
    known_.insert(key);
    const auto it = object_.find(key);
    return it == object_.end() ? nullptr : &*it;
  }
  const json* List(const char* key) {
    const json* value = Get(key);
    if (value == nullptr) return nullptr;
    if (value->is_array()) return value;
    Complain(key, "is not a list");
    return nullptr;
  }
  void Complain(const char* key, const std::string& problem) {
    if (!status_.ok()) return;
    const std::string dot = where_.empty() || *key == '\0' ? "" : ".";
    status_ = absl::DataLossError(absl::StrCat(where_, dot, key, " ", problem));
  }
  // The first problem; else whether a key was left over.
  absl::Status Done() {
    if (!status_.ok()) return status_;
    for (const auto& [key, value] : object_.items()) {
      if (known_.count(key) == 0) {
        return absl::DataLossError(absl::StrCat(where_, ": unknown key \"", key, "\""));
      }
    }
    return absl::OkStatus();
  }
  [[nodiscard]] const absl::Status& status() const { return status_; }

 private:
  static std::string Shorten(const json& value) { return value.dump().substr(0, 40); }

  const json& object_;
  std::string where_;
  std::set<std::string> known_;
  absl::Status status_;
};

// NaN has no JSON form; a loss that is not finite counts as none.
nlohmann::ordered_json LossToJson(const std::optional<double>& loss) {
  if (!loss.has_value() || !std::isfinite(*loss)) return nullptr;
  return *loss;
}

nlohmann::ordered_json ToJson(const ManifestTensor& tensor) {
  nlohmann::ordered_json ranges = nlohmann::ordered_json::array();
  for (const ManifestRange& range : tensor.ranges) {
    ranges.push_back({{"file", range.file}, {"rows", {range.row_begin, range.row_end}}});
  }
  return {{"name", tensor.name}, {"shape", tensor.shape}, {"ranges", ranges}};
}

nlohmann::ordered_json ToJson(const RunningFigure& figure) {
  return {{"mean", figure.mean}, {"variance", figure.variance}};
}

nlohmann::ordered_json ToJson(const NumericState& state) {
  return {{"consecutive_skips", state.consecutive_skips},
          {"rollbacks", state.rollbacks},
          {"num_updates", state.num_updates},
          {"loss", ToJson(state.loss)},
          {"grad_norm", ToJson(state.grad_norm)}};
}

absl::Status ParseFigure(const json* value, const std::string& where, RunningFigure* figure) {
  if (value == nullptr) return absl::OkStatus();  // the caller's fields say that it is missing
  Fields fields(*value, where);
  fields.Real("mean", &figure->mean);
  fields.Real("variance", &figure->variance);
  if (fields.status().ok() && figure->variance < 0) fields.Complain("variance", "is negative");
  return fields.Done();
}

absl::StatusOr<NumericState> ParseNumerics(const json& value) {
  NumericState state;
  Fields fields(value, "numerics");
  fields.Number("consecutive_skips", &state.consecutive_skips);
  fields.Number("rollbacks", &state.rollbacks);
  fields.Number("num_updates", &state.num_updates);
  RETURN_IF_ERROR(ParseFigure(fields.Get("loss"), "numerics.loss", &state.loss));
  RETURN_IF_ERROR(ParseFigure(fields.Get("grad_norm"), "numerics.grad_norm", &state.grad_norm));
  RETURN_IF_ERROR(fields.Done());
  return state;
}

absl::Status ParseEvaluationLosses(const json& value,
                                   std::map<std::string, std::optional<double>>* losses) {
  Fields fields(value, "evaluation_losses");
  if (value.is_object()) {
    for (const auto& [set, loss] : value.items()) fields.Loss(set.c_str(), &(*losses)[set]);
  }
  return fields.Done();
}

absl::StatusOr<ManifestFile> ParseFile(const json& value, const std::string& where) {
  ManifestFile file;
  Fields fields(value, where);
  fields.Text("name", &file.name);
  fields.Number("size_bytes", &file.size_bytes);
  fields.Hex("crc32c", &file.crc32c);
  if (fields.status().ok() &&
      (file.name.empty() || file.name.front() == '.' || file.name.find('/') != std::string::npos)) {
    fields.Complain("name", absl::StrCat("is \"", file.name, "\", not a plain file name"));
  }
  RETURN_IF_ERROR(fields.Done());
  return file;
}

absl::StatusOr<ManifestRange> ParseRange(const json& value, const std::string& where,
                                         std::size_t num_files) {
  ManifestRange range;
  Fields fields(value, where);
  fields.Number("file", &range.file, num_files == 0 ? 0 : num_files - 1);
  if (const json* rows = fields.List("rows"); rows != nullptr) {
    const bool pair = rows->size() == 2 && (*rows)[0].is_number_unsigned() &&
                      (*rows)[1].is_number_unsigned() &&
                      (*rows)[1].get<std::uint64_t>() <= INT64_MAX;
    if (!pair) {
      fields.Complain("rows", "is not two integers");
    } else {
      range.row_begin = static_cast<std::int64_t>((*rows)[0].get<std::uint64_t>());
      range.row_end = static_cast<std::int64_t>((*rows)[1].get<std::uint64_t>());
    }
  }
  RETURN_IF_ERROR(fields.Done());
  return range;
}

absl::Status CheckTiling(const ManifestTensor& tensor, const std::string& where) {
  std::int64_t covered = 0;
  for (const ManifestRange& range : tensor.ranges) {
    if (range.row_begin != covered || range.row_end <= range.row_begin) {
      return absl::DataLossError(
          absl::StrFormat("%s (\"%s\"): rows [%d, %d) follow row %d: ranges must tile the rows",
                          where, tensor.name, range.row_begin, range.row_end, covered));
    }
    covered = range.row_end;
  }
  if (covered != tensor.shape[0]) {
    return absl::DataLossError(
        absl::StrFormat("%s (\"%s\"): the ranges end at row %d, its shape is [%s]", where,
                        tensor.name, covered, absl::StrJoin(tensor.shape, ",")));
  }
  return absl::OkStatus();
}

absl::StatusOr<ManifestTensor> ParseTensor(const json& value, const std::string& where,
                                           std::size_t num_files) {
  ManifestTensor tensor;
  Fields fields(value, where);
  fields.Text("name", &tensor.name);
  std::int64_t elements = 4 * 3;  // bytes of one element in all three parts
  if (const json* shape = fields.List("shape"); shape != nullptr) {
    for (const json& dim : *shape) {
      const bool good =
          dim.is_number_unsigned() && dim.get<std::uint64_t>() <= INT64_MAX &&
          !__builtin_mul_overflow(elements, static_cast<std::int64_t>(dim.get<std::uint64_t>()),
                                  &elements);
      if (!good) {
        fields.Complain("shape", absl::StrCat("has ", dim.dump().substr(0, 40)));
        break;
      }
      tensor.shape.push_back(dim.get<std::int64_t>());
    }
    if (fields.status().ok() && tensor.shape.empty()) fields.Complain("shape", "is empty");
  }
  if (const json* ranges = fields.List("ranges"); ranges != nullptr) {
    for (std::size_t i = 0; i < ranges->size(); ++i) {
      ASSIGN_OR_RETURN(
          ManifestRange range,
          ParseRange((*ranges)[i], absl::StrCat(where, ".ranges[", i, "]"), num_files));
      tensor.ranges.push_back(range);
    }
  }
  RETURN_IF_ERROR(fields.Done());
  RETURN_IF_ERROR(CheckTiling(tensor, where));
  return tensor;
}

// So that no flipped digit of a position or seed goes unnoticed.
absl::Status CheckChecksum(std::string_view text) {
  const std::string begin = kChecksumBegin;
  const std::string end = kChecksumEnd;
  const std::size_t tail_size = begin.size() + 8 + end.size();
  std::uint32_t stored = 0;
  const std::string_view tail = text.substr(text.size() < tail_size ? 0 : text.size() - tail_size);
  const bool well_formed = tail.size() == tail_size && tail.substr(0, begin.size()) == begin &&
                           tail.substr(begin.size() + 8) == end &&
                           absl::SimpleHexAtoi(ToAbsl(tail.substr(begin.size(), 8)), &stored);
  if (!well_formed) {
    return absl::DataLossError("it does not end with its checksum: it was cut or edited");
  }
  const std::uint32_t actual =
      Crc32c(std::as_bytes(std::span(text.substr(0, text.size() - tail_size))));
  if (actual == stored) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "it is damaged or was edited: its CRC-32C is 0x%08x, its checksum says 0x%08x", actual,
      stored));
}

absl::Status CheckFormat(Fields& fields) {
  std::string format;
  int version = 0;
  fields.Text("format", &format);
  fields.Number("version", &version, INT32_MAX);
  RETURN_IF_ERROR(fields.status());
  if (format != kFormat) {
    return absl::DataLossError(
        absl::StrCat("format is \"", format.substr(0, 40), "\", not \"", kFormat, "\""));
  }
  if (version > kManifestVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("version %d was written by a newer release; this one reads up to %d",
                        version, kManifestVersion));
  }
  if (version < 1) return absl::DataLossError(absl::StrCat("version is ", version));
  return absl::OkStatus();
}

absl::Status ParseLists(Fields& fields, Manifest* manifest) {
  const json* files = fields.List("files");
  const json* tensors = fields.List("tensors");
  RETURN_IF_ERROR(fields.status());
  std::set<std::string> names;
  for (std::size_t i = 0; i < files->size(); ++i) {
    ASSIGN_OR_RETURN(ManifestFile file, ParseFile((*files)[i], absl::StrCat("files[", i, "]")));
    if (!names.insert(file.name).second) {
      return absl::DataLossError(absl::StrCat("file \"", file.name, "\" appears twice"));
    }
    manifest->files.push_back(std::move(file));
  }
  names.clear();
  for (std::size_t i = 0; i < tensors->size(); ++i) {
    ASSIGN_OR_RETURN(
        ManifestTensor tensor,
        ParseTensor((*tensors)[i], absl::StrCat("tensors[", i, "]"), manifest->files.size()));
    if (!names.insert(tensor.name).second) {
      return absl::DataLossError(absl::StrCat("tensor \"", tensor.name, "\" appears twice"));
    }
    manifest->tensors.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

}  // namespace

std::uint64_t Manifest::size_bytes() const {
  std::uint64_t sum = 0;
  for (const ManifestFile& file : files) sum += file.size_bytes;
  return sum;
}

std::string SerializeManifest(const Manifest& manifest) {
  nlohmann::ordered_json out;
  out["format"] = kFormat;
  out["version"] = kManifestVersion;
  out["job"] = manifest.job;
  out["epoch"] = manifest.epoch;
  out["step"] = manifest.step;
  out["position"] = manifest.position;
  out["tokens"] = manifest.tokens;
  out["world_size"] = manifest.world_size;
  out["seed"] = absl::StrFormat("0x%016x", manifest.seed);
  out["model_hash"] = absl::StrFormat("0x%016x", manifest.model_hash);
  out["data_fingerprint"] = absl::StrFormat("0x%016x", manifest.data_fingerprint);
  out["created"] = manifest.created;
  out["train_loss"] = LossToJson(manifest.train_loss);
  out["validation_loss"] = LossToJson(manifest.validation_loss);
  // Left out where there is nothing to say.
  if (!manifest.evaluation_losses.empty()) {
    auto& losses = out["evaluation_losses"] = nlohmann::ordered_json::object();
    for (const auto& [set, loss] : manifest.evaluation_losses) losses[set] = LossToJson(loss);
  }
  if (manifest.numerics != NumericState()) out["numerics"] = ToJson(manifest.numerics);
  out["files"] = json::array();
  for (const ManifestFile& file : manifest.files) {
    out["files"].push_back({{"name", file.name},
                            {"size_bytes", file.size_bytes},
                            {"crc32c", absl::StrFormat("0x%08x", file.crc32c)}});
  }
  out["tensors"] = json::array();
  for (const ManifestTensor& tensor : manifest.tensors) out["tensors"].push_back(ToJson(tensor));
  std::string text = out.dump(1, ' ', false, json::error_handler_t::replace);
  text.resize(text.size() - 2);  // the closing "\n}"
  const std::uint32_t checksum = Crc32c(std::as_bytes(std::span(text)));
  return absl::StrCat(text, kChecksumBegin, absl::StrFormat("%08x", checksum), kChecksumEnd);
}

absl::StatusOr<Manifest> ParseManifest(std::string_view text) {
  ASSIGN_OR_RETURN(const json parsed, ParseStrictJson(text, kMaxNesting));
  Fields fields(parsed, "");
  RETURN_IF_ERROR(CheckFormat(fields));
  RETURN_IF_ERROR(CheckChecksum(text));
  fields.Get("checksum");
  Manifest manifest;
  fields.Text("job", &manifest.job);
  fields.Number("epoch", &manifest.epoch);
  fields.Number("step", &manifest.step);
  fields.Number("position", &manifest.position);
  fields.Number("tokens", &manifest.tokens);
  fields.Number("world_size", &manifest.world_size, INT32_MAX);
  fields.Hex("seed", &manifest.seed);
  fields.Hex("model_hash", &manifest.model_hash);
  fields.Hex("data_fingerprint", &manifest.data_fingerprint);
  fields.Text("created", &manifest.created);
  fields.Loss("train_loss", &manifest.train_loss);
  fields.Loss("validation_loss", &manifest.validation_loss);
  if (const json* losses = fields.Optional("evaluation_losses"); losses != nullptr) {
    RETURN_IF_ERROR(ParseEvaluationLosses(*losses, &manifest.evaluation_losses));
  }
  if (const json* numerics = fields.Optional("numerics"); numerics != nullptr) {
    ASSIGN_OR_RETURN(manifest.numerics, ParseNumerics(*numerics));
  }
  RETURN_IF_ERROR(ParseLists(fields, &manifest));
  RETURN_IF_ERROR(fields.Done());
  if (manifest.files.size() != static_cast<std::size_t>(manifest.world_size)) {
    return absl::DataLossError(absl::StrFormat("world_size is %d, but there are %d files",
                                               manifest.world_size, manifest.files.size()));
  }
  return manifest;
}

std::string StepDirectoryName(std::int64_t step, std::int64_t epoch) {
  return absl::StrFormat("step-%08d.e%05d", step, epoch);
}

std::optional<StepDirectory> ParseStepDirectoryName(std::string_view name) {
  absl::string_view rest = ToAbsl(name);
  if (!absl::ConsumePrefix(&rest, "step-")) return std::nullopt;
  const std::size_t dot = rest.find(".e");
  StepDirectory result;
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(rest.substr(0, dot), &result.step) ||
      !absl::SimpleAtoi(rest.substr(dot + 2), &result.epoch) || result.step < 0 ||
      result.epoch < 0 || StepDirectoryName(result.step, result.epoch) != name) {
    return std::nullopt;
  }
  return result;
}

}  // namespace fsdp
