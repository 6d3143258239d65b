// SPDX-License-Identifier: Apache-2.0
//
// The result for programs.  JSON: one document, keys in a fixed order, numbers that read
// the same from every compiler's build.  CSV: one line a variant, one column a metric.
#pragma once

#include <string>

#include "scenarios/run/result.h"

namespace faultline::report {

[[nodiscard]] std::string json(const scenario::Result& result);
[[nodiscard]] std::string csv(const scenario::Result& result);

// Folded stacks as FlameGraph and speedscope read them: "a;b;c_[k] nanoseconds", kernel
// functions with the suffix; busy time alone.
[[nodiscard]] std::string folded(const scenario::VariantResult& variant);

}  // namespace faultline::report
