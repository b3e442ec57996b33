// Safetensors as transformers' save_pretrained writes them: one file, or several with an index.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "proto/support/strict_json.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/tensor_shapes.h"
#include "worker/checkpoint/weight_reader.h"

namespace fsdp {
namespace {

constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
// A base model's tensors lack the prefix that those of the model with a head have.
constexpr const char* kPrefixes[] = {"model.", "transformer."};
constexpr const char* kEmbeddings[] = {"model.embed_tokens.weight", "transformer.wte.weight",
                                       "embed.weight"};

// "h.3.attn.bias" for ("h.", ".attn.bias").
bool IsOfLayer(std::string_view name, std::string_view before, std::string_view after) {
  if (!name.starts_with(before) || !name.ends_with(after)) return false;
  name.remove_prefix(before.size());
  if (name.size() <= after.size()) return false;
  name.remove_suffix(after.size());
  return name.find_first_not_of("0123456789") == std::string_view::npos;
}

// Masks and frequencies that older versions of transformers saved beside the weights.
bool IsBuffer(std::string_view name) {
  for (const std::string_view prefix : kPrefixes) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  return IsOfLayer(name, "h.", ".attn.bias") || IsOfLayer(name, "h.", ".attn.masked_bias") ||
         IsOfLayer(name, "layers.", ".self_attn.rotary_emb.inv_freq");
}

struct Place {
  const SafetensorsFile* file = nullptr;
  const SafetensorsTensor* tensor = nullptr;
};

class HuggingFaceWeights final : public WeightReader {
 public:
  HuggingFaceWeights(std::string path, Device& device) : path_(std::move(path)), device_(device) {}

  absl::Status Open(BlobStore& store, std::span<const ShardTensor> wanted) {
    for (const ShardTensor& tensor : wanted) wanted_.insert(tensor.name);
    ASSIGN_OR_RETURN(const std::vector<std::string> paths, FilesOf(store));
    for (const std::string& file_path : paths) {
      ASSIGN_OR_RETURN(std::unique_ptr<BlobReader> reader, store.Open(file_path));
      ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open(std::move(reader), file_path));
      RETURN_IF_ERROR(AddTensors(*file));
      files_.push_back(std::move(file));
    }
    RETURN_IF_ERROR(CheckIndex());
    TensorShapes there;
    for (const auto& [name, place] : places_) there[name] = place.tensor->shape;
    TakeTiedHead(there);
    return CompareShapes(path_, there, wanted);
  }

  absl::Status Fill(const ShardTensor& tensor) override {
    const std::int64_t row = tensor.row_elements();
    const std::int64_t end = tensor.row_end * row;
    constexpr auto kChunk = static_cast<std::int64_t>(kChunkBytes / sizeof(float));
    auto* to = static_cast<float*>(tensor.master.data);
    for (std::int64_t at = tensor.row_begin * row; at < end; at += kChunk) {
      const std::int64_t count = std::min(kChunk, end - at);
      ASSIGN_OR_RETURN(const std::vector<float> values, Read(tensor, at, count));
      RETURN_IF_ERROR(
          device_.Copy(to, values.data(), values.size() * sizeof(float), device_.copy()));
      RETURN_IF_ERROR(device_.Synchronize(device_.copy()));
      to += count;
    }
    return absl::OkStatus();
  }

 private:
  // The files that hold the weights; others in the folder (an older format's copy) are left alone.
  absl::StatusOr<std::vector<std::string>> FilesOf(BlobStore& store) {
    const absl::StatusOr<std::vector<std::string>> names = store.List(path_);
    if (!names.ok()) return std::vector<std::string>{path_};
    const auto has = [&](const char* name) {
      return std::find(names->begin(), names->end(), name) != names->end();
    };
    std::set<std::string> chosen;
    if (has(kIndexName)) {
      RETURN_IF_ERROR(Annotate(ReadIndex(store), absl::StrCat(path_, "/", kIndexName)));
      for (const auto& [tensor, file] : index_) chosen.insert(file);
    } else if (has(kSingleName)) {
      chosen.insert(kSingleName);
    } else {
      for (const std::string& name : *names) {
        if (absl::EndsWith(name, ".safetensors")) chosen.insert(name);
      }
    }
    if (chosen.empty()) {
      return absl::NotFoundError(
          absl::StrCat(path_, " holds neither a checkpoint's manifest.json nor *.safetensors"));
    }
    std::vector<std::string> paths;
    for (const std::string& name : chosen) paths.push_back(absl::StrCat(path_, "/", name));
    return paths;
  }

  absl::Status ReadIndex(BlobStore& store) {
    ASSIGN_OR_RETURN(const auto reader, store.Open(absl::StrCat(path_, "/", kIndexName)));
    if (reader->size_bytes() > kMaxHeaderBytes) {
      return absl::DataLossError(absl::StrCat("longer than ", kMaxHeaderBytes, " bytes"));
    }
    std::string text(reader->size_bytes(), '\0');
    RETURN_IF_ERROR(reader->ReadAt(0, std::as_writable_bytes(std::span(text))));
    ASSIGN_OR_RETURN(const nlohmann::json json, ParseStrictJson(text, 3));
    const auto map = json.is_object() ? json.find("weight_map") : json.end();
    if (map == json.end() || !map->is_object()) return absl::DataLossError("has no weight_map");
    for (const auto& [name, file] : map->items()) {
      if (!file.is_string() || !absl::EndsWith(file.get<std::string>(), ".safetensors") ||
          file.get<std::string>().find('/') != std::string::npos) {
        return absl::DataLossError(absl::StrCat("weight_map.", name, " is ", file.dump(),
                                                ", which is no safetensors file of the folder"));
      }
      index_[name] = file.get<std::string>();
    }
    return absl::OkStatus();
  }

