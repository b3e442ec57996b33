#ifndef FSDPCTL_COORDINATOR_WEB_HTML_H_
#define FSDPCTL_COORDINATOR_WEB_HTML_H_

// Markup in which no text of a user can be mistaken for markup: what is not written in this
// program's source is escaped, and the compiler tells the two apart.

#include <string>
#include <string_view>
#include <vector>

namespace fsdp::coordinator {

// Markup from the source: only a constant expression makes one.
class Literal {
 public:
  consteval Literal(const char* text) : text_(text) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

class Html {
 public:
  Html& Markup(Literal literal) {
    text_ += literal.text();
    return *this;
  }
  // For content and for attributes in double quotes.
  Html& Text(std::string_view text);
  // A segment of a path or a value of a query.
  Html& UrlPart(std::string_view text);
  Html& Add(const Html& other) {
    text_ += other.text_;
    return *this;
  }

  [[nodiscard]] bool empty() const { return text_.empty(); }
  [[nodiscard]] const std::string& str() const { return text_; }
  // Ends the building.
  [[nodiscard]] std::string Take() && { return std::move(text_); }

 private:
  std::string text_;
};

// A cell with a text; "-" for an empty one.
Html TextCell(std::string_view text);

// "a b" is "a%20b".
std::string UrlEscaped(std::string_view text);

struct HtmlColumn {
  Literal title;
  bool is_number = false;
  // Sentences: takes what room there is.
  bool is_wide = false;
};

// A table that a narrow screen shows as one card a row; `label` is read out before it. Rows have as
// many cells as there are columns; the first is the row's header. `none` stands where there is no
// row.
Html HtmlTable(Literal label, const std::vector<HtmlColumn>& columns,
               const std::vector<std::vector<Html>>& rows, Literal none);

// Names with their values; pairs without a value are left out.
struct HtmlFact {
  Literal name;
  Html value;
};
Html FactList(const std::vector<HtmlFact>& facts);

// A part of a page under a heading. The script replaces live ones as they change.
Html Section(Literal id, Literal title, const Html& content);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_WEB_HTML_H_
