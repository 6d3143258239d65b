// SPDX-License-Identifier: Apache-2.0
//
// A run's metric, which it must have.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "scenarios/run/result.h"

namespace faultline::scenario {

inline double value(const VariantResult& v, std::string_view metric) {
  const Metric* m = v.metric(metric);
  EXPECT_NE(m, nullptr) << metric;
  return m == nullptr ? -1 : m->value.to_double();
}

}  // namespace faultline::scenario
