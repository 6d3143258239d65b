// SPDX-License-Identifier: Apache-2.0
//
// A scenario file to a Scenario: settings over settings for each variant, then the numbers
// and conditions that go with it, then what only all variants together can tell.
#include <algorithm>
#include <utility>

#include "scenarios/run/load_settings.h"
#include "scenarios/run/metrics.h"
#include "scenarios/run/scenario.h"

namespace faultline::scenario {
namespace {

const std::vector<std::string> kTopKeys = {
    "about",     "allocator", "columns", "expect", "kernel", "machine", "pressure",
    "processes", "published", "seed",    "source", "title",  "variant", "workload"};
const std::vector<std::string> kVariantKeys = {
    "allocator", "expect",    "kernel", "machine", "name",  "pressure",
    "processes", "published", "seed",   "set",     "title", "workload"};
const std::vector<std::string> kPublishedKeys = {"metric", "role", "source", "value",
                                                 "variant"};

std::string text_or(const Node& table, std::string_view key, std::string fallback) {
  const Node* node = table.find(key);
  return node == nullptr ? std::move(fallback) : as_text(*node, key);
}

const std::vector<Node>& list_of(const Node& table, std::string_view key) {
  static const std::vector<Node> none;
  const Node* node = table.find(key);
  return node == nullptr ? none : as_list(*node, key);
}

std::string stem(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  std::string name = slash == std::string::npos ? file : file.substr(slash + 1);
  if (name.ends_with(".toml")) name.resize(name.size() - 5);
  return name;
}

// The entries of `table` that are settings.
Node settings_of(const Node& table) {
  Node out;
  out.place = table.place;
  const auto& keys = setting_keys();
  for (const Entry& entry : table.entries)
    if (std::find(keys.begin(), keys.end(), entry.key) != keys.end())
      out.entries.push_back(entry);
  return out;
}

// `set = {"kernel.locks.rwsem" = "5.3"}`, as one table after the other.
void overlay_set(Node& settings, const Node& set) {
  for (const Entry& entry : as_table(set, "set").entries) {
    const Node tables = nested(entry.key, entry.key_place, entry.value);
    check_keys(tables, "set", setting_keys());
    overlay_settings(settings, tables);
  }
}

void overlay_overrides(Node& settings, const std::vector<Override>& overrides) {
  for (const Override& o : overrides) {
    const Place place{"--set " + o.key + "=" + o.value, 0, 0};
    const Node tables = nested(o.key, place, parse_word(o.value, place));
    check_keys(tables, "--set", setting_keys());
    overlay_settings(settings, tables);
  }
}

PublishedNumber read_published(const Node& node, const std::vector<std::string>& metrics,
                               const std::string& default_source) {
  check_keys(as_table(node, "published"), "[[published]]", kPublishedKeys);
  PublishedNumber out;
  const Node& metric = require(node, "metric", "[[published]]");
  out.metric = metrics[as_choice(metric, "published.metric", metrics, "metric")];
  const Node& value = require(node, "value", "[[published]]");
  (void)as_number(value, "published.value");
  const auto number = Decimal::parse(value.text);
  if (!number)
    throw InputError({value.place,
                      "published.value",
                      "published.value: " + value.text + " has too many digits",
                      {},
                      {}});
  out.value = *number;
  static const std::vector<std::string> roles = {"prediction", "calibration"};
  out.role = static_cast<Role>(
      as_choice(require(node, "role", "[[published]]"), "published.role", roles, "role"));
  out.source = text_or(node, "source", default_source);
  return out;
}

void check_variant_name(const Node& node, const std::string& name,
                        const std::vector<RunSpec>& others) {
  const bool good =
      !name.empty() && name.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                           "0123456789._-") == std::string::npos;
  if (!good)
    throw InputError(
        {node.place,
         "variant.name",
         "variant.name: \"" + name + "\" is not a name of letters, digits, . _ -",
         {},
         {}});
  for (const RunSpec& other : others)
    if (other.name == name)
      throw InputError({node.place,
                        "variant.name",
                        "variant.name: there are two variants \"" + name + "\"",
                        {},
                        {}});
}

class Loader {
 public:
  Loader(const Node& file, const std::vector<Override>& overrides, Scenario& out)
      : file_(file), overrides_(overrides), out_(out) {}

