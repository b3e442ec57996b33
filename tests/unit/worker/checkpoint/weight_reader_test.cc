// Weights as Hugging Face lays them out, in and out: indexes, names, dtypes, and every way in which
// they may be wrong.

#include "worker/checkpoint/weight_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/fakes/crashing_blob_store.h"
#include "tests/fakes/watched_blob_store.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/weight_export.h"

namespace fsdp {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Values = std::vector<float>;
using Files = std::map<std::string, std::map<std::string, Values>>;

const std::map<std::string, std::vector<std::int64_t>> kShapes = {
    {"model.embed_tokens.weight", {5, 3}},
    {"model.layers.0.mlp.up_proj.weight", {4, 2, 2}},
    {"model.norm.weight", {3}}};

Values ValuesOf(const std::string& name) {
  const auto& shape = kShapes.at(name);
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) size *= extent;
  Values values;
  for (std::int64_t i = 0; i < size; ++i) {
    values.push_back(static_cast<float>(name.size()) + static_cast<float>(i) / 4);
  }
  return values;
}

// All of the model in one file.
Files OneFile() {
  Files files;
  for (const auto& [name, shape] : kShapes) files["model.safetensors"][name] = ValuesOf(name);
  return files;
}

class WeightReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = CreateCpuDevice({.num_threads = 1});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = std::move(*device);
    ASSERT_TRUE(store_.CreateDirectory("/w").ok());
  }

  void WriteText(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteTextFile(store_, "/w/" + name, text).ok());
  }
  void Write(const Files& files) {
    for (const auto& [file, tensors] : files) {
      auto blob = store_.Create("/w/" + file).value();
      std::vector<SafetensorsWriter::Declaration> declarations;
      for (const auto& [name, values] : tensors) {
        const auto known = shapes_.find(name);
        declarations.push_back(
            {name, "F32",
             known != shapes_.end()
                 ? known->second
                 : std::vector<std::int64_t>{static_cast<std::int64_t>(values.size())}});
      }
      auto writer = SafetensorsWriter::Create(*blob, declarations, {}).value();
      for (const auto& [name, values] : tensors) {
        ASSERT_TRUE(writer->Append(std::as_bytes(std::span(values))).ok());
      }
      ASSERT_TRUE(writer->Finish().ok() && blob->Sync().ok() && blob->Publish().ok());
    }
  }
  void WriteIndex(const std::map<std::string, std::string>& map) {
    const nlohmann::json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", map}};
    WriteText("model.safetensors.index.json", index.dump());
  }

  // The rows of one of `world` ranks, read back; the first error.
  absl::StatusOr<std::map<std::string, Values>> Load(int rank = 0, int world = 1,
                                                     BlobStore* store = nullptr) {
    std::map<std::string, Values> memory;
    std::vector<ShardTensor> tensors;
    for (const auto& [name, shape] : kShapes) {
      ShardTensor tensor;
      tensor.name = name;
      tensor.shape = shape;
      tensor.row_begin = shape[0] * rank / world;
      tensor.row_end = shape[0] * (rank + 1) / world;
      Values& values = memory[name];
      values.resize(
          static_cast<std::size_t>((tensor.row_end - tensor.row_begin) * tensor.row_elements()));
      tensor.master = {values.data(), DType::kF32, static_cast<std::int64_t>(values.size())};
      tensors.push_back(tensor);
    }
    const absl::Status status =
        LoadWeights(store == nullptr ? store_ : *store, "/w", tensors, *device_);
    if (!status.ok()) return status;
    return memory;
  }
  std::string Refusal() { return std::string(Load().status().message()); }
  void ExpectLoads() {
    for (int world = 1; world <= 3; ++world) {
      std::map<std::string, Values> all;
      for (int rank = 0; rank < world; ++rank) {
        const auto part = Load(rank, world);
        ASSERT_TRUE(part.ok()) << part.status();
        for (const auto& [name, values] : *part) {
          all[name].insert(all[name].end(), values.begin(), values.end());
        }
      }
      for (const auto& [name, shape] : kShapes) EXPECT_EQ(all[name], ValuesOf(name)) << name;
    }
  }

  absl::Status Export(const std::string& dtype, std::int64_t max_shard_bytes,
                      const std::string& directory) {
    std::vector<ShardTensor> tensors;
    for (const auto& [name, shape] : kShapes) {
      ShardTensor tensor;
      tensor.name = name;
      tensor.shape = shape;
      tensors.push_back(tensor);
    }
    EXPECT_TRUE(store_.CreateDirectory(directory).ok());
    auto reader = WeightReader::Open(store_, "/w", tensors, *device_);
    if (!reader.ok()) return reader.status();
    return ExportWeights(store_, **reader, tensors, directory, {dtype, max_shard_bytes});
  }
  absl::StatusOr<Values> Exported(const std::string& path, const std::string& name) {
    auto file = SafetensorsFile::Open(store_.Open(path).value(), path);
    if (!file.ok()) return file.status();
    EXPECT_EQ((*file)->metadata().at("format"), "pt");
    return (*file)->ReadFloats(**(*file)->Get(name));
  }

  CrashingBlobStore store_;
  // Of the files' tensors; others are vectors.
  std::map<std::string, std::vector<std::int64_t>> shapes_ = kShapes;
  std::unique_ptr<Device> device_;
};

