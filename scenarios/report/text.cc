// SPDX-License-Identifier: Apache-2.0
#include "scenarios/report/text.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "scenarios/report/table.h"
#include "scenarios/run/phrase.h"

namespace faultline::report {
namespace {

using scenario::Decimal;
using scenario::Metric;
using scenario::Result;
using scenario::Role;
using scenario::VariantResult;

constexpr std::size_t kWidth = 110;

struct TableMetric {
  std::string metric;
  std::string title;
};
const TableMetric kTableMetrics[] = {
    {"elapsed_s", "elapsed s"},
    {"user_s", "user s"},
    {"sys_s", "sys s"},
    {"sys_per_elapsed", "sys/elapsed"},
    {"minor-faults", "minor-faults"},
};

const TableMetric kTlbMetrics[] = {
    {"dTLB-loads", "dTLB-loads"},        {"dTLB-load-misses", "dTLB-load-misses"},
    {"tlb_l1_misses", "L1 TLB misses"},  {"tlb_walks", "page walks"},
    {"tlb_vain_walks", "walks in vain"}, {"tlb_walk_s", "walk s"},
};

std::string cell(const VariantResult& v, const std::string& metric) {
  const Metric* m = v.metric(metric);
  return m == nullptr ? "-" : m->value.rounded(3).grouped();
}

std::string heading(const Result& r) {
  std::string out = r.title.empty() ? r.scenario : r.title;
  out += "\n";
  if (!r.source.empty()) out += wrap(r.source, "source: ", kWidth);
  return out;
}

std::string table_of(const Result& r, std::span<const TableMetric> metrics) {
  std::vector<Table::Column> columns{{"variant", Table::Align::kLeft}};
  for (const TableMetric& m : metrics) columns.push_back({m.title, Table::Align::kRight});
  Table table(std::move(columns));
  for (const VariantResult& v : r.variants) {
    std::vector<std::string> row{v.name};
    for (const TableMetric& m : metrics) row.push_back(cell(v, m.metric));
    table.add(std::move(row));
  }
  return table.text();
}

std::string variants_table(const Result& r) {
  std::vector<TableMetric> metrics(std::begin(kTableMetrics), std::end(kTableMetrics));
  for (const std::string& name : r.columns)
    metrics.push_back({name, name == "max_rss_kib" ? "max RSS KiB" : name});
  return table_of(r, metrics);
}

// What the TLBs did, and what the CPU's events count; or that they were left out.
std::string tlb(const Result& r) {
  const auto modelled = [](const VariantResult& v) { return v.tlb_modelled; };
  const auto first = std::ranges::find_if(r.variants, modelled);
  if (first == r.variants.end())
    return "\nTLBs: not modelled (machine.tlb_model = true models them)\n";
  std::string out = "\n" + table_of(r, kTlbMetrics);
  if (!first->tlb_note.empty()) out += wrap(first->tlb_note, "  ", kWidth);
  return out;
}

std::string published_table(const Result& r) {
  Table table({{"published", Table::Align::kLeft},
               {"metric", Table::Align::kLeft},
               {"theirs", Table::Align::kRight},
               {"ours", Table::Align::kRight},
               {"ours/theirs", Table::Align::kRight},
               {"role", Table::Align::kLeft}});
  bool any = false;
  for (const VariantResult& v : r.variants)
    for (const scenario::Published& p : v.published) {
      any = true;
      table.add({v.name, p.metric, scenario::say_value(p.theirs),
                 scenario::say_value(p.ours), p.ratio.rounded(3).text(),
                 p.role == Role::kCalibration ? "calibration" : "prediction"});
    }
  return any ? "\n" + table.text() : "";
}

std::string expectations(const Result& r) {
  std::string failed;
  std::size_t passed = 0, all = 0;
  for (const VariantResult& v : r.variants) {
    if (!v.failure.empty()) failed += wrap(v.failure, "  FAILED " + v.name + ": ", kWidth);
    for (const scenario::Expectation& e : v.expectations) {
      ++all;
      if (e.passed) {
        ++passed;
        continue;
      }
      failed += wrap(e.text + " (it is " + scenario::say_value(e.actual) + ")",
                     "  FAILED " + v.name + ": ", kWidth);
    }
  }
  if (all == 0 && failed.empty()) return "";
  return "\nexpectations: " + std::to_string(passed) + " of " + std::to_string(all) +
         " met\n" + failed;
}

std::string notes(const Result& r) {
  std::string out;
  for (const VariantResult& v : r.variants)
    for (const std::string& note : v.notes)
      out += wrap(note, "  note, " + v.name + ": ", kWidth);
  return out.empty() ? out : "\n" + out;
}

// Why: in full for the first variant, the differences for the others.
std::string explanation(const Result& r) {
  if (r.variants.empty()) return "";
  std::string out = "\nwhy (" + r.variants.front().name + "):\n";
  for (const std::string& s : r.variants.front().explanation)
    out += wrap(s, "  - ", kWidth);
  if (r.verdict.empty()) return out;
  out += "\nwhat the other variants change:\n";
  for (const std::string& s : r.verdict) out += wrap(s, "  - ", kWidth);
  return out;
}

// The costs that are neither measured nor published, by how they were got.
std::string costs(const Result& r) {
  if (r.variants.empty()) return "";
  std::string calibrated, assumed;
  std::size_t n_assumed = 0;
  for (const scenario::CostNote& c : r.variants.front().cost_notes) {
    if (c.confidence == "calibration") {
      calibrated += (calibrated.empty() ? "" : ", ") + c.cost + " = " + c.value;
    } else if (c.confidence == "assumed") {
      assumed += (assumed.empty() ? "" : ", ") + c.cost;
      ++n_assumed;
    }
  }
  std::string out;
  if (!calibrated.empty())
    out += wrap(calibrated, "\nfitted to published numbers: ", kWidth);
  if (n_assumed > 0)
    out += wrap(assumed, out.empty() ? "\nassumed: " : "assumed: ", kWidth);
  return out;
}

}  // namespace

std::string measured_text(const Result& result) {
  return heading(result) + "\n" + variants_table(result) + notes(result) +
         expectations(result);
}

std::string text(const Result& result) {
  return heading(result) + "\n" + variants_table(result) + notes(result) + tlb(result) +
         published_table(result) + expectations(result) + explanation(result) +
         costs(result);
}

}  // namespace faultline::report
