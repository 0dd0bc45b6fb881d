// SPDX-License-Identifier: GPL-3.0-or-later
#include "lower_volume.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ecfs/lower.hpp"
#include "paths.hpp"

namespace ecfs {
namespace {

constexpr int kTries = 3;

std::string_view text_of(const SecretBuffer& s) {
  return {reinterpret_cast<const char*>(s.data()), s.size()};
}

// Entries that do not make a directory "not empty": lost+found of a fresh filesystem, and what an init that
// was cut leaves.
bool counts(std::string_view name) {
  return name != "." && name != ".." && name != "lost+found" && name != kDirFile && name != "ecfs.volume.new";
}

Outcome<void> check_empty(int dir, const std::string& path) {
  if (lower::stat_at(dir, kVolumeFile.data()))
    return failure_of(Errc::volume_exists, shell_word(path), Exit::failure, "ecfs-mount mounts it");
  std::string found;
  const auto r = lower::read_dir(dir, 0, [&](const lower::Dirent& e) {
    if (counts(e.name)) found = e.name;
    return found.empty();
  });
  if (!r) return failure_of(r.error(), shell_word(path), Exit::lower);
  if (!found.empty())
    return Failure{Exit::lower, shell_word(path),
                   "a new volume needs an empty directory, this one holds " + shell_word(found),
                   found.starts_with(kReservedPrefix) || found.size() >= 22
                       ? "if it was a volume, put back its ecfs.volume from a backup"
                       : "give another directory"};
  return {};
}

// `ecfs.dir` of the root and its xattr copy, both on the disk before the volume file is: a cut init leaves no
// half volume.
Result<void> write_root_record(int dir, const KeyRing& keys) {
  DirRecord record;
  record.epoch = keys.newest().epoch;
  random_bytes(record.id);
  const auto raw = seal_dir_record(keys, record);
  if (!raw) return raw.error();
  const std::string_view text(reinterpret_cast<const char*>(raw->data()), raw->size());
  const auto x = lower::setxattr(dir, nullptr, kDirXattr, text, 0);
  if (!x && !is_errno(x.error(), EOPNOTSUPP)) return x;
  const auto fd = lower::open_at(dir, kDirFile.data(), O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (!fd) return fd.error();
  if (const auto w = lower::pwrite(fd->get(), *raw, 0); w.error) return w.error;
  if (const auto r = lower::fsync(fd->get(), false); !r) return r;
  return lower::fsync(dir, false);
}

void remove_root_record(int dir) {
  (void)lower::unlink_at(dir, kDirFile.data(), false);
  (void)lower::removexattr(dir, nullptr, kDirXattr);
}

Outcome<void> write_volume(const std::string& path, const Volume& volume, const KeyRing& keys) {
  auto dir = open_lower(path);
  if (!dir) return dir.failure();
  // Two inits at once must not mix their files; a daemon takes the same lock.
  if (const auto r = lower::lock(dir->get(), true); !r)
    return is_errno(r.error(), EWOULDBLOCK) ? failure_of(Errc::locked, shell_word(path))
                                            : failure_of(r.error(), shell_word(path), Exit::lower);
  if (auto r = check_empty(dir->get(), path); !r) return r;
  remove_root_record(dir->get());
  if (volume.names == NameMode::encrypted)
    if (const auto r = write_root_record(dir->get(), keys); !r) {
      remove_root_record(dir->get());
      return failure_of(r.error(), shell_word(path), Exit::lower);
    }
  const auto r = store_volume(dir->get(), volume, keys, true);
  if (r) return {};
  // When only the last sync failed the volume is there, and must keep its record.
  if (!lower::stat_at(dir->get(), kVolumeFile.data())) remove_root_record(dir->get());
  return failure_of(r.error(), shell_word(path), Exit::lower);
}

Outcome<void> print_recovery_key(const SecretBuffer& key, const std::string& path) {
  const SecretBuffer written = format_recovery_key(key);
  if (auto r = put("Recovery key of " + shell_word(path) + ":\n\n    "); !r) return r;
  if (auto r = put(text_of(written)); !r) return r;
  return put(
      "\n\n"
      "It opens the volume when the passphrase is lost. Write it down and keep it away from\n"
      "this computer: it is shown only now. Without the passphrase and without this key\n"
      "nobody can read the volume.\n");
}

// The slots of a new volume. The passphrase is wiped on return.
Outcome<void> make_slots(Volume& volume, const std::vector<EpochMaster>& masters, const VolumePlan& plan,
                         const SecretBuffer& passphrase, const std::string& path) {
  const auto cost = calibrate_kdf(std::chrono::milliseconds(plan.kdf_ms));
  if (!cost) return failure_of(cost.error(), "Argon2id");
  auto slot = make_slot(volume, SlotType::passphrase, plan.label, passphrase, *cost, masters);
  if (!slot) return failure_of(slot.error(), "Argon2id");
  volume.slots.push_back(std::move(*slot));
  if (!plan.recovery)
    return put("There is no recovery key: with the passphrase forgotten, nobody can read " +
               shell_word(path) + ".\n");
  const SecretBuffer key = new_recovery_key();
  auto recovery = make_slot(volume, SlotType::recovery, "", key, kRecoveryCost, masters);
  if (!recovery) return failure_of(recovery.error(), "Argon2id");
  volume.slots.push_back(std::move(*recovery));
  // Before anything is on the disk: a key that could not be shown must not be one that counts.
  return print_recovery_key(key, path);
}

}  // namespace

Outcome<UniqueFd> open_lower(const std::string& path) {
  auto fd = lower::open_path(path, O_RDONLY | O_DIRECTORY);
  if (!fd) return failure_of(fd.error(), "lower directory " + shell_word(path), Exit::lower);
  return std::move(*fd);
}

Outcome<Volume> read_volume(int lower_dir, const std::string& path) {
  VolumeError error;
  auto volume = load_volume(lower_dir, error);
  if (volume) return std::move(*volume);
  const std::string file = shell_word(path + "/" + std::string(kVolumeFile));
  if (error.code == Errc::not_a_volume)
    return Failure{Exit::no_volume, shell_word(path), "there is no ecfs volume in it",
                   "ecfs init " + shell_word(path) + " makes one"};
  if (error.code == Errc::damaged_volume)
    return Failure{Exit::damaged_volume, file, "damaged: " + error.part,
                   "nothing was changed; put this file back from a backup of " + shell_word(path)};
  if (error.code == Errc::unsupported_format)
    return Failure{Exit::unsupported, file, error.part,
                   "a later version of ecfs made it; nothing was changed"};
  if (error.code == Errc::kdf_too_costly)
    return Failure{exit_of(error.code), file, error.part,
                   "nothing was changed; put this file back from a backup of " + shell_word(path)};
  return failure_of(error.code, file, Exit::lower);
}

Outcome<Unlocked> unlock(const Volume& volume, const std::string& path, PassphraseSource& source) {
  const int tries = source.on_terminal() ? kTries : 1;
  for (int i = 1;; ++i) {
    auto secret = source.ask("Passphrase for " + shell_word(path));
    if (!secret) return secret.failure();
    auto unlocked = unlock_volume(volume, *secret);
    if (unlocked) return std::move(*unlocked);
    if (unlocked.error() == Errc::damaged_volume)
      return Failure{Exit::damaged_volume, shell_word(path + "/" + std::string(kVolumeFile)),
                     "the passphrase is right, but the file does not match its MAC: it was changed",
                     "nothing was changed; put this file back from a backup"};
    if (is_errno(unlocked.error(), ENOMEM))
      return Failure{Exit::failure, shell_word(path), "not enough memory for this volume's Argon2id costs",
                     "ecfs info " + shell_word(path) + " shows them"};
    if (unlocked.error() != Errc::wrong_passphrase) return failure_of(unlocked.error(), shell_word(path));
    int bad_group = 0;
    (void)parse_recovery_key(text_of(*secret), bad_group);
    const std::string why =
        bad_group == 0 ? unlocked.error().message()
                       : "wrong recovery key: group " + std::to_string(bad_group) + " has a typing error";
    if (i == tries) return Failure{Exit::passphrase, shell_word(path), why, ""};
    source.say(static_cast<char>(std::toupper(static_cast<unsigned char>(why[0]))) + why.substr(1) +
               ". Try again.");
  }
}

Outcome<void> check_room_for_volume(const std::string& path) {
  struct stat st;
  if (path.empty()) return open_lower(path).failure();
  if (::stat(path.c_str(), &st) == 0 || errno != ENOENT) {
    auto dir = open_lower(path);
    if (!dir) return dir.failure();
    if (auto r = check_empty(dir->get(), path); !r) return r;
    if (::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) < 0)
      return failure_of(last_errno(), "lower directory " + shell_word(path), Exit::lower);
    return {};
  }
  const std::string parent = parent_of(absolute_path(path));
  if (::faccessat(AT_FDCWD, parent.c_str(), W_OK | X_OK, AT_EACCESS) < 0)
    return failure_of(last_errno(), "lower directory " + shell_word(path) + ", in " + shell_word(parent),
                      Exit::lower);
  return {};
}

Outcome<std::vector<EpochMaster>> make_volume(const std::string& path, const VolumePlan& plan,
                                              PassphraseSource& source) {
  if (auto r = check_room_for_volume(path); !r) return r.failure();
  std::vector<EpochMaster> masters;
  Volume volume = new_volume(plan.suite, plan.names, masters);
  {
    auto passphrase = source.ask_new("New passphrase for " + shell_word(path));
    if (!passphrase) return passphrase.failure();
    if (auto r = source.finish(); !r) return r.failure();
    if (auto r = make_slots(volume, masters, plan, *passphrase, path); !r) return r.failure();
  }
  const auto keys = make_key_ring(masters);
  if (!keys) return failure_of(keys.error(), shell_word(path));

  const bool made = ::mkdir(path.c_str(), 0700) == 0;
  if (!made && errno != EEXIST)
    return failure_of(last_errno(), "lower directory " + shell_word(path), Exit::lower);
  if (auto r = write_volume(path, volume, *keys); !r) {
    if (made) ::rmdir(path.c_str());
    Failure failure = r.failure();
    failure.hint =
        "no volume was made" + std::string(plan.recovery ? ", and the recovery key above opens nothing" : "");
    return failure;
  }
  return masters;
}

void add_kdf_option(CLI::App& app, int& milliseconds) {
  app.add_option("--kdf-time", milliseconds,
                 "Time that trying one passphrase shall take, in milliseconds (1000)")
      ->option_text("MS")
      ->check(CLI::Range(1, 60000));
}

}  // namespace ecfs