  // What the index says of every tensor is so, and it leaves none out.
  absl::Status CheckIndex() const {
    if (index_.empty()) return absl::OkStatus();
    std::map<std::string, std::string> found;
    for (const auto& file : files_) {
      for (const SafetensorsTensor& tensor : file->tensors()) found[tensor.name] = file->path();
    }
    for (const auto& [name, file] : index_) {
      const auto at = found.find(name);
      if (at == found.end() || at->second != absl::StrCat(path_, "/", file)) {
        return absl::InvalidArgumentError(absl::StrCat("tensor \"", name, "\": ", kIndexName,
                                                       " says it is in ", file,
                                                       ", which does not have it"));
      }
      found.erase(at);
    }
    if (found.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("tensor \"", found.begin()->first, "\" of ",
                                                   found.begin()->second, " is not in ",
                                                   kIndexName));
  }

  // The model's name of a file's tensor.
  [[nodiscard]] std::string NameOf(const std::string& name) const {
    if (wanted_.contains(name)) return name;
    for (const char* prefix : kPrefixes) {
      const std::string longer = absl::StrCat(prefix, name);
      if (wanted_.contains(longer)) return longer;
    }
    return name;
  }

  absl::Status AddTensors(const SafetensorsFile& file) {
    for (const SafetensorsTensor& tensor : file.tensors()) {
      const std::string name = NameOf(tensor.name);
      if (!wanted_.contains(name) && IsBuffer(name)) continue;
      const auto [at, is_new] = places_.try_emplace(name, Place{&file, &tensor});
      if (!is_new) {
        return absl::InvalidArgumentError(absl::StrCat(
            "tensor \"", name, "\" is there twice: as \"", at->second.tensor->name, "\" in ",
            at->second.file->path(), " and as \"", tensor.name, "\" in ", file.path()));
      }
    }
    return absl::OkStatus();
  }

  // A tied model's head, saved all the same, must be the embedding again: compared row by row.
  void TakeTiedHead(TensorShapes& there) {
    for (const char* head : {"lm_head.weight", "head.weight"}) {
      if (wanted_.contains(head) || !there.contains(head)) continue;
      for (const char* embedding : kEmbeddings) {
        if (!wanted_.contains(embedding) || !there.contains(embedding) ||
            there[head] != there[embedding]) {
          continue;
        }
        tied_head_ = places_[head];
        embedding_ = embedding;
        there.erase(head);
        break;
      }
    }
  }

  // Elements [at, at + count) of a whole tensor.
  absl::StatusOr<std::vector<float>> Read(const ShardTensor& tensor, std::int64_t at,
                                          std::int64_t count) const {
    const Place& place = places_.at(tensor.name);
    ASSIGN_OR_RETURN(std::vector<float> values, place.file->ReadFloats(*place.tensor, at, count));
    const auto bad = std::find_if(values.begin(), values.end(),
                                  [](float value) { return !std::isfinite(value); });
    const std::int64_t row = tensor.row_elements();
    if (bad != values.end()) {
      const std::int64_t index = at + (bad - values.begin());
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: tensor \"%s\" has %f in row %d, element %d: weights must be finite",
                          place.file->path(), tensor.name, *bad, index / row, index % row));
    }
    if (tensor.name != embedding_) return values;
    ASSIGN_OR_RETURN(const std::vector<float> head,
                     tied_head_.file->ReadFloats(*tied_head_.tensor, at, count));
    if (head != values) {
      const auto [mine, theirs] = std::mismatch(values.begin(), values.end(), head.begin());
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: \"%s\" differs from \"%s\" in row %d, but the model ties them: set "
                          "spec.model.tieEmbeddings (tie_word_embeddings) to false",
                          tied_head_.file->path(), tied_head_.tensor->name, tensor.name,
                          (at + (mine - values.begin())) / row));
    }
    return values;
  }

  const std::string path_;
  Device& device_;
  std::set<std::string> wanted_;
  std::map<std::string, std::string> index_;  // tensor -> file
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Place> places_;  // by the model's name
  Place tied_head_;
  std::string embedding_;  // the tensor that tied_head_ repeats; empty: there is none
};

}  // namespace

absl::StatusOr<std::unique_ptr<WeightReader>> OpenHuggingFaceWeights(
    BlobStore& store, const std::string& path, std::span<const ShardTensor> wanted,
    Device& device) {
  auto weights = std::make_unique<HuggingFaceWeights>(path, device);
  RETURN_IF_ERROR(weights->Open(store, wanted));
  return weights;
}

}  // namespace fsdp
