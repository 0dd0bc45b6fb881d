// SPDX-License-Identifier: GPL-3.0-or-later
// The volume file as somebody damages, forges or replaces it: every refusal names its part, and nothing
// crashes.
#include <fcntl.h>

#include <nlohmann/json.hpp>

#include "ecfs/keyslot.hpp"
#include "ecfs/lower.hpp"
#include "ecfs/volume.hpp"
#include "support.hpp"

namespace {

using namespace ecfs;
using test::TempDir;
using Json = nlohmann::json;

struct Made {
  Volume volume;
  std::vector<EpochMaster> masters;
  KeyRing keys;
  std::string text;
  Made() {
    volume = new_volume(Suite::aes_256_gcm, NameMode::encrypted, masters);
    for (const char* label : {"caf\u00e9 \"quoted\"", ""}) {
      auto slot = make_slot(volume, SlotType::passphrase, label, SecretBuffer(std::string_view("secret")),
                            {1, 8192}, masters);
      REQUIRE(slot);
      volume.slots.push_back(std::move(*slot));
    }
    auto ring = make_key_ring(masters);
    REQUIRE(ring);
    keys = std::move(*ring);
    text = render_volume(volume, keys);
  }
};

// The text with its checksum set right again, as somebody makes it who knows the format but not the master
// key.
std::string forged(Json j) {
  j.erase("checksum");
  j["checksum"] = base64url(hash256(as_bytes(j.dump())));
  return j.dump(2) + "\n";
}

VolumeError refusal(const std::string& text) {
  VolumeError error;
  const auto v = parse_volume(text, error);
  REQUIRE_FALSE(v);
  CHECK(v.error() == error.code);
  CHECK_FALSE(error.part.empty());
  return error;
}

bool mentions(const VolumeError& error, std::string_view what) {
  return error.part.find(what) != error.part.npos;
}

UniqueFd open_dir(const TempDir& dir) {
  auto fd = lower::open_path(dir.path(), O_RDONLY | O_DIRECTORY);
  REQUIRE(fd);
  return std::move(*fd);
}

}  // namespace

TEST_SUITE_BEGIN("volume");

TEST_CASE("volume file: every byte changed to every other value is refused") {
  const Made m;
  std::string text = m.text;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char was = text[i];
    for (int change = 1; change < 256; ++change) {
      text[i] = static_cast<char>(static_cast<unsigned char>(was) ^ change);
      VolumeError error;
      const auto v = parse_volume(text, error);
      if (v) FAIL("byte ", i, " changed by ", change, " is accepted");
      if (error.part.empty()) FAIL("byte ", i, ": no part named");
      if (error.code != Errc::damaged_volume && error.code != Errc::unsupported_format)
        FAIL("byte ", i, ": ", error.code.message());
    }
    text[i] = was;
  }
}

TEST_CASE("volume file: what is cut, empty, added to, or no volume file at all") {
  const Made m;
  for (std::size_t n = 1; n + 1 < m.text.size(); ++n)
    CHECK(mentions(refusal(m.text.substr(0, n)), "cut short"));
  CHECK(mentions(refusal(""), "empty"));
  CHECK(mentions(refusal(m.text + "\n"), "layout"));
  CHECK(mentions(refusal(" " + m.text), "layout"));
  CHECK(mentions(refusal("[1]"), "object"));
  CHECK(refusal(m.text + m.text).code == Errc::damaged_volume);
  CHECK(refusal(std::string(5, '\0')).code == Errc::damaged_volume);
  CHECK(refusal("{\"format\": 1e999}").code == Errc::damaged_volume);
  CHECK(refusal(std::string(kMaxVolumeFile + 1, ' ')).code == Errc::damaged_volume);
  CHECK(refusal(std::string(kMaxVolumeFile, '[')).code == Errc::damaged_volume);
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  deep += "1";
  deep.append(100000, '}');
  CHECK(mentions(refusal(deep), "deep"));
}

TEST_CASE("volume file: what this version does not know is named") {
  const Made m;
  const Json good = Json::parse(m.text);
  Json j = good;
  j["format"] = 2;
  // However a later format lays itself out and whatever its checksum is.
  for (const std::string& text : {j.dump(2) + "\n", forged(j), j.dump()}) {
    CHECK(refusal(text).code == Errc::unsupported_format);
    CHECK(mentions(refusal(text), "format: 2"));
  }
  j = good;
  j["compression"] = "zstd";
  CHECK(refusal(forged(j)).code == Errc::unsupported_format);
  CHECK(mentions(refusal(forged(j)), "\"compression\""));
  j = good;
  j["keyslots"][1]["token"] = true;
  CHECK(refusal(forged(j)).code == Errc::unsupported_format);
  CHECK(mentions(refusal(forged(j)), "keyslots[1]: the field \"token\""));
  j = good;
  j["suite"] = "rot13";
  CHECK(refusal(forged(j)).code == Errc::unsupported_format);
  CHECK(mentions(refusal(forged(j)), "suite: \"rot13\""));
  // The same with a checksum that does not match is damage, not a later version.
  CHECK(refusal(j.dump(2) + "\n").code == Errc::damaged_volume);
}