TEST_F(WeightReaderTest, EveryRankReadsItsRows) {
  Write(OneFile());
  ExpectLoads();
}

// Streamed: of the tensors' bytes each rank reads those of its rows alone, and no byte is read by
// two.
TEST_F(WeightReaderTest, NoRankReadsTheRowsOfAnother) {
  Write(OneFile());
  const auto& file = *store_.Bytes("/w/model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  for (const int world : {1, 2, 3, 4, 8}) {
    std::vector<int> times(file.size(), 0);
    for (int rank = 0; rank < world; ++rank) {
      WatchedBlobStore watched(
          store_, [&](const std::string& path, std::uint64_t offset, std::span<std::byte> bytes) {
            ASSERT_EQ(path, "/w/model.safetensors");
            for (std::size_t i = 0; i < bytes.size(); ++i) ++times[offset + i];
          });
      ASSERT_TRUE(Load(rank, world, &watched).ok());
    }
    const std::vector<int> of_tensors(times.begin() + static_cast<std::ptrdiff_t>(8 + header),
                                      times.end());
    EXPECT_THAT(of_tensors, testing::Each(1)) << world;
  }
}

TEST_F(WeightReaderTest, AnIndexSaysWhichFilesCount) {
  Files files;
  std::map<std::string, std::string> index;
  for (const auto& [name, shape] : kShapes) {
    const std::string file = absl::StrCat("model-", index.size() + 1, ".safetensors");
    files[file][name] = ValuesOf(name);
    index[name] = file;
  }
  // The same weights once more in an older layout: passed over.
  files["consolidated.safetensors"]["tok_embeddings.weight"] = {1};
  Write(files);
  WriteIndex(index);
  ExpectLoads();

  index["model.norm.weight"] = "model-1.safetensors";
  WriteIndex(index);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("\"model.norm.weight\""),
                               HasSubstr("model-1.safetensors, which does not have it")));
  index.erase("model.norm.weight");
  index["model.gone"] = "model-3.safetensors";
  WriteIndex(index);
  EXPECT_THAT(Refusal(), HasSubstr("\"model.gone\""));
  WriteIndex({{"model.norm.weight", "../model-1.safetensors"}});
  EXPECT_THAT(Refusal(), HasSubstr("no safetensors file of the folder"));
  WriteText("model.safetensors.index.json", "{\"metadata\": {}}");
  EXPECT_THAT(Refusal(), HasSubstr("has no weight_map"));
  WriteIndex({{"model.norm.weight", "model-9.safetensors"}});
  EXPECT_EQ(Load().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(WeightReaderTest, ABaseModelsNamesLackThePrefix) {
  Files files;
  for (const auto& [name, shape] : kShapes) {
    const std::string shorter = name.substr(std::string("model.").size());
    shapes_[shorter] = shape;
    files["model.safetensors"][shorter] = ValuesOf(name);
  }
  Write(files);
  ExpectLoads();
  files["model.safetensors"]["model.norm.weight"] = ValuesOf("model.norm.weight");
  Write(files);
  EXPECT_THAT(Refusal(), HasSubstr("\"model.norm.weight\" is there twice"));
}

TEST_F(WeightReaderTest, BuffersAreKnownByNameOnly) {
  Files files = OneFile();
  auto& tensors = files["model.safetensors"];
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {1};
  tensors["transformer.h.11.attn.bias"] = {1};
  tensors["h.0.attn.masked_bias"] = {std::nanf("")};
  Write(files);
  ExpectLoads();
  tensors["transformer.h.x.attn.bias"] = {1};
  Write(files);
  EXPECT_THAT(Refusal(), HasSubstr("extra transformer.h.x.attn.bias"));
}

TEST_F(WeightReaderTest, ATiedHeadMustBeTheEmbedding) {
  Files files = OneFile();
  Values& head = files["model.safetensors"]["lm_head.weight"];
  head = ValuesOf("model.embed_tokens.weight");
  shapes_["lm_head.weight"] = {5, 3};
  Write(files);
  ExpectLoads();
  head[7] += 1;
  Write(files);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("\"lm_head.weight\" differs from "), HasSubstr("in row 2"),
                               HasSubstr("tieEmbeddings")));
}

