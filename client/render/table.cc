#include "client/render/table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "proto/support/log.h"
#include "proto/support/text.h"

namespace fsdp {

void Table::AddRow(std::vector<std::string> cells) {
  FSDP_CHECK(cells.size() == columns_.size(), "row of ", cells.size(), " cells in a table of ",
             columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Render(const std::string& indent) const {
  std::vector<int> widths;
  std::vector<std::string> titles;
  for (const auto& column : columns_) {
    widths.push_back(DisplayWidth(column.title));
    titles.push_back(column.title);
  }
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], DisplayWidth(row[i]));
    }
  }
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line = indent;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string padding(static_cast<std::size_t>(widths[i] - DisplayWidth(cells[i])), ' ');
      line += columns_[i].right ? padding + cells[i] : cells[i] + padding;
      if (i + 1 < cells.size()) line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line(titles);
  for (const auto& row : rows_) add_line(row);
  return text;
}

}  // namespace fsdp
