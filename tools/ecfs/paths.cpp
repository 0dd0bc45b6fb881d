// SPDX-License-Identifier: GPL-3.0-or-later
#include "paths.hpp"

#include <unistd.h>

#include <cstdlib>
#include <memory>

#include <boost/filesystem.hpp>

namespace ecfs {
namespace fs = boost::filesystem;

std::string absolute_path(const std::string& path) {
  if (path.empty()) return path;
  std::string all = path;
  if (path[0] != '/') {
    // getcwd looks nothing up, so it works in a mount whose daemon is dead; boost's current_path may not.
    char cwd[PATH_MAX];
    if (::getcwd(cwd, sizeof cwd)) all = std::string(cwd) + "/" + path;
  }
  std::string out;
  for (const fs::path& part : fs::path(all)) {
    const std::string& name = part.native();
    if (name == "/" || name == "." || name.empty()) continue;
    out += "/" + name;
  }
  return out.empty() ? "/" : out;
}

Result<std::string> real_path(const std::string& path) {
  if (path.empty()) return errno_code(ENOENT);
  // Not boost's canonical: it asks for the current directory even for an absolute path, and that may be deleted.
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(absolute_path(path).c_str(), nullptr), &std::free);
  if (!real) return last_errno();
  return std::string(real.get());
}

Result<std::string> real_parent(const std::string& path) {
  const std::string all = absolute_path(path);
  const std::string leaf = leaf_of(all);
  if (all.empty()) return errno_code(ENOENT);
  if (all == "/" || leaf == "..") return real_path(all);
  const auto parent = real_path(parent_of(all));
  if (!parent) return parent.error();
  return *parent == "/" ? "/" + leaf : *parent + "/" + leaf;
}

std::string parent_of(const std::string& path) {
  const auto at = path.rfind('/');
  return at == 0 || at == path.npos ? "/" : path.substr(0, at);
}

std::string leaf_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool below(const std::string& path, const std::string& root, std::string& rest) {
  const std::string base = root == "/" ? "" : root;
  if (path == root || path == base) return rest.clear(), true;
  if (path.compare(0, base.size(), base) != 0 || path[base.size()] != '/') return false;
  rest = path.substr(base.size() + 1);
  return true;
}

std::string flat(const std::string& path) {
  return absolute_path(fs::path(absolute_path(path)).lexically_normal().native());
}

}  // namespace ecfs
