// SPDX-License-Identifier: Apache-2.0
//
// Columns of text: as wide as their widest cell, numbers to the right, words to the left.
#pragma once

#include <string>
#include <vector>

namespace faultline::report {

class Table {
 public:
  enum class Align : std::uint8_t { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Precondition: as many cells as columns.
  void add(std::vector<std::string> cells);
  // Each line indented by `indent` spaces and without spaces at its end.
  [[nodiscard]] std::string text(std::size_t indent = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// `text` broken at spaces and newlines into lines of at most `width`; the first starts with
// `first`, the others with as many spaces.
[[nodiscard]] std::string wrap(const std::string& text, const std::string& first,
                               std::size_t width);

}  // namespace faultline::report
