#ifndef FSDPCTL_PROTO_SUPPORT_MARKUP_H_
#define FSDPCTL_PROTO_SUPPORT_MARKUP_H_

// Texts of other people (names of jobs and hosts, log lines, reasons) on their way into HTML, SVG
// or JSON. Thread-safe (no state).

#include <cstddef>
#include <string>
#include <string_view>

namespace fsdp {

// Length of the valid UTF-8 sequence at the beginning of `text`, which is not empty; 0 when there
// is none.
std::size_t SequenceLength(std::string_view text);
// Valid UTF-8 without control characters: each that is not becomes U+FFFD.
std::string CleanText(std::string_view text);
// For text and attributes of HTML and SVG; cleaned.
std::string HtmlEscaped(std::string_view text);
// With its quotes; cleaned.
std::string JsonQuoted(std::string_view text);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_MARKUP_H_
