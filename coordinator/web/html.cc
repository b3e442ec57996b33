#include "coordinator/web/html.h"

#include <cstddef>

#include "absl/strings/str_format.h"
#include "proto/support/markup.h"

namespace fsdp::coordinator {

Html& Html::Text(std::string_view text) {
  text_ += HtmlEscaped(text);
  return *this;
}

Html& Html::UrlPart(std::string_view text) {
  text_ += UrlEscaped(text);
  return *this;
}

Html TextCell(std::string_view text) { return Html().Text(text.empty() ? "-" : text); }

std::string UrlEscaped(std::string_view text) {
  constexpr std::string_view kPlain = "-._~";
  std::string result;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       kPlain.find(c) != std::string_view::npos;
    if (plain) {
      result += c;
    } else {
      absl::StrAppendFormat(&result, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return result;
}

namespace {

// Roles are named because a table that a style sheet turns into cards loses its own.
Html Row(const std::vector<HtmlColumn>& columns, const std::vector<Html>& cells) {
  Html row;
  row.Markup("<tr role=\"row\">");
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const HtmlColumn& column = columns[i];
    row.Markup(i == 0 ? Literal("<th scope=\"row\" role=\"rowheader\"")
                      : Literal("<td role=\"cell\""));
    row.Markup(" class=\"").Markup(column.is_number ? Literal("n") : Literal(""));
    row.Markup(column.is_wide ? Literal("w") : Literal(""));
    row.Markup(cells[i].str() == "-" ? Literal(" e\"") : Literal("\""));
    row.Markup(" data-title=\"").Markup(column.title).Markup("\">").Add(cells[i]);
    row.Markup(i == 0 ? Literal("</th>") : Literal("</td>"));
  }
  return row.Markup("</tr>\n");
}

}  // namespace

Html HtmlTable(Literal label, const std::vector<HtmlColumn>& columns,
               const std::vector<std::vector<Html>>& rows, Literal none) {
  Html html;
  if (rows.empty()) return html.Markup("<p class=\"none\">").Markup(none).Markup("</p>\n");
  html.Markup("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"").Markup(label);
  html.Markup("\"><table role=\"table\" aria-label=\"").Markup(label);
  html.Markup("\">\n<thead role=\"rowgroup\"><tr role=\"row\">");
  for (const HtmlColumn& column : columns) {
    html.Markup("<th scope=\"col\" role=\"columnheader\"");
    html.Markup(column.is_number ? Literal(" class=\"n\">") : Literal(">")).Markup(column.title);
    html.Markup("</th>");
  }
  html.Markup("</tr></thead>\n<tbody role=\"rowgroup\">\n");
  for (const auto& row : rows) html.Add(Row(columns, row));
  return html.Markup("</tbody></table></div>\n");
}

Html FactList(const std::vector<HtmlFact>& facts) {
  Html html;
  html.Markup("<dl class=\"facts\">\n");
  for (const HtmlFact& fact : facts) {
    if (fact.value.empty()) continue;
    html.Markup("<div><dt>").Markup(fact.name).Markup("</dt><dd>").Add(fact.value);
    html.Markup("</dd></div>\n");
  }
  return html.Markup("</dl>\n");
}

Html Section(Literal id, Literal title, const Html& content) {
  Html html;
  html.Markup("<section id=\"").Markup(id).Markup("\" data-live aria-labelledby=\"h-").Markup(id);
  html.Markup("\">\n<h2 id=\"h-").Markup(id).Markup("\">").Markup(title).Markup("</h2>\n");
  return html.Add(content).Markup("</section>\n");
}

}  // namespace fsdp::coordinator
