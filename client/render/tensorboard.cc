#include "client/render/tensorboard.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/render/tensorboard.pb.h"
#include "proto/support/crc32c.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

constexpr char kFileVersion[] = "brain.Event:2";

// Little-endian, as the format has it.
template <typename T>
void AppendNumber(std::string* to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    *to += static_cast<char>(value >> (8 * i) & 0xff);
  }
}

// The format stores checksums of data that may hold checksums: rotated, and a constant added.
std::uint32_t MaskedCrc(const std::string& bytes) {
  const std::uint32_t crc = Crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

void Add(tensorboard::Summary* summary, const std::string& tag, double value) {
  if (!std::isfinite(value)) return;
  tensorboard::Summary::Value& entry = *summary->add_value();
  entry.set_tag(tag);
  entry.set_simple_value(static_cast<float>(value));
}

void AddPhases(const v1::StepPhases& phases, tensorboard::Summary* summary) {
  const auto& descriptor = *v1::StepPhases::descriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const auto* field = descriptor.field(i);
    Add(summary, absl::StrCat("phases/", field->name()),
        phases.GetReflection()->GetDouble(phases, field));
  }
}

}  // namespace

std::string TfRecord(const std::string& event) {
  std::string length;
  AppendNumber(&length, static_cast<std::uint64_t>(event.size()));
  std::string record = length;
  AppendNumber(&record, MaskedCrc(length));
  record += event;
  AppendNumber(&record, MaskedCrc(event));
  return record;
}

std::string TensorboardHeader(absl::Time time) {
  tensorboard::Event event;
  event.set_wall_time(absl::ToDoubleSeconds(time - absl::UnixEpoch()));
  event.set_file_version(kFileVersion);
  return TfRecord(event.SerializeAsString());
}

std::string TensorboardRecord(const v1::StepMetrics& step) {
  tensorboard::Event event;
  event.set_wall_time(absl::ToDoubleSeconds(ToTime(step.time()) - absl::UnixEpoch()));
  event.set_step(step.step());
  tensorboard::Summary& summary = *event.mutable_summary();
  Add(&summary, "loss/train", step.loss());
  if (step.has_validation_loss()) Add(&summary, "loss/validation", step.validation_loss());
  for (const v1::EvaluationLoss& set : step.evaluations()) {
    Add(&summary, absl::StrCat("loss/", set.name()), set.loss());
  }
  Add(&summary, "grad_norm", step.grad_norm());
  Add(&summary, "learning_rate", step.lr());
  Add(&summary, "tokens_per_second", step.tokens_per_second());
  Add(&summary, "step_seconds", step.step_seconds());
  if (step.mfu() > 0) Add(&summary, "mfu", step.mfu());
  if (step.hfu() > 0) Add(&summary, "hfu", step.hfu());
  Add(&summary, "memory_peak_bytes", static_cast<double>(step.memory_peak_bytes()));
  AddPhases(step.phases(), &summary);
  return TfRecord(event.SerializeAsString());
}

}  // namespace fsdp
