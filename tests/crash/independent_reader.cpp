// SPDX-License-Identifier: GPL-3.0-or-later
// Written from docs/FORMAT.md, with nothing of the program but the structures (format) and the cryptography (crypto).
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "ecfs/format.hpp"
#include "readers.hpp"

namespace ecfs::crash {
namespace {

using nlohmann::json;

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool zero(std::string_view bytes) { return bytes.find_first_not_of('\0') == bytes.npos; }

std::optional<std::string> xattr_of(const std::string& path, const std::string& name) {
  std::string value(8192, '\0');
  const ssize_t n = ::lgetxattr(path.c_str(), name.c_str(), value.data(), value.size());
  if (n < 0) return std::nullopt;
  value.resize(static_cast<std::size_t>(n));
  return value;
}

class Reader {
 public:
  Reader(std::string root, Seen& seen) : root_(std::move(root)), seen_(seen) {}

  void read(const OpenWith& how) {
    if (!unlock(how)) return;
    read_markers();
    object(root_, "");
  }

 private:
  void problem(const std::string& path, const std::string& what) { seen_.problems.push_back("read apart: '" + path.substr(0, 60) + "': " + what); }

  // "ecfs.volume": tries each passphrase on each slot.
  bool unlock(const OpenWith& how) {
    const json volume = json::parse(slurp(root_ + "/ecfs.volume"), nullptr, false);
    if (!volume.is_object()) return problem("", "ecfs.volume is no JSON object"), false;
    plain_ = volume["names"] == "plain";
    for (const auto& passphrase : how.passphrases)
      for (const auto& slot : volume["keyslots"]) {
        SecretBuffer secret(passphrase.size());
        std::copy(passphrase.begin(), passphrase.end(), secret.data());
        std::array<std::uint8_t, 16> salt{};
        std::array<std::uint8_t, kXNonceSize> nonce{};
        take(slot["salt"], salt);
        take(slot["nonce"], nonce);
        const auto kek = argon2id(secret, salt, slot["argon2_ops"].get<std::uint64_t>(), slot["argon2_mem"].get<std::uint64_t>());
        if (!kek) continue;
        const std::string ad = slot["type"].get<std::string>() + " " + volume["uuid"].get<std::string>();
        const auto wrapped = from_base64url(slot["wrapped"].get<std::string>());
        const auto masters = open_secret(*kek, as_bytes(ad), nonce, *wrapped);
        if (!masters) continue;
        for (auto at = masters->bytes(); at.size() >= 36; at = at.subspan(36)) {
          const Epoch epoch = at[0] | at[1] << 8 | at[2] << 16 | static_cast<Epoch>(at[3]) << 24;
          MasterKey master;
          std::copy_n(at.begin() + 4, MasterKey::kSize, master.bytes().begin());
          auto keys = EpochKeys::derive(epoch, master);
          if (keys) keys_.add(std::move(*keys));
        }
        seen_.passphrase = passphrase;
        return true;
      }
    return problem("", "no passphrase opens it"), false;
  }

  template <std::size_t N>
  static void take(const json& text, std::array<std::uint8_t, N>& out) {
    const auto raw = from_base64url(text.get<std::string>());
    if (raw && raw->size() == N) std::copy(raw->begin(), raw->end(), out.begin());
  }

  // "The session marker": any that is there is of a session that was cut, as nobody is at work.
  void read_markers() {
    for (const auto& e : std::filesystem::directory_iterator(root_)) {
      const std::string name = e.path().filename().string();
      if (!name.starts_with("ecfs.session") || name.ends_with(".new")) continue;
      const json marker = json::parse(slurp(e.path().string()), nullptr, false);
      const bool readable = marker.is_object() && marker.contains("start") && marker.contains("cut") && marker.contains("running");
      if (!readable)
        cuts_.push_back({{0, 0}, kEnd});
      else if (marker["running"] == true)
        cuts_.push_back({time_of(marker["start"]), kEnd});
      for (const auto& span : readable ? marker["cut"] : json::array()) cuts_.push_back({time_of(span[0]), time_of(span[1])});
    }
  }
  static timespec time_of(const json& j) { return {j[0].get<time_t>(), j[1].get<long>()}; }
  static constexpr timespec kEnd{std::numeric_limits<time_t>::max(), 0};
  bool in_cut(const struct stat& st) const {
    const auto before = [](const timespec& a, const timespec& b) { return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec; };
    return std::any_of(cuts_.begin(), cuts_.end(), [&](const auto& c) { return !before(st.st_ctim, c.first) && !before(c.second, st.st_ctim); });
  }

