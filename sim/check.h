// SPDX-License-Identifier: Apache-2.0
//
// Checks for our own bugs: always on, in every build type.  A failed check prints file,
// line, expression and both operands to stderr and aborts.  A user's mistake or an answer
// of the modelled system is never reported here.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <type_traits>

#include "sim/time.h"

namespace faultline::check {

[[noreturn]] void fail(const char* file, int line, std::string_view expression,
                       std::string_view details);

// How an operand is printed.
inline std::string text(std::string_view s) {
  return '"' + std::string(s) + '"';
}
std::string text(Duration d);
std::string text(Time t);
std::string pointer_text(const void* p);

template <typename T>
std::string text(const T& value) {
  if constexpr (std::is_same_v<T, bool>)
    return value ? "true" : "false";
  else if constexpr (std::is_null_pointer_v<T>)
    return "null";
  else if constexpr (std::is_enum_v<T>)
    return std::to_string(+static_cast<std::underlying_type_t<T>>(value));
  else if constexpr (std::is_convertible_v<const T&, std::string_view>)
    return text(std::string_view(value));
  else if constexpr (std::is_arithmetic_v<T>)
    return std::to_string(value);
  else if constexpr (std::is_convertible_v<const T&, const void*>)
    return pointer_text(value);
  else if constexpr (requires { std::to_string(value.value()); })
    return std::to_string(value.value());
  else if constexpr (requires { std::to_string(value.value); })
    return std::to_string(value.value);
  else
    return "?";
}

template <typename A, typename B>
[[noreturn, gnu::cold, gnu::noinline]] void fail_operands(const char* file, int line,
                                                          std::string_view expression,
                                                          const A& a, const B& b) {
  fail(file, line, expression, text(a) + " vs " + text(b));
}

}  // namespace faultline::check

#define FAULTLINE_CHECK(cond)                                  \
  do {                                                         \
    if (!(cond)) [[unlikely]]                                  \
      ::faultline::check::fail(__FILE__, __LINE__, #cond, {}); \
  } while (false)

#define FAULTLINE_CHECK_OP_(op, a, b)                                          \
  do {                                                                         \
    const auto& faultline_a_ = (a);                                            \
    const auto& faultline_b_ = (b);                                            \
    if (!(faultline_a_ op faultline_b_)) [[unlikely]]                          \
      ::faultline::check::fail_operands(__FILE__, __LINE__, #a " " #op " " #b, \
                                        faultline_a_, faultline_b_);           \
  } while (false)

#define FAULTLINE_CHECK_EQ(a, b) FAULTLINE_CHECK_OP_(==, a, b)
#define FAULTLINE_CHECK_NE(a, b) FAULTLINE_CHECK_OP_(!=, a, b)
#define FAULTLINE_CHECK_LT(a, b) FAULTLINE_CHECK_OP_(<, a, b)
#define FAULTLINE_CHECK_LE(a, b) FAULTLINE_CHECK_OP_(<=, a, b)
#define FAULTLINE_CHECK_GT(a, b) FAULTLINE_CHECK_OP_(>, a, b)
#define FAULTLINE_CHECK_GE(a, b) FAULTLINE_CHECK_OP_(>=, a, b)
