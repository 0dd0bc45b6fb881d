// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/volume.hpp"

#include <fcntl.h>
#include <linux/fs.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "ecfs/endian.hpp"
#include "ecfs/lower.hpp"

namespace ecfs {
namespace {

using Json = nlohmann::json;  // its objects are std::map: keys are always sorted

constexpr const char* kNewFile = "ecfs.volume.new";
// Deepest value of a good file: a member of a keyslot. Also keeps dump(), which recurses, off the stack's
// end.
constexpr int kMaxDepth = 4;

template <class E, std::size_t N>
struct Words {
  std::array<std::pair<E, std::string_view>, N> all;
  std::string_view of(E value) const noexcept {
    for (const auto& [v, w] : all)
      if (v == value) return w;
    return "?";
  }
  std::optional<E> find(std::string_view text) const noexcept {
    for (const auto& [v, w] : all)
      if (w == text) return v;
    return std::nullopt;
  }
};
constexpr Words<Suite, 2> kSuites{
    {{{Suite::aes_256_gcm, "aes-256-gcm"}, {Suite::chacha20_poly1305, "chacha20-poly1305"}}}};
constexpr Words<NameMode, 2> kNameModes{{{{NameMode::encrypted, "encrypted"}, {NameMode::plain, "plain"}}}};
constexpr Words<SlotType, 3> kSlotTypes{{{{SlotType::passphrase, "passphrase"},
                                          {SlotType::recovery, "recovery"},
                                          {SlotType::keyfile, "keyfile"}}}};

Json to_json(const Keyslot& s) {
  return {{"argon2_mem", s.argon2_mem},  {"argon2_ops", s.argon2_ops},
          {"created", s.created},        {"label", s.label},
          {"nonce", base64url(s.nonce)}, {"salt", base64url(s.salt)},
          {"type", word(s.type)},        {"wrapped", base64url(as_bytes(s.wrapped))}};
}

// Everything but `mac` and `checksum`: the compact form of this is what the MAC is over.
Json to_json(const Volume& v) {
  Json slots = Json::array();
  for (const auto& s : v.slots) slots.push_back(to_json(s));
  return {{"created", v.created},
          {"epochs", v.epochs},
          {"format", kFormatVersion},
          {"keyslots", std::move(slots)},
          {"long_name_max", v.long_name_max},
          {"names", word(v.names)},
          {"suite", word(v.suite)},
          {"uuid", v.uuid}};
}

// A string that is not UTF-8 cannot come from parse_volume nor past valid_label; should one be made in
// memory, it is replaced, so that dump() does not throw.
std::string dump(const Json& j, int indent = -1) {
  return j.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::array<std::uint8_t, 32> mac_of(const Json& canonical, const ConfKey& key) {
  std::array<std::uint8_t, 32> mac;
  keyed_hash(key, as_bytes(dump(canonical)), mac);
  return mac;
}

std::string checksum_of(Json j) {
  j.erase("checksum");
  return base64url(hash256(as_bytes(dump(j))));
}

std::string shown(std::string_view text) { return '"' + std::string(text.substr(0, 64)) + '"'; }

bool digits_like(std::string_view text, std::string_view pattern, std::string_view alphabet) {
  return text.size() == pattern.size() &&
         std::equal(text.begin(), text.end(), pattern.begin(),
                    [&](char c, char p) { return p == '#' ? alphabet.find(c) != alphabet.npos : c == p; });
}

// Takes the object apart field by field and keeps the first complaint. What is read after it is of no use.
class Parser {
 public:
  Volume volume(const Json& j) {
    Volume v;
    v.created = date(j, "", "created");
    v.epochs = epochs(j);
    v.long_name_max = static_cast<std::size_t>(number(j, "", "long_name_max", 64, 255, Errc::damaged_volume));
    v.suite = choice(j, "", "suite", kSuites);
    v.names = choice(j, "", "names", kNameModes);
    v.uuid = text(j, "", "uuid");
    if (!digits_like(v.uuid, "########-####-####-####-############", "0123456789abcdef"))
      complain(Errc::damaged_volume, "uuid: not a UUID in lower case");
    bytes(j, "", "mac", v.mac);
    text(j, "", "checksum");
    const Json* slots = field(j, "", "keyslots");
    if (slots && !slots->is_array()) complain(Errc::damaged_volume, "keyslots: not an array");
    if (slots && slots->is_array()) {
      if (slots->size() > kMaxSlots) complain(Errc::damaged_volume, "keyslots: more than 256");
      for (std::size_t i = 0; i < std::min(slots->size(), kMaxSlots); ++i)
        v.slots.push_back(slot((*slots)[i], "keyslots[" + std::to_string(i) + "]", v.epochs.size()));
    }
    no_others(j, "",
              {"checksum", "created", "epochs", "format", "keyslots", "long_name_max", "mac", "names",
               "suite", "uuid"});
    return v;
  }
  const std::optional<VolumeError>& problem() const { return problem_; }

 private:
  void complain(Errc code, std::string part) {
    if (!problem_) problem_ = VolumeError{code, std::move(part)};
  }
  static std::string at(const std::string& where, const char* name) {
    return where.empty() ? name : where + "." + name;
  }

  const Json* field(const Json& j, const std::string& where, const char* name) {
    const auto it = j.find(name);
    if (it != j.end()) return &*it;
    complain(Errc::damaged_volume, at(where, name) + ": missing");
    return nullptr;
  }
  std::string text(const Json& j, const std::string& where, const char* name) {
    const Json* f = field(j, where, name);
    if (f && f->is_string()) return f->get<std::string>();
    complain(Errc::damaged_volume, at(where, name) + ": not a string");
    return {};
  }
  std::uint64_t number(const Json& j, const std::string& where, const char* name, std::uint64_t low,
                       std::uint64_t high, Errc too_high) {
    const Json* f = field(j, where, name);
    if (!f) return low;
    if (!f->is_number_unsigned()) {
      complain(Errc::damaged_volume, at(where, name) + ": not a whole number");
      return low;
    }
    const auto n = f->get<std::uint64_t>();
    if (n < low)
      complain(Errc::damaged_volume,
               at(where, name) + ": " + std::to_string(n) + " is under " + std::to_string(low));
    if (n > high)
      complain(too_high,
               at(where, name) + ": " + std::to_string(n) + " is over the limit of " + std::to_string(high));
    return n;
  }
  template <class E, std::size_t N>
  E choice(const Json& j, const std::string& where, const char* name, const Words<E, N>& words) {
    const std::string t = text(j, where, name);
    const auto v = words.find(t);
    if (!v)
      complain(Errc::unsupported_format, at(where, name) + ": " + shown(t) + " is not known to this version");
    return v.value_or(words.all[0].first);
  }
  std::string date(const Json& j, const std::string& where, const char* name) {
    std::string t = text(j, where, name);
    if (!digits_like(t, "####-##-##T##:##:##Z", "0123456789"))
      complain(Errc::damaged_volume, at(where, name) + ": not a time like 2025-01-31T12:00:00Z");
    return t;
  }
  std::string bytes(const Json& j, const std::string& where, const char* name, std::size_t size) {
    const auto raw = from_base64url(text(j, where, name));
    if (raw && raw->size() == size) return *raw;
    complain(Errc::damaged_volume, at(where, name) + ": not " + std::to_string(size) + " bytes of base64url");
    return std::string(size, '\0');
  }
  template <std::size_t N>
  void bytes(const Json& j, const std::string& where, const char* name, std::array<std::uint8_t, N>& out) {
    const std::string raw = bytes(j, where, name, N);
    std::copy(raw.begin(), raw.end(), out.begin());
  }
  std::vector<Epoch> epochs(const Json& j) {
    std::vector<Epoch> out;
    const Json* f = field(j, "", "epochs");
    if (!f) return out;
    if (!f->is_array() || f->empty() || f->size() > kMaxEpochs) {
      complain(Errc::damaged_volume, "epochs: not an array of 1 to 256 numbers");
      return out;
    }
    for (const Json& e : *f) {
      const std::uint64_t n = e.is_number_unsigned() ? e.get<std::uint64_t>() : 0;
      if (n == 0 || n > std::numeric_limits<Epoch>::max() || (!out.empty() && n <= out.back()))
        complain(Errc::damaged_volume, "epochs: not ascending numbers from 1 on");
      out.push_back(static_cast<Epoch>(n));
    }
    return out;
  }
  Keyslot slot(const Json& j, const std::string& where, std::size_t epoch_count) {
    Keyslot s;
    if (!j.is_object()) {
      complain(Errc::damaged_volume, where + ": not an object");
      return s;
    }
    s.argon2_mem = number(j, where, "argon2_mem", kMinKdfMemory, kMaxKdfMemory, Errc::kdf_too_costly);
    if (s.argon2_mem % 1024 != 0)
      complain(Errc::damaged_volume, where + ".argon2_mem: not a multiple of 1024");
    s.argon2_ops = number(j, where, "argon2_ops", 1, kMaxKdfOps, Errc::kdf_too_costly);
    s.created = date(j, where, "created");
    s.label = text(j, where, "label");
    if (!valid_label(s.label))
      complain(Errc::damaged_volume, where + ".label: too long, or holds control characters");
    bytes(j, where, "nonce", s.nonce);
    bytes(j, where, "salt", s.salt);
    s.type = choice(j, where, "type", kSlotTypes);
    s.wrapped = bytes(j, where, "wrapped", kPackedMaster * epoch_count + kTagSize);
    no_others(j, where, {"argon2_mem", "argon2_ops", "created", "label", "nonce", "salt", "type", "wrapped"});
    return s;
  }
  void no_others(const Json& j, const std::string& where, std::initializer_list<std::string_view> known) {
    for (const auto& [name, value] : j.items())
      if (std::find(known.begin(), known.end(), name) == known.end())
        complain(Errc::unsupported_format, (where.empty() ? "" : where + ": ") + "the field " + shown(name) +
                                               " is not known to this version");
  }

  std::optional<VolumeError> problem_;
};

// The text as JSON, or what is wrong with it as a text.
std::optional<Json> read_json(std::string_view text, std::string& part) {
  if (text.empty()) return part = "the file is empty", std::nullopt;
  if (text.size() > kMaxVolumeFile) return part = "the file is larger than 1 MiB", std::nullopt;
  bool deep = false;
  const auto keep = [&deep](int depth, Json::parse_event_t, Json&) {
    deep = deep || depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  try {
    Json j = Json::parse(text.begin(), text.end(), keep);
    if (!deep && j.is_object()) return j;
    part = deep ? "the file is nested too deeply" : "the file is not a JSON object";
  } catch (const Json::parse_error& e) {
    part = e.byte > text.size() ? "the file is cut short (after byte " + std::to_string(text.size()) + ")"
                                : "the file is not JSON (byte " + std::to_string(e.byte) + ")";
  } catch (const Json::exception&) {
    part = "the file is not JSON (a number out of range)";
  }
  return std::nullopt;
}

Result<std::string> read_whole(int lower_dir, VolumeError& error) {
  const auto fail = [&error](std::error_code ec, std::string part) {
    error = {ec, std::move(part)};
    return ec;
  };
  // O_NONBLOCK: a FIFO of that name must not hold us up.
  const auto fd = lower::open_at(lower_dir, kVolumeFile.data(), O_RDONLY | O_NONBLOCK);
  if (!fd) {
    if (is_errno(fd.error(), ENOENT)) return fail(Errc::not_a_volume, "there is no ecfs.volume");
    return fail(fd.error(), "ecfs.volume cannot be opened");
  }
  const auto st = lower::stat_fd(fd->get());
  if (!st) return fail(st.error(), "ecfs.volume cannot be read");
  if (!S_ISREG(st->st_mode)) return fail(Errc::damaged_volume, "ecfs.volume is not a regular file");
  std::string text(std::min(static_cast<std::size_t>(st->st_size), kMaxVolumeFile) + 1, '\0');
  const auto n = lower::pread(fd->get(), {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}, 0);
  if (!n) return fail(n.error(), "ecfs.volume cannot be read");
  text.resize(*n);
  return text;
}

// Writes `text` to ecfs.volume.new and syncs it.
Result<void> write_new(int lower_dir, std::string_view text, const std::optional<struct stat>& old) {
  // One that a cut call left behind. It is ours by name (`ecfs.` is reserved), so it may go.
  if (const auto r = lower::unlink_at(lower_dir, kNewFile, false); !r && !is_errno(r.error(), ENOENT))
    return r;
  // 0600: with the file alone one can guess passphrases offline. Who may read it is the owner's to widen.
  const auto fd = lower::open_at(lower_dir, kNewFile, O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (!fd) return fd.error();
  const auto w = lower::pwrite(fd->get(), as_bytes(text), 0);
  if (w.error) return w.error;
  if (old) {
    // Root changing a user's passphrase must not take the file away from the user.
    const auto now = lower::stat_fd(fd->get());
    if (!now) return now.error();
    if (now->st_uid != old->st_uid || now->st_gid != old->st_gid)
      if (const auto r = lower::chown_fd(fd->get(), old->st_uid, old->st_gid); !r) return r;
    if (const auto r = lower::chmod_fd(fd->get(), old->st_mode & 07777); !r) return r;
  }
  return lower::fsync(fd->get(), false);
}

Result<void> put_in_place(int lower_dir, bool fresh) {
  const char* name = kVolumeFile.data();
  if (!fresh) return lower::rename_at(lower_dir, kNewFile, lower_dir, name, 0);
  auto r = lower::rename_at(lower_dir, kNewFile, lower_dir, name, RENAME_NOREPLACE);
  if (!r && (is_errno(r.error(), EINVAL) || is_errno(r.error(), ENOSYS) || is_errno(r.error(), EOPNOTSUPP))) {
    // NFS and others know no RENAME_NOREPLACE; a hard link does not replace either.
    r = lower::link_at(lower_dir, kNewFile, lower_dir, name);
    if (r) r = lower::unlink_at(lower_dir, kNewFile, false);
  }
  if (!r && is_errno(r.error(), EEXIST)) return Errc::volume_exists;
  return r;
}

}  // namespace

std::string_view word(Suite suite) noexcept { return kSuites.of(suite); }
std::string_view word(NameMode names) noexcept { return kNameModes.of(names); }
std::string_view word(SlotType type) noexcept { return kSlotTypes.of(type); }

bool valid_label(std::string_view label) noexcept {
  if (label.size() > kMaxLabel) return false;
  if (std::any_of(label.begin(), label.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    return false;
  try {
    (void)Json(label).dump();
  } catch (const std::exception&) {
    return false;  // not UTF-8
  }
  return true;
}

std::string render_volume(const Volume& volume, const KeyRing& keys) {
  Json j = to_json(volume);
  j["mac"] = base64url(mac_of(j, keys.newest().conf));
  j["checksum"] = checksum_of(j);
  return dump(j, 2) + "\n";
}

Result<Volume> parse_volume(std::string_view text, VolumeError& error) {
  std::string part;
  const auto j = read_json(text, part);
  if (!j) {
    error = {Errc::damaged_volume, part};
    return error.code;
  }
  // The format comes first: a later one may mean anything by the rest, the checksum included.
  const auto format = j->find("format");
  if (format == j->end() || !format->is_number_unsigned()) {
    error = {Errc::damaged_volume, format == j->end() ? "format: missing" : "format: not a whole number"};
    return error.code;
  }
  if (*format != kFormatVersion) {
    error = {Errc::unsupported_format, "format: " + dump(*format) + ", this version of ecfs reads format 1"};
    return error.code;
  }
  Parser parser;
  Volume v = parser.volume(*j);
  const auto checksum = j->find("checksum");
  if (checksum == j->end() || *checksum != checksum_of(*j)) {
    // A wrong checksum makes everything else damage too: an unknown suite is then a changed letter.
    error = {Errc::damaged_volume,
             parser.problem() ? parser.problem()->part : "checksum: does not match the rest of the file"};
    return error.code;
  }
  if (parser.problem()) {
    error = *parser.problem();
    return error.code;
  }
  const std::string again = dump(*j, 2) + "\n";
  if (again != text) {
    const auto at = std::mismatch(text.begin(), text.end(), again.begin(), again.end()).first - text.begin();
    error = {Errc::damaged_volume, "layout: byte " + std::to_string(at + 1) + " is not as ecfs writes it"};
    return error.code;
  }
  return v;
}

Result<Volume> load_volume(int lower_dir, VolumeError& error) {
  const auto text = read_whole(lower_dir, error);
  if (!text) return text.error();
  return parse_volume(*text, error);
}

Result<void> verify_volume(const Volume& volume, const KeyRing& keys) {
  if (volume.epochs.empty() || keys.epochs().empty() || keys.newest().epoch != volume.epochs.back())
    return Errc::damaged_volume;
  for (const Epoch e : volume.epochs)
    if (!keys.find(e)) return Errc::damaged_volume;
  if (!equal_in_constant_time(mac_of(to_json(volume), keys.newest().conf), volume.mac))
    return Errc::damaged_volume;
  return {};
}

Result<void> store_volume(int lower_dir, const Volume& volume, const KeyRing& keys, bool fresh) {
  const std::string text = render_volume(volume, keys);
  VolumeError error;
  // What could not be read again is never written.
  if (!parse_volume(text, error)) return error.code;
  std::optional<struct stat> old;
  if (const auto st = lower::stat_at(lower_dir, kVolumeFile.data())) {
    if (fresh) return Errc::volume_exists;
    old = *st;
  } else if (!is_errno(st.error(), ENOENT)) {
    return st.error();
  }
  auto r = write_new(lower_dir, text, old);
  if (r) r = put_in_place(lower_dir, fresh);
  if (!r) {
    (void)lower::unlink_at(lower_dir, kNewFile, false);
    return r;
  }
  return lower::fsync(lower_dir, false);
}

Result<KeyRing> make_key_ring(const std::vector<EpochMaster>& masters) {
  KeyRing ring;
  for (const auto& m : masters) {
    auto keys = EpochKeys::derive(m.epoch, m.key);
    if (!keys) return keys.error();
    ring.add(std::move(*keys));
  }
  if (ring.epochs().empty()) return Errc::crypto_failure;
  return ring;
}

SecretBuffer pack_masters(const std::vector<EpochMaster>& masters) {
  SecretBuffer raw(masters.size() * kPackedMaster);
  std::uint8_t* p = raw.data();
  for (const auto& m : masters) {
    store_le<std::uint32_t>(p, m.epoch);
    std::copy(m.key.bytes().begin(), m.key.bytes().end(), p + 4);
    p += kPackedMaster;
  }
  return raw;
}

Result<std::vector<EpochMaster>> unpack_masters(std::span<const std::uint8_t> raw) {
  if (raw.empty() || raw.size() % kPackedMaster != 0) return errno_code(EPROTO);
  std::vector<EpochMaster> masters;
  for (; !raw.empty(); raw = raw.subspan(kPackedMaster)) {
    EpochMaster m;
    m.epoch = load_le<std::uint32_t>(raw.data());
    if (m.epoch == 0 || (!masters.empty() && m.epoch <= masters.back().epoch)) return errno_code(EPROTO);
    std::copy_n(raw.data() + 4, MasterKey::kSize, m.key.bytes().begin());
    masters.push_back(std::move(m));
  }
  return masters;
}

Result<void> write_keys(int fd, const std::vector<EpochMaster>& masters) {
  const SecretBuffer raw = pack_masters(masters);
  for (std::size_t done = 0; done < raw.size();) {
    const ssize_t n = ::write(fd, raw.data() + done, raw.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return last_errno();
    done += static_cast<std::size_t>(n);
  }
  return {};
}

Result<std::vector<EpochMaster>> read_keys(int fd) {
  SecretBuffer raw(kMaxEpochs * kPackedMaster + 1);
  std::size_t size = 0;
  while (size < raw.size()) {
    const ssize_t n = ::read(fd, raw.data() + size, raw.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return last_errno();
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  return unpack_masters(raw.bytes().first(size));
}

std::string now_rfc3339() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  const std::size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {text, n};
}

}  // namespace ecfs