  void object(const std::string& lower, const std::string& path) {
    struct stat st;
    if (::lstat(lower.c_str(), &st) != 0) return problem(path, "stat");
    SeenEntry& e = seen_.entries[path];
    e.ino = st.st_ino;
    e.mode = st.st_mode;
    if (S_ISREG(st.st_mode)) file(lower, st, path, e);
    if (S_ISLNK(st.st_mode)) link(lower, path, e);
    xattrs(lower, path, e);
    if (S_ISDIR(st.st_mode)) directory(lower, path);
  }

  static constexpr std::size_t room(std::uint64_t block) { return block == 0 ? 3936 : 4064; }

  // "Regular files" and "Sizes".
  void file(const std::string& lower, const struct stat& st, const std::string& path, SeenEntry& e) {
    const std::string bytes = slurp(lower);
    if (bytes.empty()) return;
    const std::uint64_t pages = bytes.size() / 4096;
    if (pages == 0) return problem(path, "cut inside its header");
    const std::size_t hint = bytes.size() % 4096;
    const bool told = hint > 0 && hint <= room(pages - 1);
    const bool cut = in_cut(st);
    const auto page = [&](std::uint64_t n) { return std::string_view(bytes).substr(n * 4096, 4096); };
    if (zero(page(0))) {
      if (!cut) problem(path, "its header is lost");
      return;
    }
    const auto raw = as_bytes(page(0));
    const auto header = FileHeader::decode(raw.first<128>());
    const EpochKeys* epoch = header ? keys_.find(header->epoch) : nullptr;
    auto key = epoch ? unwrap_file_key(*epoch, *header) : Result<FileKey>(Errc::damaged_header);
    if (!key) return problem(path, "its header is damaged");
    BlockOpener opener(header->suite, *key);
    std::uint64_t last = pages;  // one behind the last page that is not zeros
    while (last > 0 && zero(last == 1 ? page(0).substr(128) : page(last - 1))) --last;
    if (last == 0) {
      if (!cut && told) problem(path, "a header alone");
      return;
    }
    std::string text;
    for (std::uint64_t b = 0; b < last; ++b) {
      const auto part = as_bytes(b == 0 ? page(0).substr(128) : page(b));
      std::string plain(4096, '\0');
      std::size_t length = 0;
      if (!zero({reinterpret_cast<const char*>(part.data()), part.size()})) {
        const auto opened = opener.open(b, part, reinterpret_cast<std::uint8_t*>(plain.data()));
        if (!opened) return problem(path, "block " + std::to_string(b) + " is damaged");
        length = *opened;
      }
      if (b + 1 < last) length = room(b);
      // After a cut, an inode from before it may lag behind its last page: the size that it tells counts.
      if (b + 1 == last && !cut && !cuts_.empty() && told && last == pages) length = hint;
      text += plain.substr(0, length);
    }
    e.size = text.size();
    e.content = std::move(text);
  }

  void link(const std::string& lower, const std::string& path, SeenEntry& e) {
    std::string text(8192, '\0');
    const ssize_t n = ::readlink(lower.c_str(), text.data(), text.size());
    text.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
    if (text.starts_with("ecfs.target.")) {
      const std::string content = slurp(root_ + "/" + text);
      if ("ecfs.target." + hash_name(content) != text) return problem(path, "its target's file is lost");
      text = content;
    }
    const auto sealed = from_base64url(text);
    if (!sealed || sealed->size() < 4) return problem(path, "its target is damaged");
    const EpochKeys* keys = keys_.find(epoch_of(*sealed));
    const auto target = keys ? open_value(keys->link.bytes(), as_bytes(std::string_view(*sealed).substr(0, 4)), std::string_view(*sealed).substr(4))
                             : Result<std::string>(Errc::damaged_name);
    if (!target) return problem(path, "its target is damaged");
    e.content = *target;
    e.size = target->size();
  }

