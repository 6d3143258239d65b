// SPDX-License-Identifier: Apache-2.0
#include "scenarios/cli/options.h"

#include <boost/program_options.hpp>
#include <sstream>

#include "arch_profiles/input_error.h"

namespace faultline::cli {
namespace {

namespace po = boost::program_options;

constexpr const char* kCommand = "faultline run";

po::options_description visible_options() {
  po::options_description d("options");
  const auto texts = [](const char* what) {
    return po::value<std::vector<std::string>>()->value_name(what);
  };
  const auto text = [](const char* what) {
    return po::value<std::string>()->value_name(what);
  };
  d.add_options()("variant", texts("NAME"), "run this variant alone (may be repeated)");
  d.add_options()(
      "set", texts("KEY=VALUE"),
      "change a setting of all variants, as kernel.locks.rwsem=5.3 (may be repeated)");
  d.add_options()("seed", text("N"), "seed of the run");
  d.add_options()("json", text("FILE"), "write the result as JSON; - is stdout");
  d.add_options()("csv", text("FILE"), "write the metrics as CSV; - is stdout");
  d.add_options()(
      "folded", text("DIR"),
      "write DIR/VARIANT.folded: stacks for flame graphs, in virtual nanoseconds");
  d.add_options()(
      "proc", text("DIR"),
      "write DIR/VARIANT/proc and .../sys: maps, smaps, vmstat and so on at the end, as "
      "the kernel prints them");
  d.add_options()("quiet", "no report on stdout");
  d.add_options()("jobs,j", text("N"),
                  "run N variants at once; results don't depend on it");
  d.add_options()("help", "this text");
  return d;
}

[[noreturn]] void complain(std::string message, std::string hint = "",
                           std::vector<std::string> accepted = {}) {
  throw InputError(
      {{kCommand, 0, 0}, "", std::move(message), std::move(hint), std::move(accepted)});
}

[[noreturn]] void complain_unknown(const std::string& option,
                                   const po::options_description& d) {
  std::vector<std::string> names;
  for (const auto& known : d.options()) names.push_back("--" + known->long_name());
  const std::string word = option.starts_with("--") ? option : "--" + option;
  complain("unknown option \"" + option + "\"", did_you_mean(word, names), names);
}

po::variables_map parse(const std::vector<std::string>& args) {
  const po::options_description visible = visible_options();
  po::options_description everything;
  everything.add(visible).add_options()("file", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("file", -1);
  namespace style = po::command_line_style;
  po::variables_map values;
  try {
    po::store(po::command_line_parser(args)
                  .options(everything)
                  .positional(positional)
                  .style(style::default_style & ~style::allow_guessing)
                  .run(),
              values);
    po::notify(values);
  } catch (const po::unknown_option& e) {
    complain_unknown(e.get_option_name(), visible);
  } catch (const po::error& e) {
    complain(e.what(), "faultline run --help lists the options");
  }
  return values;
}

std::vector<std::string> texts_of(const po::variables_map& values, const char* name) {
  return values.count(name) == 0 ? std::vector<std::string>{}
                                 : values[name].as<std::vector<std::string>>();
}

std::string text_of(const po::variables_map& values, const char* name) {
  if (values.count(name) == 0) return "";
  std::string text = values[name].as<std::string>();
  if (text.empty()) complain("option \"--" + std::string(name) + "\" needs a value");
  return text;
}

// Digits alone: boost would take "-1" for the largest number there is.
std::uint64_t number_of(const po::variables_map& values, const char* name,
                        std::uint64_t most) {
  const std::string text = text_of(values, name);
  std::uint64_t n = 0;
  bool good = !text.empty() && text.size() < 20;
  for (const char c : text) {
    if (c < '0' || c > '9') good = false;
    n = n * 10 + static_cast<std::uint64_t>(c - '0');
  }
  if (!good || n > most)
    complain("\"" + text + "\" is no value for --" + name,
             "accepted: a whole number up to " + std::to_string(most));
  return n;
}

}  // namespace

RunOptions parse_run_options(const std::vector<std::string>& args) {
  const po::variables_map values = parse(args);
  RunOptions o;
  o.help = values.count("help") != 0;
  if (o.help) return o;
  const std::vector<std::string> files = texts_of(values, "file");
  if (files.empty())
    complain("which scenario? give a file or a name",
             "faultline list scenarios shows the names");
  if (files.size() > 1)
    complain("one scenario at a time: \"" + files[1] + "\" is one too many");
  o.file = files[0];
  o.variants = texts_of(values, "variant");
  for (const std::string& s : texts_of(values, "set"))
    o.overrides.push_back(scenario::parse_override(s));
  if (values.count("seed") != 0) o.seed = number_of(values, "seed", INT64_MAX);
  o.json = text_of(values, "json");
  o.csv = text_of(values, "csv");
  o.folded = text_of(values, "folded");
  o.proc = text_of(values, "proc");
  if (o.json == "-" && o.csv == "-")
    complain("only one of --json and --csv can go to stdout");
  o.quiet = values.count("quiet") != 0;
  if (values.count("jobs") != 0)
    o.jobs = static_cast<unsigned>(number_of(values, "jobs", 1024));
  if (o.jobs == 0) complain("--jobs must be at least 1");
  return o;
}

std::string run_help() {
  std::ostringstream out;
  out << "usage: faultline run FILE [options]\n\n"
         "Runs a scenario and prints what came out and why.  FILE is a path or the name of "
         "a\n"
         "scenario of the library (faultline list scenarios).  Exit status: 0, 1 if an "
         "[expect]\n"
         "condition failed, 2 if the input was wrong.\n\n"
      << visible_options();
  return out.str();
}

}  // namespace faultline::cli
