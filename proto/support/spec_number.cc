#include "proto/support/spec_number.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "absl/strings/ascii.h"

namespace fsdp::spec {
namespace {

// -digits.fraction e exponent; `digits` has at least one digit or `fraction` has.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::string fraction;
  int exponent = 0;
};

std::string_view TakeDigits(std::string_view* text) {
  std::size_t end = 0;
  while (end < text->size() && absl::ascii_isdigit(static_cast<unsigned char>((*text)[end]))) ++end;
  const std::string_view digits = text->substr(0, end);
  text->remove_prefix(end);
  return digits;
}

bool TakeExponent(std::string_view* text, int* exponent) {
  if (!text->starts_with('e') && !text->starts_with('E')) return true;
  text->remove_prefix(1);
  const bool negative = text->starts_with('-');
  if (negative || text->starts_with('+')) text->remove_prefix(1);
  const std::string_view digits = TakeDigits(text);
  // Four digits are beyond every type's range already.
  if (digits.empty()) return false;
  if (digits.size() > 4) {
    *exponent = 99'999;
  } else {
    std::from_chars(digits.data(), digits.data() + digits.size(), *exponent);
  }
  if (negative) *exponent = -*exponent;
  return true;
}

bool ParseDecimal(std::string_view text, Decimal* decimal) {
  if (text.starts_with('-')) {
    decimal->negative = true;
    text.remove_prefix(1);
  }
  decimal->digits = TakeDigits(&text);
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    decimal->fraction = TakeDigits(&text);
  }
  if (decimal->digits.empty() && decimal->fraction.empty()) return false;
  if (decimal->digits.size() > 1 && decimal->digits.front() == '0') return false;
  return TakeExponent(&text, &decimal->exponent) && text.empty();
}

bool NamesNonFinite(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  if (text.starts_with('.')) text.remove_prefix(1);
  const std::string lower = absl::AsciiStrToLower(std::string(text));
  return lower == "nan" || lower == "inf" || lower == "infinity";
}

// The number's digits as a whole number. At most `kLongest`: more is beyond 64 bits.
constexpr std::size_t kLongest = 20;
ParsedNumber<std::string> WholeDigits(const Decimal& decimal) {
  std::string all = decimal.digits + decimal.fraction;
  const long point = static_cast<long>(decimal.digits.size()) + decimal.exponent;
  const std::size_t first = all.find_first_not_of('0');
  if (first == std::string::npos) return std::string("0");
  const std::size_t last = all.find_last_not_of('0');
  if (point <= static_cast<long>(last)) return NumberError::kFraction;
  if (point - static_cast<long>(first) > static_cast<long>(kLongest)) return NumberError::kRange;
  all.resize(std::max<std::size_t>(all.size(), static_cast<std::size_t>(point)), '0');
  return all.substr(first, static_cast<std::size_t>(point) - first);
}

template <typename T>
ParsedNumber<T> ParseWhole(std::string_view text) {
  if (NamesNonFinite(text)) return NumberError::kNonFinite;
  Decimal decimal;
  if (!ParseDecimal(text, &decimal)) return NumberError::kSyntax;
  const auto whole = WholeDigits(decimal);
  if (const auto* error = std::get_if<NumberError>(&whole)) return *error;
  const std::string digits = (decimal.negative ? "-" : "") + std::get<std::string>(whole);
  if (digits == "-0") return T{0};
  T value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return NumberError::kRange;
  return value;
}

}  // namespace

ParsedNumber<std::int64_t> ParseInt64(std::string_view text) {
  return ParseWhole<std::int64_t>(text);
}

ParsedNumber<std::uint64_t> ParseUint64(std::string_view text) {
  return ParseWhole<std::uint64_t>(text);
}

ParsedNumber<double> ParseDouble(std::string_view text) {
  if (NamesNonFinite(text)) return NumberError::kNonFinite;
  Decimal decimal;
  if (!ParseDecimal(text, &decimal)) return NumberError::kSyntax;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Underflow is reported as a range error too: 1e-400 is not what anybody means.
  if (error != std::errc() || end != text.data() + text.size()) return NumberError::kRange;
  return value;
}

}  // namespace fsdp::spec
