// Paths as files, folders and globs, of every source.

#include "worker/data/data_files.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_folder.h"
#include "worker/data/data_set.h"

namespace fsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DataFilesTest : public DataFolderTest {
 protected:
  DataFilesTest() {
    std::filesystem::create_directory(Path("folder"));
    std::filesystem::create_directory(Path("folder/inner"));
    // As fsdp-tokenize leaves a folder; 4 and 6 bytes are 2 and 3 tokens.
    Write("folder/tokens_000000.bin", "aabb");
    Write("folder/tokens_000001.bin", "ccddee");
    Write("folder/manifest.json", "{\"tokens\": 5}\n\n");
    Write("folder/.hidden", "x");
    Write("folder/inner/tokens_000002.bin", "ff");
  }
  // Names in the folder.
  [[nodiscard]] std::vector<std::string> Find(const std::string& path, FilesOf kind) const {
    const auto files = FindDataFiles(Path(path), kind);
    EXPECT_TRUE(files.ok()) << files.status();
    std::vector<std::string> names;
    if (!files.ok()) return names;
    for (const DataFile& file : *files) {
      names.push_back(std::filesystem::path(file.path).filename().string());
    }
    return names;
  }
  [[nodiscard]] DataOptions Options(SourceKind source) const {
    DataOptions options;
    options.source = source;
    options.path = Path("folder");
    options.sequence_length = 2;
    options.vocab_size = 65536;
    return options;
  }
};

TEST_F(DataFilesTest, AFolderIsItsFilesByNameWithoutWhatIsNoData) {
  EXPECT_THAT(Find("folder", FilesOf::kTokens),
              ElementsAre("tokens_000000.bin", "tokens_000001.bin"));
  EXPECT_THAT(Find("folder/", FilesOf::kTokens),
              ElementsAre("tokens_000000.bin", "tokens_000001.bin"));
  // Of text it is a file like others.
  EXPECT_THAT(Find("folder", FilesOf::kText),
              ElementsAre("manifest.json", "tokens_000000.bin", "tokens_000001.bin"));
  EXPECT_THAT(Find("folder/*1.bin", FilesOf::kTokens), ElementsAre("tokens_000001.bin"));
  // Who names it means it.
  EXPECT_THAT(Find("folder/manifest.json", FilesOf::kTokens), ElementsAre("manifest.json"));
}

TEST_F(DataFilesTest, EveryPathOfAJobMayBeAFolderOrAGlob) {
  for (const std::string& path : {Path("folder"), Path("folder/*.bin")}) {
    DataOptions options = Options(SourceKind::kTokens);
    options.path = path;
    options.validation_path = path;
    const auto data = OpenData(options);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->train->num_sequences(), 2);
    EXPECT_EQ(data->validation->num_sequences(), 2);
    options.path = "";
    options.mixture = {{"", path, 1}, {"", Path("folder/*1.bin"), 1}};
    EXPECT_EQ(OpenData(options).value().train->num_sequences(), 3);
    options.source = SourceKind::kText;
    EXPECT_TRUE(OpenData(options).ok());
  }
}

TEST_F(DataFilesTest, WhatIsNoFileIsNamedWithItsField) {
  std::filesystem::create_symlink("nowhere", Path("folder/tokens_000009.bin"));
  for (const SourceKind source : {SourceKind::kTokens, SourceKind::kText}) {
    DataOptions options = Options(source);
    EXPECT_THAT(std::string(OpenData(options).status().message()),
                HasSubstr("data.path: open(" + Path("folder/tokens_000009.bin")));
    options.path = Path("folder/tokens_000000.bin");
    options.sequence_length = 1;
    options.validation_path = Path("folder/*.none");
    EXPECT_THAT(std::string(OpenData(options).status().message()),
                HasSubstr("data.validationPath: no file matches"));
    options.validation_path = "";
    options.mixture = {{"", options.path, 1}, {"", Path("folder/in*"), 1}};
    options.path = "";
    EXPECT_THAT(std::string(OpenData(options).status().message()),
                HasSubstr("data.mixture[1].path: " + Path("folder/inner") + " is not a regular"));
  }
}

}  // namespace
}  // namespace fsdp
