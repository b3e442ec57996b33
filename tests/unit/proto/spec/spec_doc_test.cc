// docs/job_spec.md and docs/job_spec.schema.json are what the proto and the rule table say today.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "fsdp/v1/job.pb.h"
#include "fsdp/v1/queue.pb.h"
#include "proto/support/spec_descriptors.h"
#include "proto/support/spec_fields.h"
#include "proto/support/spec_path.h"

namespace fsdp::spec {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class SpecDocTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = SpecDescriptors::Load(FSDP_SPEC_DESCRIPTORS);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    descriptors_ = std::move(loaded).value();
  }
  std::unique_ptr<SpecDescriptors> descriptors_;
};

constexpr char kRemedy[] = "run: cmake --build BUILD_FOLDER --target spec_docs";

TEST_F(SpecDocTest, SchemaIsCurrent) {
  EXPECT_EQ(JobSchema(*descriptors_), ReadText(FSDP_SOURCE_DIR "/docs/job_spec.schema.json"))
      << kRemedy;
}

TEST_F(SpecDocTest, ReferenceIsCurrent) {
  EXPECT_EQ(JobReference(*descriptors_), ReadText(FSDP_SOURCE_DIR "/docs/job_spec.md")) << kRemedy;
}

TEST_F(SpecDocTest, CommentsOfTheProtoAreInThem) {
  const auto* field = descriptors_->job().FindFieldByName("api_version");
  EXPECT_EQ(CommentOf(*field), "Must be \"fsdp.v1\".");
}

TEST(SpecDescriptorsTest, BadFilesAreErrors) {
  EXPECT_EQ(SpecDescriptors::Load("/nowhere").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SpecDescriptors::Load(FSDP_SOURCE_DIR "/docs/job_spec.md").status().code(),
            absl::StatusCode::kInvalidArgument);
}

void Collect(const google::protobuf::Descriptor& type, const FieldPath& path,
             std::set<std::string>* paths) {
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& field = *type.field(i);
    const FieldPath child = path.Child(field);
    paths->insert(child.rule);
    if (field.is_map()) {
      paths->insert(child.rule + "{}");
    } else if (field.message_type() != nullptr) {
      Collect(*field.message_type(), field.is_repeated() ? child.Item(0) : child, paths);
    } else if (field.is_repeated() &&
               field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
      paths->insert(child.Item(0).rule);
    }
  }
}

// A rule whose path is misspelt would check nothing.
TEST(FieldRulesTest, EveryRuleNamesAFieldOnce) {
  std::set<std::string> paths;
  Collect(*v1::TrainingJob::descriptor(), FieldPath{}, &paths);
  std::set<std::string> seen;
  for (const FieldRule& rule : FieldRules()) {
    EXPECT_TRUE(paths.contains(std::string(rule.path))) << rule.path;
    EXPECT_TRUE(seen.insert(std::string(rule.path)).second) << rule.path;
  }
  for (const ValueRule& rule : ValuesNotInRelease()) {
    EXPECT_TRUE(paths.contains(std::string(rule.path))) << rule.path;
  }
  std::set<std::string> of_queues;
  Collect(*v1::QueueConfig::descriptor(), FieldPath{"", kQueueRules}, &of_queues);
  for (const FieldRule& rule : QueueFieldRules()) {
    EXPECT_TRUE(of_queues.contains(std::string(rule.path))) << rule.path;
    EXPECT_TRUE(seen.insert(std::string(rule.path)).second) << rule.path;
  }
}

// Every number of a spec has a range that somebody thought about.
TEST(FieldRulesTest, EveryNumberHasARange) {
  std::set<std::string> paths;
  Collect(*v1::TrainingJob::descriptor(), FieldPath{}, &paths);
  const auto is_number = [](const google::protobuf::FieldDescriptor& field) {
    return field.enum_type() == nullptr && field.message_type() == nullptr &&
           field.cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_STRING &&
           field.cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_BOOL;
  };
  for (const std::string& path : paths) {
    if (path.ends_with("{}") || path.ends_with("[]") || path == "spec.train.seed") continue;
    const google::protobuf::Descriptor* type = v1::TrainingJob::descriptor();
    const google::protobuf::FieldDescriptor* field = nullptr;
    std::stringstream names(path);
    for (std::string name; std::getline(names, name, '.');) {
      if (name.ends_with("[]")) name.resize(name.size() - 2);
      field = type->FindFieldByCamelcaseName(name);
      ASSERT_NE(field, nullptr) << path;
      if (field->message_type() != nullptr) type = field->message_type();
    }
    if (is_number(*field)) {
      EXPECT_FALSE(RangeWords(RuleOf(path)).empty()) << path;
    }
  }
}

}  // namespace
}  // namespace fsdp::spec
