// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs key passwd: another passphrase. The volume file alone changes, so it works while the volume is
// mounted.
#include <fcntl.h>

#include <algorithm>

#include "commands.hpp"
#include "ecfs/lower.hpp"
#include "lower_volume.hpp"
#include "paths.hpp"

namespace ecfs {
namespace {

// Holds the volume file against a second change at the same time, which would silently undo the first. The
// lock is on the file, not on the directory, which a mounted daemon holds.
Outcome<UniqueFd> lock_volume(int dir, const std::string& path) {
  for (int i = 0; i < 10; ++i) {
    auto fd = lower::open_at(dir, kVolumeFile.data(), O_RDONLY | O_NONBLOCK);
    if (!fd) return failure_of(fd.error(), shell_word(path + "/" + kVolumeFile.data()), Exit::lower);
    if (const auto r = lower::lock(fd->get(), true); !r)
      return is_errno(r.error(), EWOULDBLOCK)
                 ? Failure{Exit::failure, shell_word(path), "another ecfs is changing its keys",
                           "try again when it is done"}
                 : failure_of(r.error(), shell_word(path), Exit::lower);
    // Every change puts a new file in place: the lock must be on the one that is there now.
    const auto held = lower::stat_fd(fd->get());
    const auto there = lower::stat_at(dir, kVolumeFile.data());
    if (held && there && held->st_ino == there->st_ino && held->st_dev == there->st_dev)
      return std::move(*fd);
  }
  return Failure{Exit::failure, shell_word(path), "its volume file keeps changing", ""};
}

// The volume with `slot` in the place of the passphrase slot that opened, or of all of them when the recovery
// key did.
Volume with_new_slot(const Volume& volume, Keyslot slot, std::size_t opened) {
  Volume out = volume;
  if (volume.slots[opened].type == SlotType::passphrase) {
    out.slots[opened] = std::move(slot);
    return out;
  }
  std::erase_if(out.slots, [](const Keyslot& s) { return s.type == SlotType::passphrase; });
  out.slots.insert(out.slots.begin(), std::move(slot));
  return out;
}

Outcome<void> change(int dir, const std::string& path, PassphraseSource& old_source,
                     PassphraseSource& new_source, int kdf_ms) {
  // Before the lock, for the words that a missing or damaged file gets everywhere.
  if (auto there = read_volume(dir, path); !there) return there.failure();
  auto lock = lock_volume(dir, path);
  if (!lock) return lock.failure();
  auto volume = read_volume(dir, path);
  if (!volume) return volume.failure();
  auto unlocked = unlock(*volume, path, old_source);
  if (!unlocked) return unlocked.failure();
  const Keyslot& opened = volume->slots[unlocked->slot];
  const bool by_recovery = opened.type != SlotType::passphrase;
  const auto others = std::count_if(volume->slots.begin(), volume->slots.end(),
                                    [](const Keyslot& s) { return s.type == SlotType::passphrase; });
  if (by_recovery)
    print_note("opened by the recovery key: the new passphrase replaces " +
               (others == 1 ? "the old one" : "all " + std::to_string(others) + " old ones") +
               "; the recovery key stays");
  auto secret = new_source.ask_new("New passphrase for " + shell_word(path));
  if (!secret) return secret.failure();
  for (PassphraseSource* s : {&old_source, &new_source})
    if (auto r = s->finish(); !r) return r;
  const auto cost = calibrate_kdf(std::chrono::milliseconds(kdf_ms));
  if (!cost) return failure_of(cost.error(), "Argon2id");
  auto slot = make_slot(*volume, SlotType::passphrase, by_recovery ? "" : opened.label, *secret, *cost,
                        unlocked->masters);
  if (!slot) return failure_of(slot.error(), "Argon2id");
  const Volume changed = with_new_slot(*volume, std::move(*slot), unlocked->slot);
  // The very text that will be written is tried before the old slot goes.
  VolumeError error;
  const auto again = parse_volume(render_volume(changed, unlocked->keys), error);
  if (!again)
    return Failure{Exit::failure, shell_word(path), "the new volume file would not read: " + error.part,
                   "nothing was changed"};
  if (const auto r = unlock_volume(*again, *secret); !r)
    return failure_of(r.error(), shell_word(path) + ": trying the new passphrase", Exit::failure,
                      "nothing was changed");
  if (const auto r = store_volume(dir, changed, unlocked->keys, false); !r)
    return failure_of(r.error(), shell_word(path + "/" + kVolumeFile.data()), Exit::lower);
  return {};
}

Outcome<void> key_passwd(const std::string& name, Args args) {
  PassphraseOptions old_options;
  std::string lower, new_passfile;
  int kdf_ms = 1000;
  CommandLine app(
      name,
      "Changes the passphrase of the volume in LOWER. The recovery key is taken in place of the old one.\n"
      "With --stdin the first line is the old passphrase, the second the new one.",
      "LOWER");
  app.add_option("LOWER", lower, "The lower directory")->required();
  app.add_option("--new-passfile", new_passfile, "Read the new passphrase from FILE")->option_text("FILE");
  add_kdf_option(app, kdf_ms);
  old_options.add_to(app);
  if (auto go = parse_arguments(app, std::move(args)); !go || !*go)
    return go ? Outcome<void>() : go.failure();

  // The new one comes from its own file, or, for want of one, from where the old one came; but a file holds
  // one passphrase, so with --passfile alone the new one is asked for.
  PassphraseSource old_source(old_options);
  PassphraseOptions new_options;
  new_options.passfile = new_passfile;
  PassphraseSource apart(new_options);
  const bool shared = new_passfile.empty() && old_options.passfile.empty();
  const std::string path = real_path(lower).value_or(absolute_path(lower));
  auto dir = open_lower(path);
  if (!dir) return dir.failure();
  return change(dir->get(), path, old_source, shared ? old_source : apart, kdf_ms);
}

}  // namespace

Outcome<void> command_key(const std::string& name, Args args) {
  const std::string word = args.empty() ? "" : args[0];
  if (word == "--help" || word == "-h")
    return put("Usage: " + name + " COMMAND [OPTIONS] ...\n\nCommands:\n  passwd   change the passphrase\n");
  if (word != "passwd")
    return Failure{Exit::usage, name, word.empty() ? "no command given" : shell_word(word) + " is no command",
                   name + " --help lists them"};
  args.erase(args.begin());
  return key_passwd(name + " passwd", std::move(args));
}

}  // namespace ecfs