TEST_F(WeightReaderTest, WrongTensorsAreNamed) {
  Files files = OneFile();
  auto& tensors = files["model.safetensors"];
  tensors.erase("model.norm.weight");
  tensors["model.other"] = {1};
  Write(files);
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("missing model.norm.weight"), HasSubstr("extra model.other")));
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    files = OneFile();
    files["model.safetensors"]["model.embed_tokens.weight"][10] = bad;
    Write(files);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("\"model.embed_tokens.weight\" has"),
                                 HasSubstr("in row 3, element 1: weights must be finite")));
  }
}

TEST_F(WeightReaderTest, ExportsComeBack) {
  Write(OneFile());
  ASSERT_TRUE(Export("F32", 1 << 20, "/out").ok());
  EXPECT_THAT(store_.List("/out").value(), ElementsAre("model.safetensors"));
  for (const auto& [name, shape] : kShapes) {
    EXPECT_EQ(Exported("/out/model.safetensors", name).value(), ValuesOf(name));
  }
  // 60, 64 and 12 bytes: the last two fit one file.
  ASSERT_TRUE(Export("F32", 80, "/shards").ok());
  EXPECT_THAT(store_.List("/shards").value(),
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json"));
  EXPECT_EQ(Exported("/shards/model-00002-of-00002.safetensors", "model.norm.weight").value(),
            ValuesOf("model.norm.weight"));
}

// Strict outwards too: what is not finite or not there does not leave.
TEST_F(WeightReaderTest, BadTensorsAreNotExported) {
  Files files = OneFile();
  files["model.safetensors"]["model.norm.weight"][2] = std::nanf("");
  Write(files);
  EXPECT_THAT(std::string(Export("F32", 1 << 20, "/nan").message()),
              AllOf(HasSubstr("\"model.norm.weight\" has"), HasSubstr("in row 2")));
  files["model.safetensors"].erase("model.norm.weight");
  files["model.safetensors"]["model.other"] = {1};
  Write(files);
  EXPECT_THAT(std::string(Export("F32", 1 << 20, "/missing").message()),
              AllOf(HasSubstr("missing model.norm.weight"), HasSubstr("extra model.other")));
}

TEST_F(WeightReaderTest, NarrowExportsRoundToNearestEven) {
  Files files = OneFile();
  Values& values = files["model.safetensors"]["model.layers.0.mlp.up_proj.weight"];
  // Halfway cases, subnormal halves, the largest half and what rounds down to it.
  values = {1 + 0x1p-8F,  1 + 3 * 0x1p-8F, 1 + 0x1p-11F, 1 + 3 * 0x1p-11F,
            0x1p-24F,     0x1p-25F,        3 * 0x1p-25F, -0x1p-14F,
            65504,        65519,           -0.0F,        0x1p-14F - 0x1p-26F,
            0.333333333F, -1234.5678F,     0x1p-30F,     2};
  Write(files);
  ASSERT_TRUE(Export("BF16", 1 << 20, "/bf16").ok());
  ASSERT_TRUE(Export("F16", 1 << 20, "/f16").ok());
  const Values bf16 =
      Exported("/bf16/model.safetensors", "model.layers.0.mlp.up_proj.weight").value();
  EXPECT_EQ(bf16[0], 1);
  EXPECT_EQ(bf16[1], 1 + 4 * 0x1p-8F);
  EXPECT_EQ(bf16[9], 65536);
  const Values f16 =
      Exported("/f16/model.safetensors", "model.layers.0.mlp.up_proj.weight").value();
  EXPECT_THAT(f16,
              ElementsAre(1 + 0x1p-8F, 1 + 3 * 0x1p-8F, 1, 1 + 4 * 0x1p-11F, 0x1p-24F, 0, 0x1p-23F,
                          -0x1p-14F, 65504, 65504, -0.0F, 0x1p-14F, 0x1.554p-2F, -1235, 0, 2));
  EXPECT_TRUE(std::signbit(f16[10]));
  values[3] = 65520;
  Write(files);
  EXPECT_THAT(std::string(Export("F16", 1 << 20, "/large").message()),
              AllOf(HasSubstr("\"model.layers.0.mlp.up_proj.weight\" has 65520 in row 0"),
                    HasSubstr("F16 does not hold")));
  EXPECT_EQ(Export("F8", 1, "/none").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fsdp
