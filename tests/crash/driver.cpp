// SPDX-License-Identifier: GPL-3.0-or-later
#include "driver.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "ecfs/keyslot.hpp"

namespace ecfs::crash {
namespace {

void must(const Result<void>& r, const char* call) {
  if (!r) throw std::runtime_error(std::string("the workload's ") + call + ": " + r.error().message());
}
template <class T>
T must(Result<T> r, const char* call) {
  if (!r) throw std::runtime_error(std::string("the workload's ") + call + ": " + r.error().message());
  return std::move(*r);
}

SecretBuffer secret_of(const std::string& text) {
  SecretBuffer out(text.size());
  std::copy(text.begin(), text.end(), out.data());
  return out;
}

}  // namespace

void Driver::bind(Thing thing, ino_t ino) {
  if (recorder_) history_.bind(thing, recorder_->id_of(ino));
}

void Driver::attach(daemon::Filesystem& fs, Recorder* recorder) {
  fs_ = &fs;
  recorder_ = recorder;
  if (things_.empty()) things_.push_back({});
  things_[kRootThing].node = fs.nodes().root();
  // Ascending: a directory is older than what is in it.
  for (Thing t = 1; t < things_.size(); ++t) {
    Known& known = things_[t];
    if (known.dir == kNoThing) continue;
    const auto entry = must(fs.lookup(node(known.dir), known.name), "lookup");
    known.node = entry.node;
    bind(t, entry.attr.st_ino);
  }
}

void Driver::detach() {
  for (Known& known : things_) {
    if (known.node && fs_ && known.node != fs_->nodes().root()) fs_->nodes().forget(known.node, 1);
    known.node = nullptr;
  }
  fs_ = nullptr;
}

std::string Driver::stamp(std::size_t n) {
  std::string out;
  while (out.size() < n) {
    char text[48];
    std::snprintf(text, sizeof text, "<%llu:%zu>", static_cast<unsigned long long>(stamps_), out.size());
    out += text;
  }
  ++stamps_;
  out.resize(n);
  return out;
}

Thing Driver::made(Result<daemon::Entry> entry, Thing dir, const std::string& name, mode_t mode, const std::string& target) {
  const auto e = must(std::move(entry), "making");
  const Thing thing = history_.make(mode, target);
  things_.push_back({e.node, dir, name});
  history_.entry(dir, name, thing);
  bind(thing, e.attr.st_ino);
  return thing;
}

Thing Driver::mkdir(Thing dir, const std::string& name, mode_t mode) {
  const Call call(*this);
  return made(fs_->make_dir(node(dir), name, mode, caller()), dir, name, S_IFDIR | (mode & ~022u), {});
}

Thing Driver::create(Thing dir, const std::string& name, mode_t mode) {
  const Call call(*this);
  return made(fs_->make_node(node(dir), name, S_IFREG | mode, 0, caller()), dir, name, S_IFREG | (mode & ~022u), {});
}

Thing Driver::symlink(Thing dir, const std::string& name, const std::string& target) {
  const Call call(*this);
  return made(fs_->make_symlink(node(dir), name, target, caller()), dir, name, S_IFLNK | 0777, target);
}

void Driver::link(Thing thing, Thing dir, const std::string& name) {
  const Call call(*this);
  const auto e = must(fs_->link(node(thing), node(dir), name, caller()), "link");
  fs_->nodes().forget(e.node, 1);
  history_.entry(dir, name, thing);
}

void Driver::write(Thing file, std::uint64_t off, const std::string& bytes) {
  const Call call(*this);
  must(fs_->write(node(file), off, as_bytes(bytes), false), "write");
  std::string content = history_.now(file);
  content.resize(std::max<std::size_t>(content.size(), off + bytes.size()), '\0');
  content.replace(off, bytes.size(), bytes);
  history_.content(file, std::move(content));
}

void Driver::truncate(Thing file, std::uint64_t size) {
  const Call call(*this);
  daemon::AttrChange change;
  change.size = size;
  must(fs_->change_attributes(node(file), change), "truncate");
  std::string content = history_.now(file);
  content.resize(size, '\0');
  history_.content(file, std::move(content));
}

void Driver::punch(Thing file, std::uint64_t off, std::uint64_t len) {
  const Call call(*this);
  must(fs_->allocate(node(file), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len, caller()), "punch");
  std::string content = history_.now(file);
  if (off < content.size()) std::fill_n(content.begin() + static_cast<std::ptrdiff_t>(off), std::min<std::uint64_t>(len, content.size() - off), '\0');
  history_.content(file, std::move(content));
}

void Driver::zero(Thing file, std::uint64_t off, std::uint64_t len) {
  const Call call(*this);
  const auto done = fs_->allocate(node(file), FALLOC_FL_ZERO_RANGE, off, len, caller());
  if (!done && is_errno(done.error(), EOPNOTSUPP)) return;  // tmpfs cannot
  must(done, "zero range");
  std::string content = history_.now(file);
  content.resize(std::max<std::size_t>(content.size(), off + len), '\0');
  std::fill_n(content.begin() + static_cast<std::ptrdiff_t>(off), len, '\0');
  history_.content(file, std::move(content));
}

void Driver::allocate(Thing file, std::uint64_t off, std::uint64_t len) {
  const Call call(*this);
  must(fs_->allocate(node(file), 0, off, len, caller()), "allocate");
  std::string content = history_.now(file);
  content.resize(std::max<std::size_t>(content.size(), off + len), '\0');
  history_.content(file, std::move(content));
}

void Driver::fsync(Thing thing, bool data_only) {
  const Call call(*this);
  const bool dir = node(thing)->type == S_IFDIR;
  must(dir ? fs_->sync_dir(node(thing), data_only) : fs_->sync(node(thing), data_only), "fsync");
  history_.synced(thing, data_only);
}

void Driver::unlink(Thing dir, const std::string& name) {
  const Call call(*this);
  must(fs_->unlink(node(dir), name), "unlink");
  history_.entry(dir, name, kNoThing);
}

void Driver::rmdir(Thing dir, const std::string& name) {
  const Call call(*this);
  must(fs_->remove_dir(node(dir), name), "rmdir");
  history_.entry(dir, name, kNoThing);
}

void Driver::rename(Thing from_dir, const std::string& from, Thing to_dir, const std::string& to) {
  const Call call(*this);
  const Thing moved = history_.occupant(from_dir, from), replaced = history_.occupant(to_dir, to);
  must(fs_->rename(node(from_dir), from, node(to_dir), to, 0, caller()), "rename");
  history_.entry(from_dir, from, kNoThing);
  history_.entry(to_dir, to, moved);
  if (replaced != kNoThing && node(moved)->type == S_IFREG) history_.renamed_over(moved);
}

void Driver::exchange(Thing a_dir, const std::string& a, Thing b_dir, const std::string& b) {
  const Call call(*this);
  const Thing first = history_.occupant(a_dir, a), second = history_.occupant(b_dir, b);
  must(fs_->rename(node(a_dir), a, node(b_dir), b, RENAME_EXCHANGE, caller()), "exchange");
  history_.entry(a_dir, a, second);
  history_.entry(b_dir, b, first);
}

void Driver::chmod(Thing thing, mode_t mode) {
  const Call call(*this);
  daemon::AttrChange change;
  change.mode = mode;
  must(fs_->change_attributes(node(thing), change), "chmod");
  history_.mode(thing, mode);
}

void Driver::set_xattr(Thing thing, const std::string& name, const std::string& value) {
  const Call call(*this);
  must(fs_->set_xattr(node(thing), name.c_str(), value, 0), "setxattr");
  history_.xattr(thing, name, value);
}

void Driver::remove_xattr(Thing thing, const std::string& name) {
  const Call call(*this);
  must(fs_->remove_xattr(node(thing), name.c_str()), "removexattr");
  history_.xattr(thing, name, std::nullopt);
}

void Driver::promise(int number) {
  const Call call(*this);
  history_.promise(number);
}

void Driver::change_passphrase(const std::string& old_one, const std::string& new_one) {
  const Call call(*this);
  VolumeError error;
  Volume volume = must(load_volume(fs_->lower_root(), error), "loading the volume");
  auto unlocked = must(unlock_volume(volume, secret_of(old_one)), "unlocking");
  auto slot = must(make_slot(volume, SlotType::passphrase, "new", secret_of(new_one), {1, kMinKdfMemory}, unlocked.masters), "making a slot");
  volume.slots[unlocked.slot] = std::move(slot);
  must(store_volume(fs_->lower_root(), volume, unlocked.keys, false), "storing the volume");
  history_.passphrase(new_one);
}

}  // namespace ecfs::crash
