// SPDX-License-Identifier: GPL-3.0-or-later
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "program.hpp"

namespace compare {

Settings g_settings;
const char* const kRemount = "remount";

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = [] {
    std::vector<Kind> k{{kRemount, 0, nullptr, nullptr, false}};
    for (auto list : {contents_kinds(), names_kinds(), attributes_kinds()}) k.insert(k.end(), list.begin(), list.end());
    return k;
  }();
  return all;
}

// Names of many lengths, in a few directories, so that calls meet each other.
Generator::Generator(unsigned seed) : r_(seed) {
  for (const std::size_t n : {1u, 2u, 15u, 16u, 17u, 100u, 160u, 161u, 175u, 200u, 254u, 255u})
    if (!g_settings.names_short || n < 100) names_.push_back(std::string(n, static_cast<char>('a' + n % 26)));
  names_.push_back("ecfs.dir.x");
  names_.push_back("\xc3\xa4\xf0\x9f\x98\x80");
  for (const auto& k : kinds()) total_ += k.weight;
}

std::string Generator::name() { return names_[random(static_cast<unsigned>(names_.size()))]; }

std::string Generator::path() {
  static const char* dirs[] = {"", "", "d1/", "d2/", "d1/e/"};
  std::string p = pick(dirs);
  if (one_in(10)) return p.empty() ? "d1" : p == "d1/" ? "d2" : "d1/e";
  p += name();
  if (!one_in(25)) return p;
  // The edges of what is a path.
  switch (random(14)) {
    case 0: return "";
    case 1: return ".";
    case 2: return p + "/";
    case 3: return p + "/.";
    case 4: return "d1/../" + name();
    case 5: return "d1//e///" + name();
    case 6: return "d1/e/..";
    case 7: return p + "/" + name();
    case 8: return "d1/" + std::string(256, 'x');
    case 9: return std::string(2000, 'x');
    case 10: {
      std::string longest;
      while (longest.size() < 4090) longest += "d1/../";
      return longest + name();
    }
    case 11: return "d1/.";
    case 12: return "d2/";
    default: return "./" + p;
  }
}

std::uint64_t Generator::offset() {
  static const std::uint64_t edges[] = {0, 1, 3935, 3936, 3937, 4064, 4095, 4096, 4097, 7999, 8000, 8001, 12063, 12064, 65536, 1 << 20};
  const auto e = pick(edges);
  return one_in(2) ? e : !one_in(4) ? random(40000) : e + random(3);
}

uid_t Generator::uid() {
  const auto& actors = g_settings.actors;
  return one_in(3) ? static_cast<uid_t>(-1) : actors[random(static_cast<unsigned>(actors.size()))].uid;
}
gid_t Generator::gid() {
  const auto& actors = g_settings.actors;
  if (one_in(3)) return static_cast<gid_t>(-1);
  const auto& groups = actors[random(static_cast<unsigned>(actors.size()))].groups;
  return groups[random(static_cast<unsigned>(groups.size()))];
}

std::string Generator::attribute() {
  static const char* names[] = {"user.a", "user.b", "user.ecfs.dir", "user.a.rather.longer.name", "trusted.t", "security.ecfstest", "bogus.x", "user.", ""};
  static const char* acls[] = {"system.posix_acl_access", "system.posix_acl_default"};
  if (g_settings.acl && one_in(3)) return pick(acls);
  // Difference: xattr-room.
  return one_in(8) ? "user." + std::string(::geteuid() == 0 ? 250 : 160, 'n') : pick(names);
}

Call Generator::next() {
  Call c;
  unsigned at = random(total_);
  while (at >= kinds()[c.kind].weight) at -= kinds()[c.kind++].weight;
  c.actor = one_in(3) ? 0 : random(static_cast<unsigned>(g_settings.actors.size()));
  c.slot = static_cast<int>(random(kSlots));
  c.slot2 = static_cast<int>(random(kSlots));
  c.base = one_in(12) ? static_cast<int>(random(kSlots)) : -1;
  c.a = path();
  c.b = path();
  // From an open directory no ".." may lead out of the tree.
  if (c.base >= 0) c.a = one_in(8) ? "." : one_in(8) ? "e/" + name() : name();
  c.seed = static_cast<unsigned>(r_());
  c.off = offset();
  c.len = one_in(4) ? random(70000) : random(5000);
  c.flags = static_cast<int>(random(1024));
  static const mode_t modes[] = {0644, 0600, 0755, 0666, 0777, 0444, 0000, 0200, 04755, 02755, 02644, 01777, 02777, 06711, 0640, 0660};
  c.mode = one_in(3) ? random(010000) : pick(modes);
  static const mode_t umasks[] = {022, 022, 022, 0, 077, 027, 0777};
  c.umask = pick(umasks);
  c.watch = one_in(8);
  if (kinds()[c.kind].fill) kinds()[c.kind].fill(*this, c);
  return c;
}

std::string show(const Call& c) {
  const auto brief = [](const std::string& s) { return s.size() > 40 ? s.substr(0, 12) + "...(" + std::to_string(s.size()) + ")" : s; };
  char text[320];
  std::snprintf(text, sizeof text, " slot %d %d base %d off %llu len %llu flags 0%o mode %o umask %o seed %u%s%s", c.slot, c.slot2, c.base,
                static_cast<unsigned long long>(c.off), static_cast<unsigned long long>(c.len), c.flags, c.mode, c.umask, c.seed,
                c.watch ? " watched" : "", c.actor ? (" as " + std::to_string(g_settings.actors[c.actor].uid)).c_str() : "");
  return kinds()[c.kind].name + (" '" + brief(c.a)) + "' '" + brief(c.b) + "'" + text;
}

}  // namespace compare
