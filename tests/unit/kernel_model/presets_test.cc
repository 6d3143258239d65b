// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/presets/presets.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernel_model/presets/embedded.h"

namespace faultline::kernel {
namespace {

Node word(std::string_view text) {
  return parse_word(text, {"--set", 0, 0});
}

std::string value_of(const KernelConfig& config, std::string_view key) {
  for (const SwitchValue& v : describe(config))
    if (v.key == key) return v.value;
  return "(no such switch)";
}

Complaint complaint_about(std::string_view key, std::string_view value) {
  KernelConfig config;
  try {
    set_switch(config, key, word(value));
  } catch (const InputError& e) {
    return e.complaint();
  }
  ADD_FAILURE() << key << " accepts " << value;
  return {};
}

TEST(Presets, AreSortedByVersionAndLoad) {
  const auto names = list_presets();
  ASSERT_GE(names.size(), 9U);
  EXPECT_TRUE(std::ranges::is_sorted(names, {}, KernelConfig::kernel_version));
  for (const auto& name : names) {
    EXPECT_EQ(load_preset(name).preset, name);
    EXPECT_FALSE(preset_title(name).empty());
  }
}

TEST(Presets, EachNamesTheSameSwitches) {
  const auto shape = [](const EmbeddedFile& file) {
    std::vector<std::string> keys;
    for (const Entry& group : parse_toml(file.text, std::string(file.name)).entries)
      for (const Entry& entry : group.value.entries)
        keys.push_back(group.key + "." + entry.key);
    return keys;
  };
  const auto first = shape(embedded_presets().front());
  EXPECT_GT(first.size(), 15U);
  for (const EmbeddedFile& file : embedded_presets())
    EXPECT_EQ(shape(file), first) << file.name;
}

TEST(Presets, TellTheKernelsApart) {
  const KernelConfig old = load_preset("4.15");
  EXPECT_EQ(old.rwsem, RwSemRules::k4_15);
  EXPECT_TRUE(old.thp_strictly_local);
  EXPECT_FALSE(old.munmap_downgrade);
  EXPECT_EQ(old.overcommit, OvercommitHeuristic::kFreeNow);
  EXPECT_EQ(old.zero_pmd_write, ZeroPmdWrite::kAllocThp);
  EXPECT_EQ(old.split_pmd_ptlock, SplitPtlock::kByArch);
  const KernelConfig lts = load_preset("6.1");
  EXPECT_EQ(lts.rwsem, RwSemRules::k5_11);
  EXPECT_EQ(lts.per_vma_lock, VmaLockRule::kNo);
  EXPECT_EQ(lts.zero_pmd_write, ZeroPmdWrite::kSplit);
  EXPECT_EQ(load_preset("6.5").per_vma_lock, VmaLockRule::k6_4);
  EXPECT_EQ(load_preset("6.8").thp_mmap_align, ThpMmapAlign::kAtLeastPmd);
  EXPECT_EQ(load_preset("6.12").thp_mmap_align, ThpMmapAlign::kMultipleOfPmd);
  EXPECT_EQ(load_preset("6.18").zero_pmd_write, ZeroPmdWrite::kAllocThp);
  EXPECT_EQ(load_preset("3.9").split_pmd_ptlock, SplitPtlock::kNo);
}

TEST(Switches, AnyOneCanBeTurned) {
  KernelConfig config = load_preset("4.15");
  set_switch(config, "locks.rwsem", word("5.3"));
  set_switch(config, "locks.per_vma_lock", word("6.5"));
  set_switch(config, "transparent_hugepage.enabled", word("never"));
  set_switch(config, "mm.munmap_downgrade", word("true"));
  set_switch(config, "sysctl.vm.max_map_count", word("100"));
  EXPECT_EQ(config.rwsem, RwSemRules::k5_3);
  EXPECT_EQ(config.per_vma_lock, VmaLockRule::k6_4);
  EXPECT_EQ(config.thp_enabled, ThpEnabled::kNever);
  EXPECT_TRUE(config.munmap_downgrade);
  EXPECT_EQ(config.max_map_count, 100U);
  EXPECT_EQ(config.preset, "4.15");
}

// Writing back what describe() says changes nothing, for each preset.
TEST(Switches, DescribeSaysWhatSetAccepts) {
  for (const auto& name : list_presets()) {
    const KernelConfig config = load_preset(name);
    KernelConfig copy;
    for (const SwitchValue& v : describe(config)) {
      set_switch(copy, v.key, word(v.value));
      EXPECT_EQ(value_of(copy, v.key), v.value) << name << " " << v.key;
      EXPECT_FALSE(v.about.empty());
    }
  }
}

TEST(Switches, AWrongValueNamesTheAcceptedOnes) {
  const Complaint c = complaint_about("transparent_hugepage.enabled", "alway");
  EXPECT_EQ(c.key, "kernel.transparent_hugepage.enabled");
  EXPECT_EQ(c.accepted, (std::vector<std::string>{"always", "madvise", "never"}));
  EXPECT_NE(c.hint.find("always"), std::string::npos);
}

TEST(Switches, NumbersHaveLimits) {
  EXPECT_EQ(complaint_about("sysctl.vm.overcommit_memory", "3").key,
            "kernel.sysctl.vm.overcommit_memory");
  complaint_about("sysctl.vm.max_map_count", "many");
}

}  // namespace
}  // namespace faultline::kernel
