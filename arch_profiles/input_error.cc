// SPDX-License-Identifier: Apache-2.0
#include "arch_profiles/input_error.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace faultline {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += ", ";
    out += word;
  }
  return out;
}

std::string formatted(const Complaint& c) {
  std::string out = c.place.text();
  if (!out.empty()) out += ": ";
  out += c.message;
  if (!c.hint.empty()) out += "\n  " + c.hint;
  if (!c.accepted.empty()) out += "\n  accepted: " + joined(c.accepted);
  return out;
}

// Case and the choice between '-' and '_' cost nothing: they are the commonest slips.
std::string folded(std::string_view word) {
  std::string out;
  for (const char c : word)
    out += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Edit distance in which two swapped neighbours count as one slip.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1,
                                          std::vector<std::size_t>(b.size() + 1, 0));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::string last_part(std::string_view dotted) {
  const std::size_t dot = dotted.rfind('.');
  return std::string(dot == std::string_view::npos ? dotted : dotted.substr(dot + 1));
}

}  // namespace

std::string Place::text() const {
  if (line == 0) return file;
  return file + ":" + std::to_string(line) + ":" + std::to_string(column);
}

InputError::InputError(Complaint complaint)
    : std::runtime_error(formatted(complaint)), complaint_(std::move(complaint)) {}

std::optional<std::string> nearest_name(std::string_view word,
                                        std::span<const std::string> names) {
  const std::string wanted = folded(word);
  // "page_size" means "geometry.page_size" where only the latter exists.
  for (const std::string& name : names)
    if (name.size() > word.size() && folded(last_part(name)) == wanted) return name;

  std::optional<std::string> best;
  std::size_t best_distance = 1 + wanted.size() / 3;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(wanted, folded(name));
    if (distance > best_distance || (best && distance == best_distance)) continue;
    best = name;
    best_distance = distance;
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> names) {
  const auto name = nearest_name(word, names);
  return name ? "did you mean \"" + *name + "\"?" : std::string();
}

}  // namespace faultline
