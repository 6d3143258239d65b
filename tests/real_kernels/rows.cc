// SPDX-License-Identifier: Apache-2.0
#include "tests/real_kernels/rows.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace faultline::real_kernels {
namespace {

using nlohmann::json;

std::vector<std::string> split(const std::string& text, char by, std::size_t parts) {
  std::vector<std::string> out;
  std::size_t from = 0;
  while (out.size() + 1 < parts) {
    const std::size_t to = text.find(by, from);
    if (to == std::string::npos) break;
    out.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  out.push_back(text.substr(from));
  return out;
}

// "Linux 6.1.192-mm64k aarch64" -> "6.1"
std::string preset_of(const std::string& uname) {
  const std::string release = split(uname, ' ', 3).at(1);
  const auto parts = split(release, '.', 3);
  return parts.at(0) + "." + parts.at(1);
}

// "Node 0, zone   Normal      1      0 " -> {1, 0}.  Only the first zone's line was
// printed: if it isn't the normal zone, there are more.
std::vector<std::uint64_t> blocks_of(const std::string& line) {
  std::istringstream in(line.substr(line.find("zone") + 4));
  std::string zone;
  in >> zone;
  std::vector<std::uint64_t> blocks;
  if (zone != "Normal") return blocks;
  for (std::uint64_t n; in >> n;) blocks.push_back(n);
  return blocks;
}

class Reader {
 public:
  explicit Reader(DataFile& file) : file_(file) {}

  void line(const json& object) {
    if (object.contains("note"))
      note(object.at("note").get<std::string>());
    else if (object.contains("test"))
      row(object);
  }

 private:
  void note(const std::string& text) {
    const auto parts = split(text, '|', 3);
    const std::string& what = parts.at(0);
    if (what == "uname")
      file_.preset = preset_of(parts.at(1));
    else if (what == "nproc")
      file_.cpus = static_cast<unsigned>(std::stoul(parts.at(1)));
    else if (what == "/proc/meminfo")
      file_.mem_total_kb = std::stoull(parts.at(1).substr(9));
    else if (what == "/proc/buddyinfo")
      file_.buddyinfo = blocks_of(parts.at(1));
    else if (parts.size() == 3)
      find_case(what, parts.at(1)).note = parts.at(2);
  }

  void row(const json& object) {
    Row row{object.at("phase").get<std::string>(), {}};
    for (const auto& [key, value] : object.at("delta").items())
      row.delta[key] = value.get<std::int64_t>();
    find_case(object.at("test").get<std::string>(), object.at("thp").get<std::string>())
        .rows.push_back(row);
  }

  Case& find_case(const std::string& test, const std::string& mode) {
    for (Case& c : file_.cases)
      if (c.test == test && c.mode == mode) return c;
    return file_.cases.emplace_back(Case{test, mode, {}, {}});
  }

  DataFile& file_;
};

}  // namespace

const std::vector<std::string>& file_names() {
  static const std::vector<std::string> names = {
      "arm64-4k",        "arm64-64k",      "arm64-64k-4g", "power-hash-64k",
      "power-radix-64k", "s390x-4k-nothp", "x86-4k-6.1",   "x86-4k-6.18"};
  return names;
}

std::string DataFile::note_of(const std::string& test, const std::string& mode) const {
  for (const Case& c : cases)
    if (c.test == test && c.mode == mode) return c.note;
  return {};
}

DataFile read_file(const std::string& name) {
  const std::string path = "tests/real_kernels/data/" + name + ".jsonl";
  std::ifstream in(path);
  if (!in) throw std::runtime_error("can't read " + path);
  DataFile file;
  file.name = name;
  Reader reader(file);
  for (std::string line; std::getline(in, line);) reader.line(json::parse(line));
  std::erase_if(file.cases, [](const Case& c) { return c.rows.empty(); });
  return file;
}

}  // namespace faultline::real_kernels
