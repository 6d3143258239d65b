// SPDX-License-Identifier: Apache-2.0
//
// The text of a condition to its parts.
#include "scenarios/run/expectation.h"

#include <algorithm>
#include <utility>

namespace faultline::scenario {
namespace {

constexpr std::string_view kShare = "share(";
constexpr std::string_view kNameLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text) {
    if (c != ' ' && c != '\t' && c != '\n') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

bool is_operator(std::string_view word) {
  return word.size() == 1 &&
         std::string_view("+-*/").find(word[0]) != std::string_view::npos;
}

// What is wrong with a condition, to be thrown at the place of its key or value.
struct Problem {
  std::string message;
};

// [variant.]metric or [variant.]share(function); a variant's name may have dots, a metric's
// not.
Term parse_name(std::string_view word) {
  Term term;
  term.kind = Term::Kind::kMetric;
  std::string_view prefix = word;
  const std::size_t share = word.find(kShare);
  if (share != std::string_view::npos) {
    if (!word.ends_with(')') || word.size() == share + kShare.size() + 1)
      throw Problem{"\"" + std::string(word) + "\" must end in a function name and )"};
    term.kind = Term::Kind::kShare;
    term.name = word.substr(share + kShare.size(), word.size() - share - kShare.size() - 1);
    prefix = word.substr(0, share);
    if (prefix.empty()) return term;
  }
  const std::size_t dot = prefix.rfind('.');
  const bool dotted = dot != std::string_view::npos;
  const bool whole = term.kind == Term::Kind::kMetric
                         ? (!dotted || dot + 1 < prefix.size())
                         : (dotted && dot + 1 == prefix.size());
  if (prefix.find_first_not_of(kNameLetters) != std::string_view::npos || dot == 0 ||
      !whole)
    throw Problem{"\"" + std::string(word) + "\" is no number, metric or variant.metric"};
  if (dotted) term.variant = prefix.substr(0, dot);
  if (term.kind == Term::Kind::kMetric)
    term.name = dotted ? prefix.substr(dot + 1) : prefix;
  return term;
}

Term parse_term(std::string_view word) {
  if (const auto number = Decimal::parse(word)) {
    Term term;
    term.number = *number;
    return term;
  }
  return parse_name(word);
}

Expression parse_expression(std::span<const std::string> words) {
  Expression out;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    Term term = parse_term(words[i]);
    if (i != 0) term.op = words[i - 1][0];
    out.terms.push_back(std::move(term));
    const bool last = i + 1 == words.size();
    if (!last && !is_operator(words[i + 1]))
      throw Problem{"\"" + words[i + 1] + "\" is not one of + - * /"};
    if (!last && i + 2 == words.size())
      throw Problem{"nothing stands after \"" + words[i + 1] + "\""};
  }
  if (out.terms.empty()) throw Problem{"a number or metric is missing"};
  return out;
}

const std::vector<std::pair<std::string_view, Condition::Test>>& comparisons() {
  using Test = Condition::Test;
  static const std::vector<std::pair<std::string_view, Test>> table = {
      {"==", Test::kEqual},        {"!=", Test::kNotEqual},  {">=", Test::kAtLeast},
      {">", Test::kAbove},         {"<=", Test::kAtMost},    {"<", Test::kBelow},
      {"between", Test::kBetween}, {"within", Test::kWithin}};
  return table;
}

std::vector<std::string> accepted_forms() {
  return {"\">= 1\"", "\"== 34\"", "\"between 2.5 and 3.9\"", "\"within 25% of published\"",
          "\"within 2%\""};
}

void parse_between(Condition& c, std::span<const std::string> words) {
  const auto middle = std::find(words.begin(), words.end(), "and");
  if (middle == words.end())
    throw Problem{"between needs two numbers: between 2.5 and 3.9"};
  const auto at = static_cast<std::size_t>(middle - words.begin());
  c.low = parse_expression(words.subspan(0, at));
  c.high = parse_expression(words.subspan(at + 1));
}

// The published number of what the condition is about, which must be one metric.
Expression published(const Condition& c) {
  if (c.subject.terms.size() != 1 || c.subject.terms[0].kind != Term::Kind::kMetric)
    throw Problem{"only a metric alone can be held against what is published"};
  Expression out = c.subject;
  out.terms[0].kind = Term::Kind::kPublished;
  return out;
}

void parse_within(Condition& c, std::span<const std::string> words) {
  std::string_view percent = words.empty() ? std::string_view() : words[0];
  if (!percent.ends_with('%'))
    throw Problem{"within needs a percentage: within 25% of published"};
  percent.remove_suffix(1);
  const auto tolerance = Decimal::parse(percent);
  if (!tolerance || tolerance->units() < 0)
    throw Problem{"\"" + words[0] + "\" is not a percentage"};
  c.tolerance = *tolerance;
  words = words.subspan(1);
  if (words.empty()) {
    const bool ratio = std::any_of(c.subject.terms.begin(), c.subject.terms.end(),
                                   [](const Term& t) { return t.op == '/'; });
    if (!ratio)
      throw Problem{"within what? write \"within " + std::string(percent) +
                    "% of\" and a number or published"};
    c.low.terms.resize(1);
    c.low.terms[0].number = Decimal::count(1);
    return;
  }
  if (words[0] != "of")
    throw Problem{"\"of\" must follow the percentage, not \"" + words[0] + "\""};
  words = words.subspan(1);
  c.low =
      words.size() == 1 && words[0] == "published" ? published(c) : parse_expression(words);
}

void parse_test(Condition& c, const std::string& text) {
  const auto words = words_of(text);
  const std::string first = words.empty() ? std::string() : words[0];
  const auto& table = comparisons();
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const auto& row) { return row.first == first; });
  if (found == table.end())
    throw Problem{"\"" + text + "\" does not begin with a comparison"};
  c.test = found->second;
  const auto rest = std::span(words).subspan(1);
  if (c.test == Condition::Test::kBetween) {
    parse_between(c, rest);
  } else if (c.test == Condition::Test::kWithin) {
    parse_within(c, rest);
  } else {
    c.low = parse_expression(rest);
  }
}

template <typename Visit>
void for_each_term(const Condition& c, Visit visit) {
  for (const Expression* e : {&c.subject, &c.low, &c.high})
    for (const Term& term : e->terms) visit(term);
}

}  // namespace

std::vector<std::string> Condition::variants() const {
  std::vector<std::string> out;
  for_each_term(*this, [&out](const Term& term) {
    if (!term.variant.empty() &&
        std::find(out.begin(), out.end(), term.variant) == out.end())
      out.push_back(term.variant);
  });
  return out;
}

bool Condition::names_all_variants() const {
  bool all = !variants().empty();
  for_each_term(*this, [&all](const Term& term) {
    all = all && (term.kind == Term::Kind::kNumber || !term.variant.empty());
  });
  return all;
}

Condition parse_condition(const Entry& entry, std::string_view where) {
  Condition c;
  c.place = entry.key_place;
  const std::string key = std::string(where) + " " + entry.key;
  const std::string text = as_text(entry.value, key);
  c.text = entry.key + " " + text;
  try {
    c.subject = parse_expression(words_of(entry.key));
  } catch (const Problem& problem) {
    throw InputError({entry.key_place, entry.key, key + ": " + problem.message, {}, {}});
  }
  try {
    parse_test(c, text);
  } catch (const Problem& problem) {
    throw InputError(
        {entry.value.place, entry.key, key + ": " + problem.message, {}, accepted_forms()});
  }
  return c;
}

}  // namespace faultline::scenario
