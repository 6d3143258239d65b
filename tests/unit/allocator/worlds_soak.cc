// SPDX-License-Identifier: Apache-2.0
//
// worlds_soak STEPS [SEED [RELEASE]]: a long random program of every release (or one) in
// the model and on this machine's kernel: the same addresses, relative to the break and to
// the mappings, and the same system calls.  The first event that differs is printed; exit
// status 1.
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/platform/native.h"
#include "tests/unit/allocator/model_bench.h"
#include "tests/unit/allocator/worlds.h"

namespace {

using namespace faultline::alloc;
using worlds::Event;
using worlds::Play;
using worlds::Relative;

constexpr unsigned kChunk = 10'000;  // steps whose events are kept at a time
constexpr std::size_t kRoom = 1 << 18;

std::uint64_t hash(std::uint64_t h, std::string_view text) {
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3;
  return h;
}

// `texts` gets what is digested.
std::uint64_t digest_of(const std::vector<Event>& events, Relative& relative,
                        std::vector<std::string>& texts) {
  texts.clear();
  std::uint64_t h = 0;
  for (const Event& e : events) {
    texts.push_back(relative.text(e));
    h = hash(h, texts.back());
  }
  return h;
}

// One number for each chunk of steps, then 1 if all contents were kept.
struct Digest {
  std::vector<std::uint64_t> chunk;
  bool intact = false;
};

// To a boundary of a huge page: releases that grow the heap to boundaries would show where
// the kernel's randomisation has put the break.
template <typename P>
void align_break(P& p) {
  constexpr std::uint64_t kHuge = 2 << 20;
  const Addr here = p.sbrk(0).value;
  p.sbrk(static_cast<std::int64_t>(-here & (kHuge - 1)));
}

// With huge pages as on this machine, where the other world is.
modelled::MachineChoice machine_like_this() {
  const auto host = std::make_unique<NativeProcess>();
  const char mode = Native(*host).facts().thp_mode;
  modelled::MachineChoice choice;
  choice.thp = mode == 'a'   ? faultline::kernel::ThpEnabled::kAlways
               : mode == 'm' ? faultline::kernel::ThpEnabled::kMadvise
                             : faultline::kernel::ThpEnabled::kNever;
  return choice;
}

// `texts`: gets the events of the last chunk.
Digest in_model(const ReleaseProfile& release, std::uint64_t seed, std::uint64_t steps,
                std::vector<std::string>& texts) {
  modelled::Machine machine(machine_like_this());
  Digest digest;
  machine.run([&](Model& p) {
    align_break(p);
    SysLog log(kRoom);
    std::vector<Event> events;
    Play play(p, release, seed, log, events);
    Relative relative;
    for (std::uint64_t done = 0; done < steps; done += kChunk) {
      play.run(kChunk);
      digest.chunk.push_back(digest_of(events, relative, texts));
      play.forget();
    }
    digest.intact = play.spoilt() == 0 && play.check().empty();
  });
  return digest;
}

bool write_all(int to, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes != 0) {
    const ssize_t wrote = write(to, at, bytes);
    if (wrote <= 0) return false;
    at += wrote;
    bytes -= static_cast<std::size_t>(wrote);
  }
  return true;
}

bool read_all(int from, void* data, std::size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes != 0) {
    const ssize_t got = read(from, at, bytes);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

// The child's break is its own; it allocates nothing but what the program does, and sends
// the events of each chunk.
[[noreturn]] void play_natively(const ReleaseProfile& release, std::uint64_t seed,
                                std::uint64_t steps, int to) {
  const auto process = std::make_unique<NativeProcess>();
  Native p(*process);
  SysLog log(kRoom);
  std::vector<Event> events;
  events.reserve(kRoom);
  const auto play = std::make_unique<Play<Native>>(p, release, seed, log, events);
  align_break(p);
  for (std::uint64_t done = 0; done < steps; done += kChunk) {
    play->run(kChunk);
    const std::uint64_t count = events.size();
    if (!write_all(to, &count, sizeof count) ||
        !write_all(to, events.data(), count * sizeof(Event)))
      _exit(2);
    play->forget();
  }
  _exit(play->spoilt() == 0 ? 0 : 3);
}

// Answers the number of the first chunk that differs, or the number of chunks; `texts` gets
// the events of the chunk that was looked at last.
std::size_t compare_natively(const ReleaseProfile& release, std::uint64_t seed,
                             std::uint64_t steps, const Digest& model, bool& intact,
                             std::vector<std::string>& texts) {
  int ends[2];
  if (pipe(ends) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    play_natively(release, seed, steps, ends[1]);
  }
  close(ends[1]);
  Relative relative;
  std::vector<Event> events;
  std::size_t same = 0;
  for (std::uint64_t count = 0; same < model.chunk.size(); ++same) {
    if (!read_all(ends[0], &count, sizeof count)) break;
    events.resize(count);
    if (!read_all(ends[0], events.data(), count * sizeof(Event))) break;
    if (digest_of(events, relative, texts) != model.chunk[same]) break;
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  intact = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return same;
}

void print_first_difference(const std::vector<std::string>& native,
                            const std::vector<std::string>& model) {
  for (std::size_t i = 0; i < native.size() || i < model.size(); ++i) {
    const std::string ours = i < model.size() ? model[i] : "nothing";
    const std::string theirs = i < native.size() ? native[i] : "nothing";
    if (ours == theirs) continue;
    std::printf("  event %zu of these: %s in the model, %s on this machine\n", i,
                ours.c_str(), theirs.c_str());
    return;
  }
}

bool soak(const ReleaseProfile& release, std::uint64_t seed, std::uint64_t steps) {
  std::vector<std::string> texts, model_texts;
  const Digest model = in_model(release, seed, steps, model_texts);
  bool intact = true;
  const std::size_t same = compare_natively(release, seed, steps, model, intact, texts);
  const std::string name(release.name);
  if (same < model.chunk.size()) {
    std::printf("%-22s differs between steps %zu and %zu of seed %llu\n", name.c_str(),
                same * kChunk, (same + 1) * kChunk, static_cast<unsigned long long>(seed));
    in_model(release, seed, (same + 1) * kChunk, model_texts);
    print_first_difference(texts, model_texts);
    return false;
  }
  if (!intact || !model.intact) std::printf("%-22s contents were lost\n", name.c_str());
  if (intact && model.intact)
    std::printf("%-22s %zu steps: same addresses, contents and system calls\n",
                name.c_str(), same * kChunk);
  return intact && model.intact;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t numbers[2] = {20'000, 1};
  for (int i = 1; i < argc && i < 3; ++i) {
    const char* const end = argv[i] + std::strlen(argv[i]);
    if (std::from_chars(argv[i], end, numbers[i - 1]).ptr != end || numbers[0] == 0) {
      std::fputs("usage: worlds_soak STEPS [SEED [RELEASE]]\n", stderr);
      return 2;
    }
  }
  if (argc > 3 && find_release(argv[3]) == nullptr) {
    std::fprintf(stderr, "worlds_soak: no release '%s'\n", argv[3]);
    return 2;
  }
  if (sysconf(_SC_PAGESIZE) != 4096) {
    std::puts("worlds: skipped: the model's machine has pages of 4 KiB, this one has not");
    return 0;
  }
  bool all_same = true;
  for (const ReleaseProfile& release : releases())
    if (argc <= 3 || release.name == argv[3])
      all_same &= soak(release, numbers[1], numbers[0]);
  return all_same ? 0 : 1;
}