  void load() {
    check_keys(file_, "the scenario", kTopKeys);
    out_.title = as_text(require(file_, "title", "the scenario"), "title");
    out_.about = text_or(file_, "about", "");
    out_.source = text_or(file_, "source", "");
    const auto& variants = list_of(file_, "variant");
    for (const Node& variant : variants) add_variant(variant);
    if (variants.empty()) add_spec("default", out_.title, settings_of(file_));
    out_.seed = out_.variants.front().seed;
    add_columns();
    add_shared_published();
    for (std::size_t i = 0; i < variants.size(); ++i)
      if (const Node* expect = variants[i].find("expect"))
        for (const Entry& entry : as_table(*expect, "expect").entries)
          out_.variants[i].expect.push_back(
              checked(entry, "[variant.expect]", &out_.variants[i]));
    add_shared_expect();
  }

 private:
  void add_variant(const Node& variant) {
    check_keys(as_table(variant, "variant"), "[[variant]]", kVariantKeys);
    const Node& name_node = require(variant, "name", "[[variant]]");
    const std::string name = as_text(name_node, "variant.name");
    check_variant_name(name_node, name, out_.variants);
    Node settings = settings_of(file_);
    overlay_settings(settings, settings_of(variant));
    if (const Node* set = variant.find("set")) overlay_set(settings, *set);
    add_spec(name, text_or(variant, "title", name), std::move(settings));
    for (const Node& number : list_of(variant, "published")) {
      refuse_variant_key(number);
      publish(out_.variants.back(), number);
    }
  }

  void add_spec(std::string name, std::string title, Node settings) {
    overlay_overrides(settings, overrides_);
    Machine machine = read_machine(settings);
    AllocatorSpec allocator = read_allocator(settings, machine.profile);
    const Node* seed = settings.find("seed");
    out_.variants.push_back(
        {.name = std::move(name),
         .title = std::move(title),
         .machine = std::move(machine.name),
         .profile = std::move(machine.profile),
         .kernel = read_kernel(settings),
         .allocator = std::move(allocator),
         .workload = read_workload(settings),
         .seed =
             seed == nullptr ? 1 : static_cast<std::uint64_t>(as_integer(*seed, "seed", 0)),
         .processes = read_processes(settings),
         .pressure = read_pressure(settings),
         .published = {},
         .expect = {}});
    check_kernel(settings, out_.variants.back().kernel, out_.variants.back().profile);
    check_fork(settings, out_.variants.back().allocator, out_.variants.back().workload);
    check_policy(settings, out_.variants.back().workload, out_.variants.back().kernel);
    check_give_back(settings, out_.variants.back().allocator, out_.variants.back().kernel);
  }

  static void refuse_variant_key(const Node& number) {
    if (const Entry* entry = as_table(number, "published").find_entry("variant"))
      throw InputError({entry->key_place,
                        "published.variant",
                        "[[variant.published]] already belongs to its variant",
                        {},
                        {}});
  }

  void publish(RunSpec& spec, const Node& number) {
    spec.published.push_back(read_published(
        number, metric_names(spec.workload.decl(), spec.profile), out_.source));
    const std::string& metric = spec.published.back().metric;
    for (std::size_t i = 0; i + 1 < spec.published.size(); ++i)
      if (spec.published[i].metric == metric)
        throw InputError({number.place,
                          "published.metric",
                          "two published numbers for " + metric + " of " + spec.name,
                          {},
                          {}});
  }

  void add_columns() {
    const RunSpec& first = out_.variants.front();
    const Node* const columns = file_.find("columns");
    if (columns == nullptr) {
      if (const workloads::CountDecl* const rate = first.workload.decl().rate())
        out_.columns = {std::string(rate->name), "thp_fault_alloc", "max_rss_kib"};
      return;
    }
    out_.columns.clear();
    const auto known = metric_names(first.workload.decl(), first.profile);
    for (const Node& name : as_list(*columns, "columns"))
      out_.columns.push_back(known[as_choice(name, "columns", known, "metric")]);
  }

