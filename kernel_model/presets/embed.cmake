# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=… -DFILES=a.toml;b.toml -P embed.cmake: the files as string literals in one C++ file.
set(body "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  string(REGEX REPLACE "\\.toml$" "" name ${name})
  file(READ ${file} text)
  string(APPEND body "    {\"${name}\", R\"toml(${text})toml\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Written by kernel_model/presets/embed.cmake.
#include \"kernel_model/presets/embedded.h\"

namespace faultline::kernel {
namespace {
constexpr EmbeddedFile kFiles[] = {
${body}};
}  // namespace
std::span<const EmbeddedFile> embedded_presets() { return kFiles; }
}  // namespace faultline::kernel
")
