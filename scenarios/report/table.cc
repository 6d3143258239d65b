// SPDX-License-Identifier: Apache-2.0
#include "scenarios/report/table.h"

#include <algorithm>

#include "sim/check.h"

namespace faultline::report {
namespace {

// Characters, not bytes: continuation bytes of UTF-8 take no column.
std::size_t width_of(const std::string& s) {
  return static_cast<std::size_t>(std::count_if(s.begin(), s.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  FAULTLINE_CHECK_EQ(cells.size(), columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text(std::size_t indent) const {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& c : columns_) lines[0].push_back(c.title);
  lines.insert(lines.end(), rows_.begin(), rows_.end());
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], width_of(line[i]));

  std::string out;
  for (const auto& line : lines) {
    std::string row(indent, ' ');
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string pad(widths[i] - width_of(line[i]), ' ');
      if (i > 0) row += "  ";
      row += columns_[i].align == Align::kRight ? pad + line[i] : line[i] + pad;
    }
    row.erase(row.find_last_not_of(' ') + 1);
    out += row + "\n";
  }
  return out;
}

std::string wrap(const std::string& text, const std::string& first, std::size_t width) {
  const std::string other(width_of(first), ' ');
  std::string out, line = first;
  bool empty = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (!empty && width_of(line) + 1 + width_of(word) > width) {
      out += line + "\n";
      line = other;
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  return out + line + "\n";
}

}  // namespace faultline::report
