#include "proto/support/spec_paths.h"

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_folder.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Every string below a message, by JSON names.
void CollectTexts(const google::protobuf::Descriptor& type, const std::string& prefix,
                  std::set<std::string>* texts) {
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *type.field(i);
    std::string path = absl::StrCat(prefix, prefix.empty() ? "" : ".", field.json_name());
    if (field.is_map()) {
      if (field.message_type()->map_value()->type() ==
          google::protobuf::FieldDescriptor::TYPE_STRING) {
        texts->insert(path + "{}");
      }
      continue;
    }
    if (field.is_repeated()) path += "[]";
    if (field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      CollectTexts(*field.message_type(), path, texts);
    } else if (field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
      texts->insert(path);
    }
  }
}

TEST(SpecPathsTest, EveryStringOfTheSpecIsAPathOrNot) {
  std::set<std::string> texts;
  CollectTexts(*v1::TrainingJob::descriptor(), "", &texts);
  std::set<std::string> known;
  for (const std::string_view field : PathFields()) {
    EXPECT_TRUE(known.insert(std::string(field)).second) << field;
  }
  for (const std::string_view field : TextFieldsWithoutPath()) {
    EXPECT_TRUE(known.insert(std::string(field)).second) << field;
  }
  for (const std::string& field : texts) {
    EXPECT_TRUE(known.contains(field))
        << field << ": add it to one of the tables in proto/support/spec_paths.cc";
  }
  for (const std::string& field : known) EXPECT_TRUE(texts.contains(field)) << field;
}

// Sets every string of the message to "/x/" and its field's path.
void FillTexts(google::protobuf::Message* message, const std::string& prefix) {
  const auto* reflection = message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const auto* field = message->GetDescriptor()->field(i);
    std::string path = absl::StrCat(prefix, prefix.empty() ? "" : ".", field->json_name());
    if (field->is_map()) continue;
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      FillTexts(field->is_repeated() ? reflection->AddMessage(message, field)
                                     : reflection->MutableMessage(message, field),
                field->is_repeated() ? path + "[]" : path);
    } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
      if (field->is_repeated()) {
        reflection->AddString(message, field, "/x/" + path + "[]");
      } else {
        reflection->SetString(message, field, "/x/" + path);
      }
    }
  }
}

// The table says it, and PathsOf does it.
TEST(SpecPathsTest, PathsOfFindsEveryFieldOfTheTable) {
  v1::TrainingJob job;
  FillTexts(&job, "");
  (*job.mutable_spec()->mutable_env())["NCCL_TOPO_FILE"] = "/x/spec.env{}";
  (*job.mutable_spec()->mutable_env())["NCCL_DEBUG"] = "INFO";
  std::set<std::string> found;
  for (const SpecPath& path : PathsOf(job)) found.insert(path.value.substr(3));
  std::set<std::string> wanted;
  for (const std::string_view field : PathFields()) wanted.insert(std::string(field));
  EXPECT_EQ(found, wanted);
}

TEST(SpecPathsTest, FieldsHaveTheirPlaceAndBytesIsNoFile) {
  v1::TrainingJob job;
  job.mutable_spec()->mutable_data()->set_tokenizer("bytes");
  job.mutable_spec()->mutable_data()->add_mixture();
  job.mutable_spec()->mutable_data()->add_mixture()->set_path("/b");
  const std::vector<SpecPath> paths = PathsOf(job);
  ASSERT_EQ(paths.size(), 1u);
  EXPECT_EQ(paths[0].field, "spec.data.mixture[1].path");
}

absl::Status CheckText(const std::vector<std::string>& roots, const std::string& value,
                       const std::string& field = "spec.data.path") {
  const auto made = PathRoots::Create(roots);
  EXPECT_TRUE(made.ok()) << made.status();
  return made->CheckText({field, value});
}

TEST(PathRootsTest, WithoutRootsAnythingGoes) {
  EXPECT_TRUE(CheckText({}, "../../etc/passwd").ok());
}

TEST(PathRootsTest, OnlyWhatLiesInARoot) {
  for (const char* inside : {"/data", "/data/", "/data/a", "/data//a/./b", "/more/x*.bin"}) {
    EXPECT_TRUE(CheckText({"/data/", "/more"}, inside).ok()) << inside;
  }
  for (const char* outside : {"/", "/dat", "/database", "/data/../etc", "/data/a/../../etc/passwd",
                              "data/a", "./data", "", "~/data", "/etc", "//etc"}) {
    const absl::Status status = CheckText({"/data/", "/more"}, outside);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << outside;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("spec.data.path = \"", outside,
                                       "\": must be an absolute path "
                                       "without \"..\" in /data or /more")));
  }
  EXPECT_TRUE(CheckText({"/"}, "/etc/passwd").ok());
}

TEST(PathRootsTest, APlugInIsNotAFileOfTheUsers) {
  EXPECT_FALSE(CheckText({"/data"}, "/data/evil.so", "spec.env[\"NCCL_NET_PLUGIN\"]").ok());
  EXPECT_TRUE(CheckText({"/data"}, "/data/topology.xml", "spec.env[\"NCCL_TOPO_FILE\"]").ok());
}

TEST(PathRootsTest, RootsThemselvesAreChecked) {
  for (const char* root : {"", "data", "/data/../etc", "./x"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(PathRoots::Create({root}).status())) << root;
  }
}

class OnDiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("data/tokens.bin", "x");
    folder_.Write("secret/key", "x");
    roots_ = *PathRoots::Create({folder_.Path("data")});
  }
  void Link(const std::string& to, const std::string& name) const {
    std::filesystem::create_symlink(folder_.Path(to), folder_.Path(name));
  }
  [[nodiscard]] absl::Status Check(const std::string& name) const {
    return roots_.CheckOnDisk({"spec.data.path", folder_.Path(name)});
  }

  const TemporaryFolder folder_;
  PathRoots roots_;
};

TEST_F(OnDiskTest, FilesFoldersAndWhatIsNotThereYet) {
  EXPECT_TRUE(Check("data").ok());
  EXPECT_TRUE(Check("data/tokens.bin").ok());
  EXPECT_TRUE(Check("data/new/checkpoints").ok());
  EXPECT_TRUE(Check("data/*.bin").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Check("secret/key")));
}

TEST_F(OnDiskTest, LinksThatLeadOutAreRefused) {
  Link("secret", "data/folder");
  Link("secret/key", "data/file.bin");
  for (const char* name : {"data/folder", "data/folder/key", "data/folder/new", "data/file.bin",
                           "data/*.bin", "data"}) {
    const absl::Status status = Check(name);
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("copy it there instead of linking it"));
  }
}

TEST_F(OnDiskTest, LinksWithinTheRootsAreFine) {
  Link("data/tokens.bin", "data/latest.bin");
  EXPECT_TRUE(Check("data/latest.bin").ok());
  EXPECT_TRUE(Check("data").ok());
}

TEST_F(OnDiskTest, ARootMayBeALinkItself) {
  Link("data", "mnt");
  const auto roots = PathRoots::Create({folder_.Path("mnt")});
  ASSERT_TRUE(roots.ok());
  EXPECT_TRUE(roots->CheckOnDisk({"spec.data.path", folder_.Path("mnt/tokens.bin")}).ok());
}

TEST_F(OnDiskTest, ALoopOfLinksIsNoWayIn) {
  Link("data/b", "data/a");
  Link("data/a", "data/b");
  EXPECT_TRUE(absl::IsPermissionDenied(Check("data/a")));
}

}  // namespace
}  // namespace fsdp
