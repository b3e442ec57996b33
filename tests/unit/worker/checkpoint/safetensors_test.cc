#include "worker/checkpoint/safetensors.h"

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/crc32c.h"
#include "tests/fakes/crashing_blob_store.h"

namespace fsdp {
namespace {

using testing::HasSubstr;

std::string File(const std::string& header, std::size_t data_bytes) {
  std::uint64_t size = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &size, 8);
  return file + header + std::string(data_bytes, '\x01');
}

class BytesReader final : public BlobReader {
 public:
  explicit BytesReader(std::string bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] std::uint64_t size_bytes() const override { return bytes_.size(); }
  absl::Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) override {
    if (offset + bytes.size() > bytes_.size()) return absl::DataLossError("past the end");
    if (!bytes.empty()) std::memcpy(bytes.data(), bytes_.data() + offset, bytes.size());
    return absl::OkStatus();
  }

 private:
  std::string bytes_;
};

absl::StatusOr<std::unique_ptr<SafetensorsFile>> OpenBytes(const std::string& bytes) {
  return SafetensorsFile::Open(std::make_unique<BytesReader>(bytes), "x.safetensors");
}

void ExpectRefused(const std::string& bytes, const std::string& text) {
  const auto file = OpenBytes(bytes);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kDataLoss) << file.status();
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(text));
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("x.safetensors"));
}

// Writes two tensors and returns the file's bytes.
std::string Sample() {
  CrashingBlobStore store;
  auto blob = store.Create("f").value();
  auto writer =
      SafetensorsWriter::Create(*blob, {{"a", "F32", {2, 3}}, {"b", "I64", {1}}}, {{"k", "v"}})
          .value();
  const float a[6] = {0, 1, 2, 3, 4, 5};
  const std::int64_t b = -7;
  EXPECT_TRUE(writer->Append(std::as_bytes(std::span(a)).first(10)).ok());
  EXPECT_TRUE(writer->Append(std::as_bytes(std::span(a)).subspan(10)).ok());
  EXPECT_EQ(writer->Finish().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(writer->Append(std::as_bytes(std::span(&b, 1))).ok());
  EXPECT_TRUE(writer->Finish().ok());
  EXPECT_EQ(writer->Append(std::as_bytes(std::span(&b, 1))).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(blob->Publish().ok());
  const std::vector<std::byte>& bytes = *store.Bytes("f");
  EXPECT_EQ(writer->crc32c(), Crc32c(bytes));
  EXPECT_EQ(writer->size_bytes(), bytes.size());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const auto file = OpenBytes(Sample()).value();
  EXPECT_EQ(file->metadata().at("k"), "v");
  const SafetensorsTensor* a = file->Get("a").value();
  EXPECT_THAT(a->shape, testing::ElementsAre(2, 3));
  EXPECT_THAT(file->ReadFloats(*a).value(), testing::ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(file->ReadFloats(*a, 4, 2).value(), testing::ElementsAre(4, 5));
  EXPECT_FALSE(file->ReadFloats(*a, 4, 3).ok());
  EXPECT_FALSE(file->ReadFloats(*a, -1, 1).ok());
  EXPECT_THAT(file->ReadIntegers(**file->Get("b")).value(), testing::ElementsAre(-7));
  EXPECT_EQ(file->Find("c"), nullptr);
  EXPECT_EQ(file->Get("c").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(file->ReadIntegers(*a).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Safetensors, HalfPrecisionsAreConverted) {
  const std::uint16_t words[] = {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x3F80, 0xC000};
  std::string bytes = File(R"({"h":{"dtype":"F16","shape":[4],"data_offsets":[0,8]},)"
                           R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]}})",
                           12);
  std::memcpy(bytes.data() + bytes.size() - 12, words, 12);
  const auto file = OpenBytes(bytes).value();
  EXPECT_THAT(file->ReadFloats(**file->Get("h")).value(),
              testing::ElementsAre(1.0F, -2.0F, 65504.0F, 0x1p-24F));
  EXPECT_THAT(file->ReadFloats(**file->Get("b")).value(), testing::ElementsAre(1.0F, -2.0F));
}

TEST(Safetensors, EmptyTensorsAndNoTensorsAreLegal) {
  EXPECT_TRUE(OpenBytes(File("{}", 0)).ok());
  EXPECT_TRUE(OpenBytes(File("{}      ", 0)).ok());
  const auto file =
      OpenBytes(File(R"({"e":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]}})", 0));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->ReadFloats(*(*file)->Find("e")).value().empty());
}

