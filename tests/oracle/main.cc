// SPDX-License-Identifier: Apache-2.0
//
// The oracle: random mm programs on the live kernel and on the model.
//   oracle [--ops N] [--seed S] [--length L] [--self] [--stop-after K]   random programs
//   oracle --replay FILE...                                              given ones
// Exit status: 0 equal (or no preset for this kernel: says "skipped"), 1 divergence, 2 bad
// input.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/oracle/compare.h"

namespace faultline::oracle {
namespace {

struct Options {
  std::uint64_t ops = 50'000, seed = 1;
  unsigned length = 150, stop_after = 1, look_every = 16;
  bool self = false;  // the live kernel against itself: is the reference repeatable?
  bool fork = true, huge = true, basic = false, system = false, counters = false;
  std::vector<std::string> replay, without;
};

[[noreturn]] void usage(const std::string& why) {
  fmt::print(stderr,
             "oracle: {}\n  options: --ops N --seed S --length L --look-every N "
             "--stop-after K --self "
             "--no-fork --no-huge --basic --system --counters --without NAME,... --replay "
             "FILE...\n",
             why);
  std::exit(2);
}

std::vector<std::string> names(const std::string& list) {
  std::vector<std::string> out;
  std::istringstream in(list);
  for (std::string name; std::getline(in, name, ',');) {
    if (!known_name(name))
      usage(fmt::format("--without: no call, advice or flag is called \"{}\"", name));
    out.push_back(name);
  }
  return out;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto number = [&]() -> std::uint64_t {
      if (++i >= argc) usage(a + " needs a number");
      char* end = nullptr;
      const std::uint64_t n = std::strtoull(argv[i], &end, 10);
      if (*end != '\0' || end == argv[i])
        usage(fmt::format("{}: \"{}\" is not a number", a, argv[i]));
      return n;
    };
    if (a == "--ops")
      o.ops = number();
    else if (a == "--seed")
      o.seed = number();
    else if (a == "--length")
      o.length = static_cast<unsigned>(number());
    else if (a == "--look-every")
      o.look_every = static_cast<unsigned>(number());
    else if (a == "--stop-after")
      o.stop_after = static_cast<unsigned>(number());
    else if (a == "--self")
      o.self = true;
    else if (a == "--no-fork")
      o.fork = false;
    else if (a == "--no-huge")
      o.huge = false;
    else if (a == "--system")
      o.system = true;
    else if (a == "--counters")
      o.counters = true;
    else if (a == "--basic")
      o.basic = true;
    else if (a == "--without")
      o.without = names(++i < argc ? argv[i] : "");
    else if (a == "--replay")
      while (i + 1 < argc) o.replay.emplace_back(argv[++i]);
    else
      usage(fmt::format("unknown option \"{}\"", a));
  }
  if (o.length == 0 || o.look_every == 0) usage("--length and --look-every are at least 1");
  return o;
}

class Oracle {
 public:
  Oracle(Options options, const HostSettings& host) : options_(std::move(options)) {
    use(host);
  }
  void use(const HostSettings& host) {
    tested_ =
        options_.self ? MakeSide(live_side) : MakeSide([host] { return model_side(host); });
  }

  [[nodiscard]] CompareOptions how(unsigned look_every) const {
    return {.look_every = look_every, .counters = options_.counters};
  }

  // True if the sides agreed.
  bool check(const Program& program, const std::string& name) {
    const auto once = [&] {
      const auto a = live_side();
      const auto b = tested_();
      return compare(program, *a, *b, how(options_.look_every));
    };
    auto d = once();
    if (!d) return true;
    // khugepaged or reclaim may have come between: a real divergence shows itself again.
    for (int again = 0; again < 2; ++again)
      if (!once()) {
        ++unrepeatable_;
        fmt::print("{}: diverged once and then not again: {}\n", name, d->what);
        return true;
      }
    ++divergences_;
    fmt::print("{}: diverges at operation {}: {}\n", name, d->at, d->what);
    // Looking after each operation gives the shortest program; if that hides it, look only
    // at the end.
    for (const unsigned look_every : {1U, ~0U}) {
      const CompareOptions options = how(look_every);
      const Program small = shrink(program, live_side, tested_, options);
      const auto a = live_side();
      const auto b = tested_();
      const auto s = compare(small, *a, *b, options);
      if (!s && look_every == 1) continue;
      fmt::print("smallest program found ({} operations, looking {}):\n{}# {}\n\n",
                 small.size(), look_every == 1 ? "after each" : "at the end",
                 to_text(small), s ? s->what : "does not diverge any more");
      break;
    }
    return false;
  }

  // `ops` operations from `seed` on; answers the next seed.
  std::uint64_t some(std::uint64_t seed, std::uint64_t ops, const std::string& where) {
    const Mix mix{.fork = options_.fork,
                  .basic = options_.basic,
                  .huge = options_.huge,
                  .without = options_.without};
    for (std::uint64_t done = 0; done < ops && divergences_ < options_.stop_after; ++seed) {
      check(generate(seed, options_.length, mix), fmt::format("seed {}{}", seed, where));
      done += options_.length;
      done_ += options_.length;
    }
    return seed;
  }

  int random() {
    if (options_.system)
      all_settings();
    else
      some(options_.seed, options_.ops, "");
    fmt::print("oracle: {} operations, {} divergences, {} not repeatable\n", done_,
               divergences_, unrepeatable_);
    return divergences_ == 0 ? 0 : 1;
  }

  // Each THP mode with and without a hugetlb pool, an equal share of the operations each.
  void all_settings() {
    SystemSettings settings;
    std::uint64_t seed = options_.seed;
    for (const char* mode : {"always", "madvise", "never"})
      for (const std::uint64_t pool : {0U, 6U}) {
        if (!settings.change(mode, pool))
          usage("--system: these settings can't be changed here");
        use(read_host());
        seed = some(seed, options_.ops / 6,
                    fmt::format(", THP {}, {} hugetlb pages", mode, pool));
      }
  }

  int replay(const std::vector<Program>& programs) {
    options_.look_every = 1;
    for (std::size_t i = 0; i < programs.size(); ++i)
      check(programs[i], options_.replay[i]);
    fmt::print("oracle: {} programs replayed, {} divergences, {} not repeatable\n",
               programs.size(), divergences_, unrepeatable_);
    return divergences_ == 0 ? 0 : 1;
  }

 private:
  Options options_;
  MakeSide tested_;
  std::uint64_t done_ = 0;
  unsigned divergences_ = 0, unrepeatable_ = 0;
};

std::vector<Program> read_programs(const std::vector<std::string>& files) {
  std::vector<Program> programs;
  for (const std::string& file : files) {
    std::ifstream in(file);
    if (!in) usage(fmt::format("cannot read \"{}\"", file));
    const std::string text{std::istreambuf_iterator<char>(in),
                           std::istreambuf_iterator<char>()};
    programs.push_back(parse_program(text, file));
  }
  return programs;
}

}  // namespace
}  // namespace faultline::oracle

int main(int argc, char** argv) {
  using namespace faultline::oracle;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a run that is stopped has said what it found
  Options options = parse(argc, argv);
  try {
    const std::vector<Program> programs = read_programs(options.replay);
    const HostSettings host = read_host();
    if (host.preset.empty() && !options.self) {
      fmt::print("oracle: skipped: this kernel has no preset\n");
      return 0;
    }
    if (!host.anon_names) options.without.emplace_back("name");
    Oracle oracle(options, host);
    return programs.empty() ? oracle.random() : oracle.replay(programs);
  } catch (const ProgramError& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  }
}
