#ifndef FSDPCTL_PROTO_SUPPORT_TEXT_H_
#define FSDPCTL_PROTO_SUPPORT_TEXT_H_

// Numbers, times and names as people read them. Thread-safe (no state).

#include <google/protobuf/descriptor.h>
#include <google/protobuf/generated_enum_reflection.h>
#include <google/protobuf/timestamp.pb.h>

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace fsdp {

// "RUNNING" for JOB_STATE_RUNNING; "-" for UNSPECIFIED; "12" for a value that this release does not
// know.
std::string EnumText(const google::protobuf::EnumDescriptor& type, int value);
template <typename Enum>
std::string EnumText(Enum value) {
  return EnumText(*google::protobuf::GetEnumDescriptor<Enum>(), static_cast<int>(value));
}

// "512 B", "1.5 KiB", "93.2 GiB".
std::string BytesText(std::int64_t bytes);
// "1,574,912".
std::string CountText(std::int64_t count);
// Three significant digits and a decimal suffix: "987", "12.3K", "4.56M", "1.2T".
std::string ShortNumber(double value);
// "850ms", "42s", "3m10s", "2h05m", "4d03h".
std::string DurationText(absl::Duration duration);
std::string SecondsText(double seconds);
// Of a step, three significant digits below 100 seconds: "0.912ms", "64.9ms", "377ms", "1.84s",
// "3m10s".
std::string StepSecondsText(double seconds);
// The value for printf, which would write the sign of a NaN.
double UnsignedNan(double value);
// Four decimals; "-" for NaN.
std::string LossText(double loss);

absl::Time ToTime(const google::protobuf::Timestamp& time);
// "2026-01-02T03:04:05Z"; "-" when not set.
std::string TimeText(const google::protobuf::Timestamp& time);
// "3m10s" since then; "-" when not set.
std::string AgeText(const google::protobuf::Timestamp& time, absl::Time now);

// The id of a resource name: "x" of "jobs/x".
std::string IdOf(const std::string& resource_name);

// Control characters (escape sequences of a job's output among them) replaced; tabs stay.
std::string Printable(const std::string& text);

// Columns that the text takes on a terminal; ANSI sequences take none.
int DisplayWidth(const std::string& text);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_TEXT_H_