TEST_CASE("volume file: every field missing, of another type or out of range is refused by name") {
  const Made m;
  const Json good = Json::parse(m.text);
  for (const auto& [name, value] : good.items()) {
    Json j = good;
    j.erase(name);
    CHECK_MESSAGE(mentions(refusal(j.dump(2) + "\n"), name + ": missing"), name);
    for (const Json& other : {Json(), Json(true), Json(-1), Json(0.5), Json(1e300), Json("x"), Json(""),
                              Json::array(), Json::object(), Json(std::uint64_t{1} << 63)}) {
      if (name == "keyslots" && other == Json::array()) continue;  // nobody can unlock it, but it is whole
      j = good;
      j[name] = other;
      const VolumeError error = refusal(name == "checksum" ? j.dump(2) + "\n" : forged(j));
      CHECK_MESSAGE(mentions(error, name), name << " " << other.dump());
    }
  }
  for (const auto& [name, value] : good["keyslots"][1].items()) {
    Json j = good;
    j["keyslots"][1].erase(name);
    CHECK(mentions(refusal(forged(j)), "keyslots[1]." + name + ": missing"));
    for (const Json& other :
         {Json(), Json(false), Json(-1), Json(0.5), Json(std::string(300, 'x')), Json::array()}) {
      j = good;
      j["keyslots"][1][name] = other;
      CHECK_MESSAGE(mentions(refusal(forged(j)), "keyslots[1]." + name), name << " " << other.dump());
    }
  }
  Json j = good;
  j["epochs"] = {2, 1};
  CHECK(mentions(refusal(forged(j)), "epochs"));
  j["epochs"] = {1, 2};  // more epochs than the slots wrap
  CHECK(mentions(refusal(forged(j)), "wrapped"));
}

TEST_CASE("volume file: what is there under its name but is no file") {
  const TempDir dir;
  const UniqueFd fd = open_dir(dir);
  VolumeError error;
  REQUIRE(lower::mkdir_at(fd.get(), "ecfs.volume", 0700));
  CHECK(load_volume(fd.get(), error).error() == Errc::damaged_volume);
  REQUIRE(lower::unlink_at(fd.get(), "ecfs.volume", true));
  REQUIRE(lower::mknod_at(fd.get(), "ecfs.volume", S_IFIFO | 0600, 0));
  CHECK(load_volume(fd.get(), error).error() == Errc::damaged_volume);
  REQUIRE(lower::unlink_at(fd.get(), "ecfs.volume", false));
  REQUIRE(lower::symlink_at("/dev/zero", fd.get(), "ecfs.volume"));
  CHECK_FALSE(load_volume(fd.get(), error));
  REQUIRE(lower::unlink_at(fd.get(), "ecfs.volume", false));
  const auto big = lower::open_at(fd.get(), "ecfs.volume", O_CREAT | O_WRONLY, 0600);
  REQUIRE(big);
  REQUIRE(lower::ftruncate(big->get(), std::uint64_t{1} << 40));
  CHECK(load_volume(fd.get(), error).error() == Errc::damaged_volume);
}

TEST_CASE("volume file: replacing keeps owner and mode") {
  const TempDir dir;
  const UniqueFd fd = open_dir(dir);
  const Made m;
  REQUIRE(store_volume(fd.get(), m.volume, m.keys, true));
  CHECK((lower::stat_at(fd.get(), "ecfs.volume")->st_mode & 07777) == 0600);
  REQUIRE(lower::chmod_at(fd.get(), "ecfs.volume", 0640));
  if (::geteuid() == 0) REQUIRE(lower::chown_at(fd.get(), "ecfs.volume", 1234, 2345));
  REQUIRE(store_volume(fd.get(), m.volume, m.keys, false));
  const auto st = lower::stat_at(fd.get(), "ecfs.volume");
  REQUIRE(st);
  CHECK((st->st_mode & 07777) == 0640);
  if (::geteuid() == 0) {
    CHECK(st->st_uid == 1234);
    CHECK(st->st_gid == 2345);
  }
}

TEST_CASE("volume file: labels") {
  CHECK(valid_label(""));
  CHECK(valid_label("na\u00efve"));
  CHECK(valid_label(std::string(255, 'x')));
  CHECK_FALSE(valid_label(std::string(256, 'x')));
  CHECK_FALSE(valid_label("a\nb"));
  CHECK_FALSE(valid_label(std::string_view("a\0b", 3)));
  CHECK_FALSE(valid_label("\xff"));
}

TEST_SUITE_END();