  // The scenario's own [[published]], each of which names its variant.
  void add_shared_published() {
    const bool named = file_.find("variant") != nullptr;
    for (const Node& number : list_of(file_, "published")) {
      const Node* variant = as_table(number, "published").find("variant");
      if (named) variant = &require(number, "variant", "[[published]]");
      const std::size_t index =
          variant == nullptr ? 0
                             : as_choice(*variant, "published.variant", names(), "variant");
      publish(out_.variants[index], number);
    }
  }

  // A condition that names the variant of each term is checked once, with the first of
  // them; any other is checked for every variant.
  void add_shared_expect() {
    const Node* expect = file_.find("expect");
    if (expect == nullptr) return;
    for (const Entry& entry : as_table(*expect, "expect").entries) {
      const Condition condition = checked(entry, "[expect]", nullptr);
      if (condition.names_all_variants()) {
        for (RunSpec& spec : out_.variants)
          if (spec.name == condition.variants().front()) spec.expect.push_back(condition);
      } else {
        for (RunSpec& spec : out_.variants)
          spec.expect.push_back(checked(entry, "[expect]", &spec));
      }
    }
  }

  // `own`: the variant that unqualified terms mean; null if none is at hand yet.
  Condition checked(const Entry& entry, std::string_view where, const RunSpec* own) const {
    Condition condition = parse_condition(entry, where);
    for (const Expression* e : {&condition.subject, &condition.low, &condition.high})
      for (const Term& term : e->terms)
        check_term(term, e == &condition.subject ? entry.key_place : entry.value.place,
                   entry, own);
    return condition;
  }

  void check_term(const Term& term, const Place& place, const Entry& entry,
                  const RunSpec* own) const {
    const RunSpec* spec = own;
    if (!term.variant.empty()) {
      spec = nullptr;
      for (const RunSpec& v : out_.variants)
        if (v.name == term.variant) spec = &v;
      if (spec == nullptr)
        throw InputError({place, entry.key, "there is no variant \"" + term.variant + "\"",
                          did_you_mean(term.variant, names()), names()});
    }
    if (spec == nullptr) return;
    if (term.kind == Term::Kind::kMetric) {
      const auto known = metric_names(spec->workload.decl(), spec->profile);
      if (std::find(known.begin(), known.end(), term.name) == known.end())
        throw InputError({place, entry.key, "there is no metric \"" + term.name + "\"",
                          did_you_mean(term.name, known), known});
    }
    if (term.kind == Term::Kind::kPublished) {
      const bool found =
          std::any_of(spec->published.begin(), spec->published.end(),
                      [&](const PublishedNumber& p) { return p.metric == term.name; });
      if (!found)
        throw InputError({place,
                          entry.key,
                          "nothing is published about " + term.name + " of " + spec->name,
                          {},
                          {}});
    }
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const RunSpec& spec : out_.variants) out.push_back(spec.name);
    return out;
  }

  const Node& file_;
  const std::vector<Override>& overrides_;
  Scenario& out_;
};

}  // namespace

Scenario load_scenario(std::string_view text, const std::string& file,
                       const std::vector<Override>& overrides) {
  Scenario scenario;
  scenario.file = file;
  scenario.name = stem(file);
  const Node tree = parse_toml(text, file);
  Loader(tree, overrides, scenario).load();
  return scenario;
}

Scenario load_scenario_file(const std::string& path,
                            const std::vector<Override>& overrides) {
  return load_scenario(read_file(path, {path, 0, 0}), path, overrides);
}

Override parse_override(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos)
    throw InputError({{"--set " + std::string(text), 0, 0},
                      {},
                      "it needs KEY=VALUE",
                      "as kernel.transparent_hugepage.enabled=never",
                      {}});
  return {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

}  // namespace faultline::scenario
