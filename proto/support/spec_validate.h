#ifndef FSDPCTL_PROTO_SUPPORT_SPEC_VALIDATE_H_
#define FSDPCTL_PROTO_SUPPORT_SPEC_VALIDATE_H_

// The parts of ValidateJob.
//
// Thread rule: pure functions; a Findings is one thread's.

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/support/spec.h"

namespace fsdp::spec {

// spec.data.tokenizer: no file, each byte of text is a token.
inline constexpr std::string_view kBytesTokenizer = "bytes";

// Collects issues and knows which fields already have an error, so that one mistake is told once.
class Findings {
 public:
  explicit Findings(const SourceMap* source) : source_(source) {}

  struct Detail {
    std::string value;
    std::string allowed;
    std::string suggestion;
  };
  void Error(std::string_view field, std::string message, Detail detail = {}) {
    Add(field, std::move(message), std::move(detail), SpecSeverity::kError);
  }
  void Warning(std::string_view field, std::string message, Detail detail = {}) {
    Add(field, std::move(message), std::move(detail), SpecSeverity::kWarning);
  }
  // An error at `field` or below it.
  [[nodiscard]] bool HasErrorUnder(std::string_view field) const;
  std::vector<SpecIssue> Take() { return std::move(issues_); }

 private:
  void Add(std::string_view field, std::string message, Detail detail, SpecSeverity severity);

  const SourceMap* source_;
  std::vector<SpecIssue> issues_;
};

// Each field by itself, by the rule table: required, ranges, lengths, forms, names of enums and of
// the environment, what is not in this release.
void CheckFields(const v1::TrainingJob& job, Findings* findings);
// The same for another kind of document, whose fields' rules begin with `rule_root`.
void CheckDocument(const google::protobuf::Message& message, const std::string& rule_root,
                   Findings* findings);

// Fields together. `job` has its defaults.
void CheckModel(const v1::TrainingJob& job, Findings* findings);
void CheckData(const v1::TrainingJob& job, Findings* findings);
// Parts of CheckData and CheckModel: what is particular to text, its tokenizer and its vocabulary.
void CheckText(const v1::DataSpec& data, Findings* findings);
void CheckTextVocabulary(const v1::DataSpec& data, std::int64_t vocab_size, Findings* findings);
void CheckTraining(const v1::TrainingJob& job, Findings* findings);
void CheckLimits(const v1::TrainingJob& job, Findings* findings);
void CheckOperation(const v1::TrainingJob& job, Findings* findings);
// Part of CheckOperation: ranks, how far their number may change, and spares.
void CheckResources(const v1::JobSpec& spec, Findings* findings);
// After all others: a task is judged as a job once the array's own spec has no error.
void CheckArray(const v1::TrainingJob& job, Findings* findings);

}  // namespace fsdp::spec

#endif  // FSDPCTL_PROTO_SUPPORT_SPEC_VALIDATE_H_
