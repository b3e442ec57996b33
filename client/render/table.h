#ifndef FSDPCTL_CLIENT_RENDER_TABLE_H_
#define FSDPCTL_CLIENT_RENDER_TABLE_H_

#include <string>
#include <vector>

namespace fsdp {

// Columns padded to their widest cell, two blanks between; cells may hold ANSI colours. Nothing is
// cut: what is printed can be copied.
class Table {
 public:
  struct Column {
    std::string title;
    bool right = false;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // As many cells as columns.
  void AddRow(std::vector<std::string> cells);
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  // Each line ends with a newline and has no trailing blanks; `indent` is put before each.
  [[nodiscard]] std::string Render(const std::string& indent = "") const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_RENDER_TABLE_H_
