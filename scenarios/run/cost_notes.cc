// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/cost_notes.h"

#include "arch_profiles/units.h"
#include "scenarios/run/decimal.h"

namespace faultline::scenario {
namespace {

CostNote note(const arch::Profile& profile, const char* name, std::uint64_t value,
              Dimension dimension) {
  CostNote n{name, format_quantity(value, dimension), "default", ""};
  const auto source = profile.cost_sources.find(name);
  if (source != profile.cost_sources.end()) {
    n.confidence = arch::confidence_name(source->second.confidence);
    n.source = source->second.source;
  }
  return n;
}

}  // namespace

std::vector<CostNote> cost_notes(const arch::Profile& profile) {
  std::vector<CostNote> all;
#define X(name, text)                                                           \
  all.push_back(note(profile, #name,                                            \
                     static_cast<std::uint64_t>(profile.costs.name.count_ps()), \
                     Dimension::kTime));
  FAULTLINE_TIME_COSTS(X)
#undef X
#define X(name, text)                                                             \
  if (profile.cost_sources.contains(#name))                                       \
    all.push_back(note(profile, #name,                                            \
                       static_cast<std::uint64_t>(profile.costs.name.count_ps()), \
                       Dimension::kTime));
  FAULTLINE_OPTIONAL_COSTS(X)
#undef X
#define X(name, text)                       \
  if (profile.cost_sources.contains(#name)) \
    all.push_back(note(profile, #name, profile.costs.name, Dimension::kRate));
  FAULTLINE_OPTIONAL_RATES(X)
#undef X
#define X(name, text) \
  all.push_back(note(profile, #name, profile.costs.name, Dimension::kRate));
  FAULTLINE_RATE_COSTS(X)
#undef X
  if (profile.cost_sources.contains("smt_gain")) {
    CostNote gain = note(profile, "smt_gain", 0, Dimension::kRate);
    gain.value = Decimal(profile.smt_gain, 3).text();
    all.push_back(std::move(gain));
  }
  for (const arch::IdleState& state : profile.idle_states)
    all.push_back({"idle_state." + state.name, format_quantity(state.exit_latency),
                   "published", state.source});
  return all;
}

}  // namespace faultline::scenario
