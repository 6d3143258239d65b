// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/result.h"

#include <algorithm>

namespace faultline::scenario {

const Metric* VariantResult::metric(std::string_view wanted) const {
  for (const Metric& m : metrics)
    if (m.name == wanted) return &m;
  return nullptr;
}

bool Result::expectations_met() const {
  return std::all_of(variants.begin(), variants.end(), [](const VariantResult& v) {
    return v.failure.empty() && std::all_of(v.expectations.begin(), v.expectations.end(),
                                            [](const Expectation& e) { return e.passed; });
  });
}

}  // namespace faultline::scenario