TEST(Safetensors, DamagedHeadersAreRefused) {
  ExpectRefused("", "too few");
  ExpectRefused("1234567", "too few");
  ExpectRefused(std::string(8, '\xff'), "exceeds");
  ExpectRefused(std::string("\x03\0\0\0\0\0\0\0{}", 10), "exceeds the file's remaining 2");
  ExpectRefused(File("[]", 0), "does not start");
  ExpectRefused(File("{", 0), "well-formed");
  ExpectRefused(File("{\"a\":\xff\xfe}", 0), "well-formed");
  ExpectRefused(File("{} {}", 0), "well-formed");
  ExpectRefused(File(R"({"a":{},"a":{}})", 0), "twice");
  ExpectRefused(File(R"({"a":[[[[[[1]]]]]]})", 0), "nested");
  ExpectRefused(File(R"({"__metadata__":{"a":1}})", 0), "not a string");
  ExpectRefused(File(R"({"__metadata__":[]})", 0), "not an object");
}

struct BadTensor {
  const char* entry;
  std::size_t data_bytes;
  const char* text;
};

TEST(Safetensors, BadTensorsAreRefusedAndNamed) {
  const BadTensor cases[] = {
      {R"("x")", 4, "not an object"},
      {R"({"shape":[1],"data_offsets":[0,4]})", 4, "no dtype"},
      {R"({"dtype":"F32","data_offsets":[0,4]})", 4, "no shape"},
      {R"({"dtype":"F32","shape":[1]})", 4, "data_offsets"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})", 4, "unknown key"},
      {R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})", 4, "\"F33\" is unknown"},
      {R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", 4, "shape has -1"},
      {R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})", 4, "shape has 1.0"},
      {R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]})", 4, "shape has"},
      {R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})", 4, "too large"},
      {R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]})", 4, "too large"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0,5]})", 4, "do not lie"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", 4, "do not lie"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})", 4, "data_offsets"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})", 4, "data_offsets"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", 4, "takes 8 bytes"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", 8, "leave a hole"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", 8, "the file holds 8"},
  };
  for (const BadTensor& bad : cases) {
    ExpectRefused(File(std::string(R"({"t":)") + bad.entry + "}", bad.data_bytes), bad.text);
  }
  ExpectRefused(File(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                     R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                     6),
                "overlap");
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = Sample();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(OpenBytes(whole.substr(0, size)).status().code(), absl::StatusCode::kDataLoss)
        << size;
  }
  EXPECT_EQ(OpenBytes(whole + "x").status().code(), absl::StatusCode::kDataLoss);
}

// No flip may crash; one that is accepted must leave every tensor inside the file.
TEST(Safetensors, EveryFlippedHeaderByteIsAnErrorOrHarmless) {
  const std::string whole = Sample();
  for (std::size_t at = 0; at < whole.size() - 32; ++at) {
    for (const unsigned char flip : {0x01, 0x02, 0x10, 0x20, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      const auto file = OpenBytes(bytes);
      if (!file.ok()) continue;
      for (const SafetensorsTensor& tensor : (*file)->tensors()) {
        std::vector<std::byte> data(tensor.size_bytes());
        EXPECT_TRUE((*file)->Read(tensor, 0, data).ok());
      }
    }
  }
}

TEST(Safetensors, TheWriterRefusesWhatItCouldNotReadBack) {
  CrashingBlobStore store;
  auto blob = store.Create("f").value();
  const auto code = [&](std::vector<SafetensorsWriter::Declaration> tensors) {
    return SafetensorsWriter::Create(*blob, tensors, {}).status().code();
  };
  EXPECT_EQ(code({{"a", "F32", {1}}, {"a", "F32", {1}}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"a", "FP32", {1}}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"a", "F32", {-1}}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"__metadata__", "F32", {1}}}), absl::StatusCode::kInvalidArgument);
}

TEST(Safetensors, ReadsThePeersOracle) {
  const auto file = SafetensorsFile::Open(FSDP_SOURCE_DIR "/tests/oracle/minillm-tiny.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE((*file)->tensors().empty());
  EXPECT_FALSE((*file)->metadata().empty());
}

}  // namespace
}  // namespace fsdp