  static Epoch epoch_of(std::string_view raw) {
    Epoch epoch = 0;
    for (int i = 3; i >= 0; --i) epoch = epoch << 8 | static_cast<std::uint8_t>(raw[static_cast<std::size_t>(i)]);
    return epoch;
  }

  // "Extended attributes".
  void xattrs(const std::string& lower, const std::string& path, SeenEntry& e) {
    char list[8192];
    const ssize_t n = ::llistxattr(lower.c_str(), list, sizeof list);
    for (ssize_t at = 0; at < n; at += static_cast<ssize_t>(std::strlen(list + at)) + 1) {
      const std::string name = list + at;
      if (!name.starts_with("user.") || name == "user.ecfs.dir") continue;
      const auto sealed = from_base64url(std::string_view(name).substr(std::strlen("user.ecfs.")));
      const auto value = xattr_of(lower, name);
      const auto opened = sealed ? keys_.newest().xattr_names.open({}, *sealed) : Result<std::string>(Errc::damaged_name);
      if (!opened || !value || value->size() < 4) {
        problem(path, "an extended attribute is damaged");
        continue;
      }
      const std::string ad = value->substr(0, 4) + *opened;
      const EpochKeys* keys = keys_.find(epoch_of(*value));
      const auto content = keys ? open_value(keys->xattr.bytes(), as_bytes(ad), std::string_view(*value).substr(4)) : Result<std::string>(Errc::damaged_name);
      if (!content) {
        problem(path, "an extended attribute is damaged");
        continue;
      }
      e.xattrs["user." + *opened] = *content;
    }
  }

  // "Names".
  void directory(const std::string& lower, const std::string& path) {
    std::optional<DirRecord> record;
    if (!plain_)
      for (const auto& copy : {slurp(lower + "/ecfs.dir"), xattr_of(lower, "user.ecfs.dir").value_or("")})
        if (const auto r = copy.size() == 48 ? open_dir_record(keys_, as_bytes(copy)) : Result<DirRecord>(Errc::damaged_directory); r && !record)
          record = *r;
    for (const auto& e : std::filesystem::directory_iterator(lower)) {
      const std::string name = e.path().filename().string();
      std::string plain = name;
      if (plain_) {
        if (path.empty() && name.starts_with("ecfs.")) continue;
      } else {
        std::string encoded = name;
        if (name.starts_with("ecfs.long.")) {
          encoded = slurp(lower + "/ecfs.name." + name.substr(10));
          if (hash_name(encoded) != name.substr(10)) {
            problem(path, "a long name is lost");
            continue;
          }
        } else if (name.starts_with("ecfs.")) {
          continue;
        }
        if (!record) {
          problem(path, "the directory's id is lost");
          return;
        }
        const auto sealed = from_base64url(encoded);
        const auto opened = sealed ? keys_.newest().names.open(record->id, *sealed) : Result<std::string>(Errc::damaged_name);
        if (!opened) {
          problem(path, "a name is damaged");
          continue;
        }
        plain = opened->substr(0, opened->find('\0'));
      }
      object(e.path().string(), path.empty() ? plain : path + "/" + plain);
    }
  }

  std::string root_;
  Seen& seen_;
  KeyRing keys_;
  bool plain_ = false;
  std::vector<std::pair<timespec, timespec>> cuts_;
};

}  // namespace

Seen read_independently(const std::string& lower, const OpenWith& how) {
  Seen seen;
  Reader(lower, seen).read(how);
  return seen;
}

}  // namespace ecfs::crash
