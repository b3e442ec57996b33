#ifndef FSDPCTL_PROTO_SUPPORT_SPEC_FIELDS_H_
#define FSDPCTL_PROTO_SUPPORT_SPEC_FIELDS_H_

// What each field of a job spec may hold: the one table behind validation, defaults, the JSON
// Schema and the reference page.
//
// Thread rule: constant data.

#include <google/protobuf/descriptor.h>

#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::spec {

// Tasks of an array; more are refused.
inline constexpr int kMaxArrayTasks = 1000;

// Of one job.
inline constexpr int kMaxRanks = 4096;

inline constexpr double kNoBound = std::numeric_limits<double>::infinity();

// What a string may look like, beyond its length.
enum class TextForm {
  kAny,
  // Names of jobs and queues: 1-63 of a-z, 0-9 and -, a letter first, no - last.
  kName,
  // FieldRule::constant and nothing else.
  kConstant,
  // Label keys and values: A-Z, a-z, 0-9, '.', '_', '/' and '-'.
  kLabel,
};

struct FieldRule {
  // By JSON names; a repeated field's entries are "[]", a map's "{}": "spec.data.mixture[].weight".
  std::string_view path;
  // Numbers. Bounds belong to the range unless the flags say otherwise.
  double min = -kNoBound;
  double max = kNoBound;
  bool above_min = false;
  bool below_max = false;
  // Must be there, and not zero.
  bool required = false;
  // As in a spec; empty: none, or the proto's zero.
  std::string_view default_value = {};
  // Where the default is not a constant: "the rank's whole share".
  std::string_view default_note = {};
  // Of a string in bytes, of a list or map in entries.
  std::size_t max_size = 4096;
  TextForm form = TextForm::kAny;
  std::string_view constant = {};
  // A string that may be written as a number or boolean: it is taken as it stands.
  bool any_scalar = false;
  // Not empty: a value other than the default is refused, with what to do instead.
  std::string_view not_in_release = {};
};

// In the order of the proto.
std::span<const FieldRule> FieldRules();

// Of the queues' document (queue_config.h); paths begin with kQueueRules.
inline constexpr char kQueueRules[] = "queueConfig";
std::span<const FieldRule> QueueFieldRules();

// The rule of a path of either document, or one without constraints.
const FieldRule& RuleOf(std::string_view path);

// Enum values that the proto has and this release does not.
struct ValueRule {
  std::string_view path;
  std::string_view value;  // short name
  std::string_view instead;
};
std::span<const ValueRule> ValuesNotInRelease();
bool IsInRelease(std::string_view path, std::string_view value);

// The names that an enum field takes in this release.
std::vector<std::string> AllowedNames(const google::protobuf::EnumDescriptor& type,
                                      std::string_view path);

// Fields of one object of which one must be given: exactly one, or at least one.
struct Choice {
  std::string_view path;
  std::array<std::string_view, 3> names;
  bool exactly_one = true;
  std::string_view words;
};
std::span<const Choice> Choices();

// "0..1", "more than 0, at most 1"; empty without bounds.
std::string RangeWords(const FieldRule& rule);

// Names accepted in spec.env, as a regular expression and in words.
std::string_view EnvNamePattern();
std::string_view EnvNameWords();
bool IsEnvNameAllowed(std::string_view name);

// Does `text` have the form?  And the form as an ECMAScript regular expression and in words, both
// empty for kAny.
bool HasForm(const FieldRule& rule, std::string_view text);
std::string FormPattern(const FieldRule& rule);
std::string FormWords(const FieldRule& rule);

}  // namespace fsdp::spec

#endif  // FSDPCTL_PROTO_SUPPORT_SPEC_FIELDS_H_
