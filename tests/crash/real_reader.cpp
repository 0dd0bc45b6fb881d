// SPDX-License-Identifier: GPL-3.0-or-later
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/filesystem.hpp"
#include "ecfs/keyslot.hpp"
#include "mounted.hpp"
#include "readers.hpp"

namespace ecfs::crash {

using daemon::Caller;
using daemon::Entry;
using daemon::Filesystem;
using daemon::Listed;
using daemon::NodePtr;

Result<Opened> open_volume(const std::string& lower, const OpenWith& how, std::vector<std::string>& problems) {
  Opened out;
  auto root = lower::open_path(lower, O_RDONLY | O_DIRECTORY);
  if (!root) return root.error();
  VolumeError error;
  auto volume = load_volume(root->get(), error);
  if (!volume) return volume.error();
  Filesystem::Config config;
  for (const auto& passphrase : how.passphrases) {
    SecretBuffer secret(passphrase.size());
    std::copy(passphrase.begin(), passphrase.end(), secret.data());
    auto unlocked = unlock_volume(*volume, secret);
    if (!unlocked) continue;
    config.keys = std::move(unlocked->keys);
    out.passphrase = passphrase;
    break;
  }
  if (out.passphrase.empty()) return Errc::wrong_passphrase;
  auto marker = daemon::SessionMarker::begin(root->get(), how.shared ? daemon::SessionMarker::Kind::shared : daemon::SessionMarker::Kind::exclusive);
  if (!marker) return marker.error();
  config.lower_root = std::move(*root);
  config.volume = std::move(*volume);
  config.changes_beneath = config.shared = how.shared;
  config.marker = std::move(*marker);
  config.log = [&problems](const std::string& what, const std::string& where) { problems.push_back("the log says: " + what + ": " + where); };
  auto fs = Filesystem::create(std::move(config));
  if (!fs) return fs.error();
  out.fs = std::move(*fs);
  return out;
}

Caller caller() { return {::geteuid(), ::getegid(), ::getpid(), 022}; }

namespace {

class Looker {
 public:
  Looker(Filesystem& fs, Seen& seen, bool change) : fs_(fs), seen_(seen), change_(change) {}

  void look(const NodePtr& node, const struct stat& st, const std::string& path) {
    SeenEntry& e = seen_.entries[path];
    e.ino = st.st_ino;
    e.mode = st.st_mode;
    if (S_ISREG(st.st_mode)) file(node, st, path, e);
    if (S_ISLNK(st.st_mode)) {
      e.size = static_cast<std::uint64_t>(st.st_size);
      const auto target = fs_.read_link(node);
      if (!target) return problem(path, "readlink", target.error());
      e.content = *target;
      if (target->size() != e.size) seen_.problems.push_back(path + ": lstat tells another length than the target's");
    }
    xattrs(node, path, e);
    if (S_ISDIR(st.st_mode)) directory(node, path);
  }

 private:
  void problem(const std::string& path, const std::string& call, const std::error_code& error) {
    seen_.problems.push_back("'" + path.substr(0, 60) + "': " + call + ": " + error.message());
  }

