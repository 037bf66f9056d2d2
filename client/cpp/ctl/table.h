#pragma once

#include <string>
#include <vector>

namespace monarch::ctl {

// Rows of cells as aligned columns; the first row is the heading.
// Threading: confined to one thread.
class Table {
 public:
  explicit Table(std::vector<std::string> heading) : rows_{std::move(heading)} {}

  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.size() == 1; }
  // One line for each row, without spaces at the end.
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// The text with what would move the cursor or change colours replaced by '?': names come from users'
// programs.
std::string Printable(std::string text);

}  // namespace monarch::ctl
