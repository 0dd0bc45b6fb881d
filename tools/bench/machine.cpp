// SPDX-License-Identifier: GPL-3.0-or-later
#include "machine.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <vector>

namespace ecfs::bench {
namespace {

// The text behind the first `name` and `separator` of a file of such lines.
std::string value_of(const std::string& path, const std::string& name, char separator) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const auto at = line.find(separator);
    if (at == line.npos || line.substr(0, line.find_last_not_of(" \t", at - 1) + 1) != name) continue;
    const auto start = line.find_first_not_of(" \t\"", at + 1);
    return start == line.npos ? "" : line.substr(start, line.find_last_not_of(" \t\"") - start + 1);
  }
  return {};
}

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const auto end = line.find_last_not_of(" \t");
  return end == line.npos ? "" : line.substr(0, end + 1);
}

std::string aes_of_cpu() {
  // x86 calls them flags, ARM Features.
  std::string flags = value_of("/proc/cpuinfo", "flags", ':');
  if (flags.empty()) flags = value_of("/proc/cpuinfo", "Features", ':');
  std::string found;
  std::istringstream in(flags);
  for (std::string flag; in >> flag;)
    if (flag == "aes" || flag == "vaes" || flag == "pmull" || flag == "pclmulqdq" || flag == "vpclmulqdq")
      found += (found.empty() ? "" : ", ") + flag;
  return found.empty() ? "none" : found;
}

// The line of mountinfo that has the device and the longest mount point above the directory.
std::string mount_of(const std::string& directory, dev_t device) {
  std::ifstream in("/proc/self/mountinfo");
  std::string best, best_point;
  const std::string number = std::to_string(major(device)) + ":" + std::to_string(minor(device));
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string id, parent, dev, root, point, options, word, type, source;
    fields >> id >> parent >> dev >> root >> point >> options;
    while (fields >> word && word != "-") continue;
    fields >> type >> source;
    if (dev != number || !(directory + "/").starts_with(point == "/" ? point : point + "/") || point.size() < best_point.size()) continue;
    best_point = point;
    best = type + " on " + source + ", " + options;
  }
  return best;
}

std::string disk_of(dev_t device) {
  const std::string block = "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
  // A partition's queue and model are its disk's, one directory up.
  for (const std::string& at : {block, block + "/.."}) {
    const std::string rotational = first_line(at + "/queue/rotational");
    if (rotational.empty()) continue;
    const std::string model = first_line(at + "/device/model");
    return (model.empty() ? "" : model + ", ") + (rotational == "1" ? "rotating" : "not rotating");
  }
  return "unknown";
}

}  // namespace

Machine describe_machine(const std::string& directory) {
  Machine m;
  std::string model = value_of("/proc/cpuinfo", "model name", ':');
  if (model.empty()) model = "unknown processor";
  m.cpu = model + ", " + std::to_string(::sysconf(_SC_NPROCESSORS_ONLN)) + " processors";
  m.aes = aes_of_cpu();
  char text[64];
  std::snprintf(text, sizeof text, "%.1f GiB",
                static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 30));
  m.memory = text;
  utsname name{};
  ::uname(&name);
  m.kernel = std::string(name.sysname) + " " + name.release + " " + name.machine;
  m.system = value_of("/etc/os-release", "PRETTY_NAME", '=');
  struct stat st {};
  if (::stat(directory.c_str(), &st) == 0) {
    m.lower = mount_of(directory, st.st_dev);
    m.disk = disk_of(st.st_dev);
  }
  if (m.lower.empty()) m.lower = "unknown";
  return m;
}

}  // namespace ecfs::bench
