#include "client/render/style.h"

#include "proto/support/text.h"

namespace fsdp {

std::string Style::State(v1::JobState state) const {
  const std::string text = EnumText(state);
  switch (state) {
    case v1::JOB_STATE_RUNNING:
    case v1::JOB_STATE_SUCCEEDED:
      return Green(text);
    case v1::JOB_STATE_FAILED:
      return Red(text);
    case v1::JOB_STATE_RECOVERING:
    case v1::JOB_STATE_CANCELLING:
    case v1::JOB_STATE_CANCELLED:
    case v1::JOB_STATE_SUSPENDED:
      return Yellow(text);
    case v1::JOB_STATE_STARTING:
      return Cyan(text);
    default:
      return text;
  }
}

std::string Style::Severity(v1::EventSeverity severity) const {
  const std::string text = EnumText(severity);
  if (severity == v1::EVENT_SEVERITY_ERROR) return Red(text);
  if (severity == v1::EVENT_SEVERITY_WARNING) return Yellow(text);
  return text;
}

}  // namespace fsdp
