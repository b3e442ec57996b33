#ifndef FSDPCTL_PROTO_SUPPORT_SPEC_NUMBER_H_
#define FSDPCTL_PROTO_SUPPORT_SPEC_NUMBER_H_

// Numbers as specs write them: decimal, with an exponent if wanted; integers may be written 1e6 or
// 2.0. No signs but -, no leading zeros, no hexadecimal, no separators, nothing non-finite.
//
// Thread rule: pure functions.

#include <cstdint>
#include <string_view>
#include <variant>

namespace fsdp::spec {

enum class NumberError {
  kSyntax,     // not a number
  kFraction,   // a number, but not whole
  kRange,      // a number that the type cannot hold
  kNonFinite,  // NaN or infinity, in any spelling
};

template <typename T>
using ParsedNumber = std::variant<T, NumberError>;

ParsedNumber<std::int64_t> ParseInt64(std::string_view text);
ParsedNumber<std::uint64_t> ParseUint64(std::string_view text);
ParsedNumber<double> ParseDouble(std::string_view text);

}  // namespace fsdp::spec

#endif  // FSDPCTL_PROTO_SUPPORT_SPEC_NUMBER_H_
