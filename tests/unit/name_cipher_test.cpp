// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/name_cipher.hpp"

#include <algorithm>
#include <set>

#include "support.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;

DirId dir_id(std::uint8_t first) {
  DirId id;
  std::ranges::copy(counting(16, first), id.begin());
  return id;
}

constexpr std::size_t kLongMax = 255;

std::string sealed_name(const EpochKeys& keys, const DirId& dir, std::string_view padded) {
  const auto sealed = keys.names.seal(dir, padded);
  REQUIRE(sealed);
  return base64url(as_bytes(*sealed));
}

}  // namespace

TEST_SUITE("pure") {
  TEST_CASE("names: every length from 1 to 255, there and back") {
    const EpochKeys keys = epoch_keys();
    const DirId dir = dir_id(1);
    std::set<std::string> seen;
    for (std::size_t n = 1; n <= 255; ++n) {
      CAPTURE(n);
      std::string plain(n, 'a');
      plain[n - 1] = static_cast<char>('b' + n % 20);
      const auto lower = encode_name(keys, dir, plain, kLongMax);
      REQUIRE(lower);
      const std::size_t sealed = 16 + (n + 15) / 16 * 16, text = (sealed * 4 + 2) / 3;
      CHECK(lower->is_long() == (text > kLongMax));
      const std::string& encoded = lower->is_long() ? lower->encoded : lower->name;
      CHECK(encoded.size() == text);
      CHECK(encoded.find('.') == std::string::npos);
      CHECK(lower->name.size() <= 255);
      CHECK(decode_name(keys, dir, encoded).value() == plain);
      if (lower->is_long()) {
        CHECK(lower->name == "ecfs.long." + hash_name(encoded));
        CHECK(lower->name_file() == "ecfs.name." + hash_name(encoded));
      }
      CHECK(seen.insert(lower->name).second);
    }
    // The border: 176 bytes are the longest name that fits 255.
    CHECK(!encode_name(keys, dir, std::string(160, 'x'), kLongMax)->is_long());
    CHECK(encode_name(keys, dir, std::string(176, 'x'), kLongMax)->is_long() == ((192 * 4 + 2) / 3 > 255));
    CHECK(encode_name(keys, dir, std::string(177, 'x'), kLongMax)->is_long());
  }

  TEST_CASE("names: which are the format's own") {
    const std::string h(43, 'A');
    for (const char* name : {"ecfs.dir", "ecfs.dir.new"}) CHECK((is_own_name(name, true) && is_own_name(name, false)));
    CHECK((is_own_name("ecfs.name." + h, true) && is_own_name("ecfs.name." + h, false)));
    for (const auto& name : {std::string("ecfs.volume"), std::string("ecfs.volume.new"), std::string("ecfs.session"), std::string("ecfs.session.new"), "ecfs.target." + h})
      CHECK((is_own_name(name, true) && !is_own_name(name, false)));
    for (const auto& name : {std::string("ecfs."), std::string("ecfs"), std::string("ecfs.dir~"), std::string("ecfs.dir.new.new"), std::string("ecfs.x.dir"), "ecfs.long." + h, "ecfs.name." + h + ".new",
                             "ecfs.name." + h.substr(1), "ecfs.name." + h.substr(1) + "B", "ecfs.name." + h + "A", std::string("Ecfs.dir"), std::string()})
      CHECK(!is_own_name(name, true));
  }

  TEST_CASE("names: what may be a conflict copy of what") {
    const EpochKeys keys = epoch_keys();
    const DirId dir = dir_id(1);
    for (const std::size_t n : {1, 16, 17, 33, 100, 160}) {
      const std::string plain(n, 'p'), lower = encode_name(keys, dir, plain, kLongMax)->name;
      const auto decodes = [&](const CopyName& c) { return decode_name(keys, dir, c.of).value_or("") == plain; };
      for (const std::string mark : {"~", ".sync-conflict-1", " (1)", "-", "A", "_conflict-of-2026", "AAAAAAAAAAAAAAAAAAAAA", "\xff", "\n"}) {
        CAPTURE(n);
        CAPTURE(mark);
        const auto readings = copy_readings(lower + mark);
        CHECK(std::ranges::count_if(readings, decodes) == 1);
        for (const auto& r : readings) {
          CHECK(r.of + r.mark == lower + mark);
          CHECK(!r.mark.empty());
          if (decodes(r)) CHECK(r.mark == mark);
        }
      }
      CHECK(std::ranges::none_of(copy_readings(lower), decodes));
    }
    const std::string h = hash_name("x"), name = "ecfs.long." + h;
    const auto one = [&](const std::string& lower, const std::string& mark) {
      const auto r = copy_readings(lower);
      return r.size() == 1 && r[0].of == name && r[0].mark == mark;
    };
    CHECK(one(name + "~", "~"));
    CHECK(one(name + ".sync", ".sync"));
    CHECK(one("ecfs.long.sync-1." + h, ".sync-1"));
    CHECK(one("ecfs.long (1)." + h, " (1)"));
    // Both at once.
    const auto both = copy_readings(name + "." + h);
    REQUIRE(both.size() == 2);
    CHECK((both[0].mark == "." + h && both[1].mark == "." + h));
    for (const auto& none : {name, std::string("ecfs.long."), "ecfs.long" + h, "ecfs.name." + h + "~", std::string("ecfs.dir~"), std::string("ecfs.x.dir"), std::string("x"), std::string(),
                             std::string(43, 'A'), "ecfs.name~." + h})
      CHECK(copy_readings(none).empty());
  }

  TEST_CASE("names: what a conflict copy is shown as") {
    CHECK(shown_copy("a", "~") == "a~");
    CHECK(shown_copy(std::string(254, 'a'), "~") == std::string(254, 'a') + "~");
    CHECK(shown_copy(std::string(255, 'a'), "~") == std::string(254, 'a') + "~");
    CHECK(shown_copy("a", std::string(254, 'm')) == "a" + std::string(254, 'm'));
    CHECK(shown_copy("a", std::string(255, 'm')).empty());
    CHECK(shown_copy("a", std::string(300, 'm')).empty());
    // Characters of two, three and four bytes are kept whole; what is no UTF-8 is cut where it must be.
    for (const std::string c : {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
      std::string plain;
      while (plain.size() + c.size() <= 255) plain += c;
      for (std::size_t mark = 1; mark < 20; ++mark) {
        const std::string shown = shown_copy(plain, std::string(mark, 'm'));
        const std::size_t kept = std::min(plain.size(), (255 - mark) / c.size() * c.size());
        CHECK(shown == plain.substr(0, kept) + std::string(mark, 'm'));
      }
    }
    CHECK(shown_copy(std::string(255, '\x80'), "mm") == std::string(253, '\x80') + "mm");
  }

  TEST_CASE("names: a smaller long_name_max") {
    const EpochKeys keys = epoch_keys();
    const auto lower = encode_name(keys, dir_id(1), std::string(40, 'x'), 64);
    REQUIRE(lower);
    CHECK(lower->is_long());
    CHECK(lower->encoded.size() > 64);
    CHECK(decode_name(keys, dir_id(1), lower->encoded).value() == std::string(40, 'x'));
    CHECK(!encode_name(keys, dir_id(1), "short", 64)->is_long());
  }

  TEST_CASE("names: what is refused") {
    const EpochKeys keys = epoch_keys();
    CHECK(is_errno(encode_name(keys, dir_id(1), std::string(256, 'x'), kLongMax).error(), ENAMETOOLONG));
    CHECK(is_errno(encode_name(keys, dir_id(1), "", kLongMax).error(), ENOENT));
  }

  TEST_CASE("names: the same name in another directory or epoch is another") {
    const EpochKeys a = epoch_keys(1), b = epoch_keys(2, 9);
    const auto one = encode_name(a, dir_id(1), "name", kLongMax).value().name;
    CHECK(encode_name(a, dir_id(1), "name", kLongMax).value().name == one);
    CHECK(encode_name(a, dir_id(2), "name", kLongMax).value().name != one);
    CHECK(encode_name(b, dir_id(1), "name", kLongMax).value().name != one);
    CHECK(decode_name(a, dir_id(2), one).error() == Errc::damaged_name);
    CHECK(decode_name(b, dir_id(1), one).error() == Errc::damaged_name);
  }

  TEST_CASE("names: every flipped bit, cut texts, other texts") {
    const EpochKeys keys = epoch_keys();
    const DirId dir = dir_id(1);
    const std::string name = encode_name(keys, dir, "Überlänge.txt", kLongMax).value().name;
    const std::string raw = from_base64url(name).value();
    for (std::size_t bit = 0; bit < raw.size() * 8; ++bit) {
      std::string bad = raw;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
      CHECK(decode_name(keys, dir, base64url(as_bytes(bad))).error() == Errc::damaged_name);
    }
    for (std::size_t n = 0; n < name.size(); ++n) CHECK(decode_name(keys, dir, name.substr(0, n)).error() == Errc::damaged_name);
    for (const char* bad : {"", ".", "ecfs.dir", "ecfs.volume", "lost+found", "Zm9v", "AAAAAAAAAAAAAAAAAAAAAA"})
      CHECK(decode_name(keys, dir, bad).error() == Errc::damaged_name);
    CHECK(decode_name(keys, dir, name).value() == "Überlänge.txt");
  }

  TEST_CASE("names: what authenticates and still is no name") {
    // Only somebody with the key can make these; a name must never lead out of its directory all the same.
    const EpochKeys keys = epoch_keys();
    const DirId dir = dir_id(1);
    using namespace std::string_literals;
    const auto padded = [](std::string s, std::size_t n = 16) {
      s.resize(n);
      return s;
    };
    CHECK(decode_name(keys, dir, sealed_name(keys, dir, padded("good"))).value() == "good");
    for (const std::string& bad : {padded(""), padded("."), padded(".."), padded("a/b"), padded("/"), padded("a\0b"s), padded("x", 32),
                                   padded("exactly sixteen!", 32), std::string(15, 'x'), std::string(17, 'x'), std::string(256, 'x')})
      CHECK(decode_name(keys, dir, sealed_name(keys, dir, bad)).error() == Errc::damaged_name);
  }

  TEST_CASE("names: ciphertext lengths tell the length to 16 bytes only") {
    const EpochKeys keys = epoch_keys();
    const auto length = [&](std::size_t n) { return encode_name(keys, dir_id(1), std::string(n, 'x'), kLongMax).value().name.size(); };
    CHECK(length(1) == length(16));
    CHECK(length(17) == length(32));
    CHECK(length(16) < length(17));
  }

  TEST_CASE("symlink targets: there and back, length by the text's length alone") {
    const KeyRing keys = key_ring();
    for (const std::size_t n : {1u, 2u, 3u, 4u, 100u, 2999u, 3000u, 4095u}) {
      CAPTURE(n);
      const std::string target(n, 't');
      const std::string text = seal_target(keys.newest(), target);
      CHECK(text != seal_target(keys.newest(), target));
      CHECK(open_target(keys, text).value() == target);
      CHECK(target_length(text.size()) == n);
    }
    CHECK(target_file("abc") == "ecfs.target." + hash_name("abc"));
    for (std::size_t n = 0; n <= 59; ++n) CHECK(!target_length(n));
    CHECK(target_length(60) == 1);
    CHECK(!target_length(61));  // no base64url text has that length
    // The name of a stored target is not taken for one.
    CHECK(!target_length(kTargetPrefix.size() + kHashLength));
  }

  TEST_CASE("symlink targets: every flipped bit, cut, unknown epoch, wrong text") {
    const KeyRing keys = key_ring();
    const std::string text = seal_target(keys.newest(), "../a/b");
    const std::string raw = from_base64url(text).value();
    for (std::size_t bit = 0; bit < raw.size() * 8; ++bit) {
      std::string bad = raw;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
      CHECK(open_target(keys, base64url(as_bytes(bad))).error() == Errc::damaged_name);
    }
    for (std::size_t n = 0; n < text.size(); ++n) CHECK(open_target(keys, text.substr(0, n)).error() == Errc::damaged_name);
    KeyRing other;
    other.add(epoch_keys(2));
    CHECK(open_target(other, text).error() == Errc::damaged_name);
    CHECK(open_target(keys, "../not/sealed").error() == Errc::damaged_name);
  }

  TEST_CASE("xattrs: names of every length, values of many") {
    const KeyRing keys = key_ring();
    const EpochKeys& k = keys.newest();
    std::set<std::string> seen;
    bool had_long = false;
    for (std::size_t n = 1; n <= 250; ++n) {
      CAPTURE(n);
      std::string name(n, 'n');
      name[0] = static_cast<char>('a' + n % 20);
      const auto lower = encode_xattr_name(k, name);
      REQUIRE(lower);
      CHECK(lower->name.size() <= 255);
      CHECK(lower->name.starts_with("user.ecfs."));
      CHECK(lower->is_long == is_long_xattr(lower->name));
      CHECK(seen.insert(lower->name).second);
      CHECK(lower->name != kDirXattr);
      const std::string value(n * 5 % 301, 'v');
      const std::string sealed = seal_xattr_value(k, *lower, name, value);
      CHECK(open_xattr_value(keys, *lower, name, sealed).value() == value);
      if (lower->is_long) {
        had_long = true;
        CHECK(long_xattr_name(keys, lower->name, sealed).value() == name);
        CHECK(sealed.size() == 4 + kSealOverhead + 2 + n + value.size());
      } else {
        CHECK(decode_xattr_name(k, lower->name).value() == name);
        CHECK(sealed.size() == 4 + kSealOverhead + value.size());
      }
    }
    CHECK(had_long);
  }

  TEST_CASE("xattrs: value of another name, other epoch, flipped bits, wrong names") {
    KeyRing keys = key_ring();
    const EpochKeys& k = keys.newest();
    const auto a = encode_xattr_name(k, "a").value(), b = encode_xattr_name(k, "b").value();
    const std::string sealed = seal_xattr_value(k, a, "a", "value");
    CHECK(open_xattr_value(keys, b, "b", sealed).error() == Errc::damaged_name);
    for (std::size_t bit = 0; bit < sealed.size() * 8; ++bit) {
      std::string bad = sealed;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
      CHECK(open_xattr_value(keys, a, "a", bad).error() == Errc::damaged_name);
    }
    for (std::size_t n = 0; n < sealed.size(); ++n)
      CHECK(open_xattr_value(keys, a, "a", sealed.substr(0, n)).error() == Errc::damaged_name);
    for (const char* bad : {"", "user.", "user.ecfs.", "user.ecfs.dir", "user.other", "user.ecfs.long.x", "security.selinux"})
      CHECK(decode_xattr_name(k, bad).error() == Errc::damaged_name);
    // A long one moved to another long name of the same length.
    const std::string long_a(200, 'a'), long_b(200, 'b');
    const auto la = encode_xattr_name(k, long_a).value(), lb = encode_xattr_name(k, long_b).value();
    REQUIRE(la.is_long);
    const std::string ls = seal_xattr_value(k, la, long_a, "value");
    CHECK(open_xattr_value(keys, lb, long_b, ls).error() == Errc::damaged_name);
    CHECK(long_xattr_name(keys, lb.name, ls).error() == Errc::damaged_name);
    CHECK(open_xattr_value(keys, la, long_b, ls).error() == Errc::damaged_name);
  }

  TEST_CASE("xattrs: a value keeps the epoch that it was sealed under") {
    KeyRing keys = key_ring();
    const auto a = encode_xattr_name(keys.newest(), "a").value();
    const std::string old = seal_xattr_value(keys.newest(), a, "a", "old");
    keys.add(epoch_keys(2, 0x33));
    CHECK(open_xattr_value(keys, a, "a", old).value() == "old");
    CHECK(encode_xattr_name(keys.newest(), "a").value().name != a.name);
  }
}