  void file(const NodePtr& node, const struct stat& st, const std::string& path, SeenEntry& e) {
    e.size = static_cast<std::uint64_t>(st.st_size);
    // As the kernel asks: whole pages up to the size that it was told.
    std::string text((e.size + 4095) / 4096 * 4096, '\0');
    if (!text.empty()) {
      const auto n = fs_.read(node, 0, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
      if (!n) return problem(path, "read", n.error());
      text.resize(*n);
    }
    if (text.size() != e.size)
      seen_.problems.push_back("'" + path + "': stat tells " + std::to_string(e.size) + " bytes, reading gives " + std::to_string(text.size()));
    e.content = std::move(text);
    const auto again = fs_.attributes(node);
    if (!again) return problem(path, "stat", again.error());
    if (again->st_size != st.st_size)
      seen_.problems.push_back("'" + path + "': the size changes from " + std::to_string(st.st_size) + " to " + std::to_string(again->st_size) + " by reading");
    if (change_) append(node, path, e.content);
  }

  // Writing goes on where the cut left off, and nothing that is there changes.
  void append(const NodePtr& node, const std::string& path, std::string content) {
    static constexpr std::string_view kMore = "and more";
    if (const auto w = fs_.write(node, content.size(), as_bytes(kMore), false); !w) return problem(path, "append", w.error());
    content += kMore;
    std::string text(content.size() + 4096, '\0');
    const auto n = fs_.read(node, 0, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
    if (!n) return problem(path, "read after appending", n.error());
    text.resize(*n);
    if (text != content) seen_.problems.push_back("'" + path + "': after an append it is not what it was and the append");
    daemon::AttrChange back;
    back.size = content.size() - kMore.size();
    if (const auto t = fs_.change_attributes(node, back); !t) problem(path, "truncate", t.error());
  }

  void xattrs(const NodePtr& node, const std::string& path, SeenEntry& e) {
    const auto names = fs_.list_xattrs(node);
    if (!names) return problem(path, "listxattr", names.error());
    for (const auto& name : *names) {
      if (!name.starts_with("user.")) continue;
      const auto value = fs_.get_xattr(node, name.c_str());
      if (!value) return problem(path, "getxattr", value.error());
      e.xattrs[name] = *value;
    }
  }

  void directory(const NodePtr& node, const std::string& path) {
    std::vector<std::pair<std::string, Entry>> found;
    const auto listed = fs_.list(node, 0, true, [&](const Listed& l) {
      if (l.name == "." || l.name == "..") return true;
      if (l.entry)
        found.emplace_back(l.name, *l.entry);
      else
        seen_.problems.push_back("'" + path + "': an entry of the listing has no attributes");
      return true;
    });
    if (!listed) problem(path, "listing", listed.error());
    for (const auto& [name, entry] : found) {
      const auto by_name = fs_.lookup(node, name);
      if (!by_name)
        problem(path + "/" + name, "lookup", by_name.error());
      else
        fs_.nodes().forget(by_name->node, 1);
      look(entry.node, entry.attr, path.empty() ? name : path + "/" + name);
    }
    if (change_) fill(node, path);
    for (const auto& [name, entry] : found) fs_.nodes().forget(entry.node, 1);
  }

  // A directory that was cut in the making can be used like any other.
  void fill(const NodePtr& node, const std::string& path) {
    for (const std::string& name : {std::string("another"), std::string(200, 'A')}) {
      const auto made = fs_.make_node(node, name, S_IFREG | 0644, 0, caller());
      if (!made) return problem(path, "create", made.error());
      if (const auto w = fs_.write(made->node, 0, as_bytes(name), false); !w) problem(path, "write", w.error());
      if (const auto u = fs_.unlink(node, name); !u) problem(path, "unlink", u.error());
      fs_.nodes().forget(made->node, 1);
    }
  }

  Filesystem& fs_;
  Seen& seen_;
  bool change_;
};

}  // namespace

Seen read_really(const std::string& lower, const OpenWith& how, bool change) {
  Seen seen;
  auto opened = open_volume(lower, how, seen.problems);
  if (!opened) {
    seen.problems.push_back("the volume does not mount: " + opened.error().message());
    return seen;
  }
  seen.passphrase = opened->passphrase;
  Filesystem& fs = *opened->fs;
  const NodePtr root = fs.nodes().root();
  if (const auto st = fs.attributes(root))
    Looker(fs, seen, change).look(root, *st, "");
  else
    seen.problems.push_back("the root has no attributes: " + st.error().message());
  if (const auto end = fs.marker().end(fs.lower_root()); !end) seen.problems.push_back("the session does not end: " + end.error().message());
  return seen;
}

std::string difference(const Seen& a, const Seen& b) {
  for (const auto& [path, e] : a.entries) {
    const auto there = b.entries.find(path);
    if (there == b.entries.end()) return "'" + path + "' is only in the first";
    const SeenEntry& f = there->second;
    if (e.ino != f.ino) return "'" + path + "' is another object";
    if (e.mode != f.mode) return "'" + path + "' has another mode";
    if (e.size != f.size) return "'" + path + "' has " + std::to_string(e.size) + " bytes, and " + std::to_string(f.size);
    if (e.content != f.content) return "'" + path + "' has another content";
    if (e.xattrs != f.xattrs) return "'" + path + "' has other extended attributes";
  }
  for (const auto& [path, e] : b.entries)
    if (!a.entries.contains(path)) return "'" + path + "' is only in the second";
  if (a.passphrase != b.passphrase) return "another passphrase opens it";
  return "";
}

}  // namespace ecfs::crash
