// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/proc/vrange.h"

#include <fmt/format.h>

#include <iterator>

#include "kernel_model/mm/vrange.h"

namespace faultline::kernel {

std::string vrange_text(Mm& mm) {
  std::string out;
  for (const VrangeView& view : vranges_of(mm))
    fmt::format_to(std::back_inserter(out), "{:08x}-{:08x} {}\n", view.range.start.v,
                   view.range.end.v, view.purged ? "purged" : "intact");
  return out;
}

}  // namespace faultline::kernel
