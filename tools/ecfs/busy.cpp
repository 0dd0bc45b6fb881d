// SPDX-License-Identifier: GPL-3.0-or-later
#include "busy.hpp"

#include <sys/sysmacros.h>
#include <unistd.h>

#include <boost/filesystem.hpp>
#include <cstdio>
#include <fstream>

#include "paths.hpp"

namespace ecfs {
namespace {

namespace fs = boost::filesystem;

// By the link's text: a stat would ask the daemon, which may not answer.
bool leads_into(const std::string& link, const std::string& target) {
  char text[PATH_MAX];
  const ssize_t n = ::readlink(link.c_str(), text, sizeof text);
  std::string rest;
  return n > 0 && below(std::string(text, static_cast<std::size_t>(n)), target, rest);
}

std::string counted(int n, const char* one, const char* many) {
  return n == 1 ? std::string("1 ") + one : std::to_string(n) + " " + many;
}

int open_files(const std::string& process, const std::string& target) {
  int n = 0;
  boost::system::error_code ec;
  for (fs::directory_iterator i(process + "/fd", ec), end; !ec && i != end; i.increment(ec))
    if (leads_into(i->path().native(), target)) ++n;
  return n;
}

int mapped_files(const std::string& process, dev_t device) {
  char wanted[32];
  std::snprintf(wanted, sizeof wanted, " %02x:%02x ", major(device), minor(device));
  std::ifstream in(process + "/maps");
  int n = 0;
  for (std::string line; std::getline(in, line);)
    if (line.find(wanted) != line.npos) ++n;
  return n;
}

}  // namespace

std::vector<std::string> holders(const Mount& mount) {
  std::vector<std::string> lines;
  if (auto mounts = read_mounts())
    for (const Mount& m : *mounts)
      if (m.parent == mount.id) lines.push_back("another filesystem is mounted on " + shell_word(m.target));
  boost::system::error_code ec;
  for (fs::directory_iterator i("/proc", ec), end; !ec && i != end; i.increment(ec)) {
    const std::string process = i->path().native();
    const std::string pid = leaf_of(process);
    if (pid.find_first_not_of("0123456789") != pid.npos || pid == std::to_string(::getpid())) continue;
    std::string how;
    const auto add = [&how](const std::string& what) { how += (how.empty() ? "" : ", ") + what; };
    if (leads_into(process + "/cwd", mount.target)) add("working directory");
    if (leads_into(process + "/root", mount.target)) add("root directory");
    if (leads_into(process + "/exe", mount.target)) add("program");
    if (const int n = open_files(process, mount.target)) add(counted(n, "open file", "open files"));
    if (const int n = mapped_files(process, mount.device)) add(counted(n, "mapping", "mappings"));
    if (how.empty()) continue;
    std::string name;
    std::ifstream comm(process + "/comm");
    std::getline(comm, name);
    lines.push_back(name + " (pid " + pid + ": " + how + ")");
  }
  return lines;
}

}  // namespace ecfs
