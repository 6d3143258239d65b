// SPDX-License-Identifier: Apache-2.0
#include "scenarios/report/json.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace faultline::report {
namespace {

using Json = nlohmann::ordered_json;
using scenario::Decimal;
using scenario::Result;
using scenario::Role;
using scenario::VariantResult;

// Stacks below this share (in millionths) are left out: they are in the folded output.
constexpr std::int64_t kLeastShare = 100;

// Seconds with nine decimals: what a double prints exactly for any run of less than 11
// days.
Json number(Decimal d) {
  const Decimal r = d.rounded(9);
  return r.decimals() == 0 ? Json(r.units()) : Json(r.to_double());
}

Json seconds(Duration d) {
  return number(Decimal::seconds(d));
}

Json published_of(const VariantResult& v) {
  Json all = Json::array();
  for (const scenario::Published& p : v.published) {
    Json one{{"metric", p.metric},
             {"theirs", number(p.theirs)},
             {"ours", number(p.ours)},
             {"ratio", number(p.ratio)},
             {"role", p.role == Role::kCalibration ? "calibration" : "prediction"}};
    if (!p.source.empty()) one["source"] = p.source;
    all.push_back(std::move(one));
  }
  return all;
}

Json top_of(const VariantResult& v) {
  Json all = Json::array();
  for (const scenario::StackShare& s : v.top) {
    if (compare(s.share, Decimal(kLeastShare, 6)) < 0 && !all.empty()) break;
    all.push_back(
        {{"stack", s.stack}, {"seconds", seconds(s.self)}, {"share", number(s.share)}});
  }
  return all;
}

Json locks_of(const VariantResult& v) {
  Json all = Json::array();
  for (const scenario::LockUse& l : v.locks)
    all.push_back({{"name", l.name},
                   {"acquired", l.acquired},
                   {"contended", l.contended},
                   {"wait_s", seconds(l.wait)},
                   {"hold_s", seconds(l.hold)}});
  return all;
}

Json variant(const VariantResult& v) {
  Json metrics = Json::object();
  for (const scenario::Metric& m : v.metrics) metrics[m.name] = number(m.value);
  Json expectations = Json::array();
  for (const scenario::Expectation& e : v.expectations)
    expectations.push_back(
        {{"text", e.text}, {"passed", e.passed}, {"actual", number(e.actual)}});
  Json costs = Json::array();
  for (const scenario::CostNote& c : v.cost_notes)
    costs.push_back({{"cost", c.cost},
                     {"value", c.value},
                     {"confidence", c.confidence},
                     {"source", c.source}});
  Json out{{"name", v.name},
           {"metrics", metrics},
           {"published", published_of(v)},
           {"top", top_of(v)},
           {"locks", locks_of(v)},
           {"title", v.title},
           {"expectations", expectations},
           {"explanation", v.explanation},
           {"costs", costs}};
  out["tlb"] = {{"modelled", v.tlb_modelled}};
  if (v.tlb_modelled && !v.tlb_note.empty()) out["tlb"]["events"] = v.tlb_note;
  if (!v.notes.empty()) out["notes"] = v.notes;
  if (!v.failure.empty()) out["failure"] = v.failure;
  return out;
}

std::string csv_field(const std::string& s) {
  if (s.find_first_of(",\"\n") == std::string::npos) return s;
  std::string out = "\"";
  for (const char c : s) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

// Names of all variants' metrics, in order of first appearance.
std::vector<std::string> metric_columns(const Result& result) {
  std::vector<std::string> names;
  for (const VariantResult& v : result.variants)
    for (const scenario::Metric& m : v.metrics)
      if (std::find(names.begin(), names.end(), m.name) == names.end())
        names.push_back(m.name);
  return names;
}

}  // namespace

std::string json(const Result& result) {
  Json variants = Json::array();
  for (const VariantResult& v : result.variants) variants.push_back(variant(v));
  const Json out{{"scenario", result.scenario},   {"seed", result.seed},
                 {"variants", variants},          {"title", result.title},
                 {"source", result.source},       {"verdict", result.verdict},
                 {"schema", "faultline.result/1"}};
  return out.dump(2) + "\n";
}

std::string csv(const Result& result) {
  const std::vector<std::string> names = metric_columns(result);
  std::string out = "scenario,seed,variant";
  for (const std::string& n : names) out += "," + csv_field(n);
  out += "\n";
  for (const VariantResult& v : result.variants) {
    out += csv_field(result.scenario) + "," + std::to_string(result.seed) + "," +
           csv_field(v.name);
    for (const std::string& n : names) {
      const scenario::Metric* m = v.metric(n);
      out += "," + (m == nullptr ? std::string() : m->value.rounded(9).text());
    }
    out += "\n";
  }
  return out;
}

std::string folded(const VariantResult& v) {
  std::string out;
  for (const scenario::StackShare& s : v.top) {
    const std::int64_t ns = s.self.count_ps() / 1000;
    if (ns == 0) continue;
    std::size_t frame = 0;
    for (std::size_t at = 0; at <= s.stack.size(); ++frame) {
      const std::size_t end = std::min(s.stack.find(';', at), s.stack.size());
      if (frame > 0) out += ";";
      out += s.stack.substr(at, end - at);
      if (frame >= s.user_frames) out += "_[k]";
      at = end + 1;
    }
    out += " " + std::to_string(ns) + "\n";
  }
  return out;
}

}  // namespace faultline::report
