#ifndef FSDPCTL_CLIENT_RENDER_STYLE_H_
#define FSDPCTL_CLIENT_RENDER_STYLE_H_

#include <string>

#include "fsdp/v1/job_record.pb.h"

namespace fsdp {

// ANSI colours, or none. Copyable, thread-safe.
class Style {
 public:
  explicit Style(bool color = false) : color_(color) {}
  [[nodiscard]] bool color() const { return color_; }
  [[nodiscard]] std::string Red(const std::string& text) const { return Paint("31", text); }
  [[nodiscard]] std::string Green(const std::string& text) const { return Paint("32", text); }
  [[nodiscard]] std::string Yellow(const std::string& text) const { return Paint("33", text); }
  [[nodiscard]] std::string Blue(const std::string& text) const { return Paint("34", text); }
  [[nodiscard]] std::string Cyan(const std::string& text) const { return Paint("36", text); }
  [[nodiscard]] std::string Bold(const std::string& text) const { return Paint("1", text); }
  [[nodiscard]] std::string Dim(const std::string& text) const { return Paint("2", text); }
  // A state's or severity's text in its colour.
  [[nodiscard]] std::string State(v1::JobState state) const;
  [[nodiscard]] std::string Severity(v1::EventSeverity severity) const;

 private:
  [[nodiscard]] std::string Paint(const char* code, const std::string& text) const {
    return color_ && !text.empty() ? std::string("\x1b[") + code + "m" + text + "\x1b[0m" : text;
  }
  bool color_;
};

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_RENDER_STYLE_H_
