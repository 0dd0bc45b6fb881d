// SPDX-License-Identifier: GPL-3.0-or-later
// Every operation of the filesystem, in plain types: nodes in, attributes and bytes out, Result everywhere. It knows no libfuse.
// Attributes are the lower object's with the plaintext's size. Thread-safe.
//
//   directory.cpp   directories: ids, names, listing          filesystem.cpp   making, removing, renaming, linking
//   attributes.cpp  attributes, xattrs, times, owners          contents.cpp     reading, writing, seeking, syncing
//   foreign.cpp     conflict copies, and what is nobody's
//   shared.cpp      what is owed to others at work on the same lower directory: locks, and looking anew
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <vector>

#include "daemon/identity.hpp"
#include "daemon/node.hpp"
#include "daemon/session_marker.hpp"
#include "ecfs/crypto.hpp"
#include "ecfs/lower.hpp"
#include "ecfs/name_cipher.hpp"
#include "ecfs/volume.hpp"

namespace ecfs::daemon {

struct Entry {
  NodePtr node;
  struct stat attr;
};

// What a SETATTR asks for.
struct AttrChange {
  std::optional<mode_t> mode;
  std::optional<uid_t> uid;  // -1: chown(2) that changes nothing, but takes set-id bits away
  std::optional<gid_t> gid;
  std::optional<std::uint64_t> size;
  std::optional<timespec> atime;  // tv_nsec may be UTIME_NOW
  std::optional<timespec> mtime;
  bool kill_suidgid = false;  // the caller may not keep set-id bits over this truncation
  Caller caller;
};

// A new file of the format's own in a lower directory; nothing of it stays where that fails.
Result<void> write_synced(int dir, const char* name, std::string_view content, bool sync);

// One entry of a listing. `entry` is empty for "." and ".." and where attributes were not asked for.
struct Listed {
  std::string name;
  std::uint64_t ino = 0;
  mode_t type = 0;  // S_IFMT bits
  std::uint64_t next = 0;
  std::optional<Entry> entry;
};

struct DamageCounts {
  std::atomic<std::uint64_t> blocks{0}, headers{0}, directories{0}, names{0}, foreign{0};
  std::atomic<std::uint64_t> unwritten{0};  // requests of the kernel's cache that could not be stored: what they held is lost
};

// What the outside is told about; the messages go to the log. Plaintext names never go through it: `lower_path` is a lower path.
using DamageLog = std::function<void(const std::string& what, const std::string& lower_path)>;

class Filesystem {
 public:
  struct Config {
    UniqueFd lower_root;  // the lower directory, open for reading
    Volume volume;
    KeyRing keys;
    bool read_only = false;
    bool noatime = false;
    bool nodiratime = false;
    bool acl = false;
    bool changes_beneath = false;  // others change the lower directory: nothing that is learned of it is kept without another look
    bool shared = false;           // and we too: locks on lower files keep writers apart (`changes_beneath` is set as well)
    std::chrono::milliseconds lock_wait{30'000};  // for another's lock, before the call fails with ETIMEDOUT
    std::size_t max_dirs = 64;
    std::size_t max_files = 128;
    std::size_t max_pinned = 128;  // removed files that programs still have open
    SessionMarker marker;
    DamageLog log;
  };
  // damaged_directory where the root's names cannot be read.
  static Result<std::unique_ptr<Filesystem>> create(Config config);

  NodeTable& nodes() noexcept { return nodes_; }
  const DamageCounts& damage() const noexcept { return damage_; }
  const Volume& volume() const noexcept { return config_.volume; }
  bool read_only() const noexcept { return config_.read_only; }
  bool changes_beneath() const noexcept { return config_.changes_beneath; }
  SessionMarker& marker() noexcept { return config_.marker; }
  int lower_root() const noexcept { return config_.lower_root.get(); }

  // A program opens and closes a node, where the kernel tells (`changes_beneath`). ESTALE where the node is no longer what its name says: the
  // kernel then looks the name up again.
  Result<void> opened(const NodePtr& node);
  void closed(const NodePtr& node) noexcept { node->opens.fetch_sub(1, std::memory_order_relaxed); }
  // Nobody waits for another's lock any more: the session ends.
  void stop_waiting() noexcept { stopping_ = true; }

  // Each of these that answers an Entry has added one lookup to its node.
  Result<Entry> lookup(const NodePtr& parent, std::string_view name);
  Result<Entry> make_node(const NodePtr& parent, std::string_view name, mode_t mode, dev_t rdev, const Caller& caller);
  Result<Entry> make_dir(const NodePtr& parent, std::string_view name, mode_t mode, const Caller& caller);
  Result<Entry> make_symlink(const NodePtr& parent, std::string_view name, std::string_view target, const Caller& caller);
  Result<Entry> make_tmpfile(const NodePtr& parent, mode_t mode, const Caller& caller);
  Result<Entry> link(const NodePtr& node, const NodePtr& parent, std::string_view name, const Caller& caller);
  Result<void> unlink(const NodePtr& parent, std::string_view name);
  Result<void> remove_dir(const NodePtr& parent, std::string_view name);
  // flags: RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT (renameat2(2)); the caller is whose a whiteout is.
  Result<void> rename(const NodePtr& from_parent, std::string_view from, const NodePtr& to_parent, std::string_view to, unsigned flags,
                      const Caller& caller = {});
  Result<std::string> read_link(const NodePtr& node);
  // Entries from position `off` (0: the start) until `each` returns false, which undoes that entry's lookup.
  // quiet: the directory's atime stays as it is.
  Result<void> list(const NodePtr& dir, std::uint64_t off, bool with_attributes, const std::function<bool(const Listed&)>& each, bool quiet = false);

  Result<struct stat> attributes(const NodePtr& node);
  // When the lower object was made; 0 nanoseconds where its filesystem does not say.
  Result<timespec> birth(const NodePtr& node);
  Result<struct stat> change_attributes(const NodePtr& node, const AttrChange& change);
  Result<std::string> get_xattr(const NodePtr& node, const char* name);
  Result<void> set_xattr(const NodePtr& node, const char* name, std::string_view value, int flags, const Caller& caller = {});
  Result<std::vector<std::string>> list_xattrs(const NodePtr& node, const Caller& caller = {});
  Result<void> remove_xattr(const NodePtr& node, const char* name);
  Result<struct statvfs> stat_volume();

  // quiet: the file's atime stays as it is.
  Result<std::size_t> read(const NodePtr& node, std::uint64_t off, std::span<std::uint8_t> out, bool quiet = false);
  // kill_suidgid: the caller may not keep the file's set-id bits. cached: written back from the kernel's cache, whose own mtime, which it
  // sends apart, is the true one, and for nobody that is known. kAppend for `off`: at the end, wherever that is by now.
  static constexpr std::uint64_t kAppend = ~std::uint64_t{0};
  Result<void> write(const NodePtr& node, std::uint64_t off, std::span<const std::uint8_t> in, bool kill_suidgid, bool cached = false,
                     const Caller& caller = {});
  Result<void> allocate(const NodePtr& node, int mode, std::uint64_t off, std::uint64_t len, const Caller& caller = {});
  Result<std::uint64_t> seek(const NodePtr& node, std::uint64_t off, int whence);
  Result<void> sync(const NodePtr& node, bool data_only);
  Result<void> sync_dir(const NodePtr& node, bool data_only);

  // Between plaintext and lower paths, both from the root ("/a/b" and "x/y"). What does not exist yet gets the name that it
  // would have, as far as its directory exists.
  Result<std::string> lower_path(std::string_view plain_path);
  Result<std::string> plain_path(std::string_view lower_path);
  // For the log: where a node is, from the lower root.
  std::string lower_path_of(const NodePtr& node);

 private:
  explicit Filesystem(Config config);

  using DirPtr = std::shared_ptr<OpenDir>;
  using FilePtr = std::shared_ptr<OpenFile>;

  bool plain_names() const noexcept { return config_.volume.names == NameMode::plain; }
  void note(std::atomic<std::uint64_t>& counter, const char* what, const NodePtr& node, std::string_view lower_name = {});
  bool log_once(const char* what, const std::string& lower_path);  // true: for the first time

  // shared.cpp
  using Deadline = std::chrono::steady_clock::time_point;
  Deadline lock_deadline() const { return std::chrono::steady_clock::now() + config_.lock_wait; }
  // As they are now; with the time of birth, which is part of a node's key, where others change the lower directory.
  Result<lower::Stat> stat_of(int fd) const;
  Result<lower::Stat> stat_of(int dir, const char* name) const;
  Result<void> wait_for_lock(int fd, lower::FileLock how, Deadline deadline, const std::function<std::string()>& lower_path);
  // Is the link still the node's? Else the node has lost it.
  bool still_there(Node& node, const Link& link, int dir);
  bool record_is_current(const OpenDir& dir) const;
  bool in_cut(const timespec& ctime);
  bool any_cut();  // of whatever time
  // The same, having looked whether another mount has been cut since.
  bool cut_since(const timespec& ctime);
  // No other mount of the volume changes names while this lives; one thread at a time. Taken before names_mutex_.
  class Changing {
   public:
    explicit Changing(Filesystem& fs);
    ~Changing();
    Changing(const Changing&) = delete;
    Changing& operator=(const Changing&) = delete;
    Result<void> held;

   private:
    Filesystem& fs_;
    struct Turn {
      Filesystem* of = nullptr;
      void give_back() noexcept;
      ~Turn() { give_back(); }
    };
    Turn turn_;  // the outermost's alone
  };
  bool changing_here() const noexcept { return changer_ == std::this_thread::get_id(); }
  // May what is the format's own in a directory be mended or made? Where others are at work, only while they are kept out.
  bool may_mend() const noexcept { return !config_.read_only && (!config_.changes_beneath || changing_here()); }
  Result<void> take_volume_lock(Deadline deadline);
  // The lower file's lock, given back when this goes.
  struct LowerLock {
    int fd = -1;
    explicit LowerLock(int f) : fd(f) {}
    LowerLock(LowerLock&& o) noexcept : fd(std::exchange(o.fd, -1)) {}
    ~LowerLock() {
      if (fd >= 0) lower::unlock_file(fd);
    }
  };
  enum class Access { read, write, replace };  // replace: without a look at what is there
  Result<LowerLock> take_file(const NodePtr& node, OpenFile& open, Access access, Deadline deadline);
  // Calls work(EncryptedFile&) while nobody else changes the file: no other thread, and no other mount. `read`: only const members.
  template <class Work>
  auto use(const NodePtr& node, OpenFile& open, Access access, Work work) -> decltype(work(open.file)) {
    if (!config_.changes_beneath) {
      if (access != Access::read) {
        const std::unique_lock lock(open.mutex);
        return work(open.file);
      }
      const std::shared_lock lock(open.mutex);
      return work(open.file);
    }
    // Readers too one at a time: the lower lock is the descriptor's, not the thread's, and each looks at the file anew.
    const Deadline deadline = lock_deadline();
    const std::unique_lock lock(open.mutex);
    const auto held = take_file(node, open, access, deadline);
    if (!held) return held.error();
    return work(open.file);
  }

  // directory.cpp
  Result<DirPtr> open_dir(const NodePtr& node, bool names_held = false);  // names_held: the caller holds names_mutex_
  DirPtr make_open_dir(UniqueFd fd, bool root);
  static Result<UniqueFd> reopen_quietly(int dir);  // for listing what is held as O_PATH, without a time moving where that can be asked for
  DirPtr root_names();
  Result<DirRecord> read_dir_record(int dir);
  Result<DirRecord> new_dir_record(int dir, pid_t caller = 0);
  Result<void> write_dir_record(int dir, std::span<const std::uint8_t> raw, pid_t caller = 0);
  // A directory that was made truly empty, so that the lower call can remove or replace it; `restore` undoes that when it then fails.
  struct Emptied {
    UniqueFd dir;
    std::string record;           // content of its `ecfs.dir`, empty where there was none
    std::optional<mode_t> mode;   // where it had to be widened
    timespec mtime{};             // of the directory, which emptying must not move: a program may still have it open
  };
  // Takes away what is the format's own in an otherwise empty directory; ENOTEMPTY where anything else is in it.
  Result<Emptied> empty_dir(int parent, const char* name, const NodePtr& parent_node);
  void restore(const Emptied& dir);
  Result<LowerName> name_in(const OpenDir& dir, std::string_view name) const;
  Result<LowerName> encode_in(const OpenDir& dir, Epoch epoch, std::string_view name) const;
  Result<std::string> plain_name(const OpenDir& dir, std::string_view lower_name) const;
  // For an object of `owner`, who owns the name's file, too.
  Result<void> prepare_long_name(const OpenDir& dir, const LowerName& name, const Caller& owner);
  void drop_long_name(const NodePtr& parent, const DirPtr& dir, const LowerName& name);

  // foreign.cpp
  // The name to show: ENOENT for the format's own files, damaged_name for what is left out.
  Result<std::string> shown_name(const NodePtr& node, const DirPtr& dir, std::string_view lower_name);
  // What a conflict copy is shown as, whatever else has that name; damaged_name for what is no such copy.
  Result<std::string> copy_name(const OpenDir& dir, std::string_view lower_name) const;
  // The lower name of the conflict copy that is shown as `shown`, empty where there is none. Looks through the directory once.
  Result<std::string> copy_shown_as(const NodePtr& node, const DirPtr& dir, std::string_view shown);
  // Under copies_mutex. `soon`: what others changed a moment ago may still be missing.
  Result<void> find_copies(const NodePtr& node, OpenDir& dir, bool soon = false);
  // Is there a copy of the long name, which still needs its name file? Where that can't be known, there may be.
  bool has_copy_of(const NodePtr& node, const DirPtr& dir, const std::string& long_name);

  // attributes.cpp
  Result<struct stat> plain_attributes(const NodePtr& node, struct stat st);
  Result<std::uint64_t> symlink_size(int dir, const std::string& name, const struct stat& st);
  Result<std::string> read_target_file(const std::string& name);
  // Calls by_name(dir fd, name) where the node has a name, by_fd(fd) where it is pinned or the root. No rename or removal comes between.
  template <class ByName, class ByFd>
  auto at_node(const NodePtr& node, ByName by_name, ByFd by_fd) -> decltype(by_fd(0)) {
    if (node == nodes_.root()) return by_fd(root_dir_->fd.get());
    const std::shared_lock lock(names_mutex_);
    for (;;) {
      if (const auto pinned = nodes_.pin(*node)) return by_fd(pinned->get());
      const auto link = nodes_.where(*node);
      if (!link) return errno_code(ESTALE);
      const auto dir = open_dir(link->parent, true);
      if (!dir && config_.changes_beneath && is_errno(dir.error(), ESTALE)) {
        nodes_.remove_name(*node, *link);
        continue;
      }
      if (!dir) return dir.error();
      const int fd = (*dir)->fd.get();
      if (config_.changes_beneath && !still_there(*node, *link, fd)) continue;
      return lending(fd, S_IXUSR, [&] { return by_name(fd, link->name.c_str()); });
    }
  }
  // Calls by_fd(fd) with a descriptor (perhaps O_PATH) of exactly the node's object. Whatever changes an object goes through here: under
  // root's daemon a user may own parts of the lower directory, and put another object in the place of the one that the kernel checked.
  template <class ByFd>
  auto on_object(const NodePtr& node, ByFd by_fd) -> decltype(by_fd(0)) {
    if (node->type == S_IFREG)
      if (const auto file = nodes_.files.get(*node)) return by_fd(file->file.fd());
    if (node->type == S_IFDIR)
      if (const auto dir = nodes_.dirs.get(*node)) return by_fd(dir->fd.get());
    return at_node(
        node,
        [&](int dir, const char* name) -> decltype(by_fd(0)) {
          const auto fd = lower::open_at(dir, name, O_PATH);
          if (!fd) return fd.error();
          const auto st = stat_of(fd->get());
          if (!st) return st.error();
          if (NodeKey::of(*st) != node->key) return errno_code(ESTALE);
          return by_fd(fd->get());
        },
        by_fd);
  }
  // An ordinary user's daemon works by names where the program has an open file: the kernel let it in before the directory's bits were
  // taken away, or by another name. The owner lends itself the missing bits of `dir` for the call.
  template <class Call>
  auto lending(int dir, mode_t bits, Call call) const -> decltype(call()) {
    auto result = call();
    if (result || !is_errno(result.error(), EACCES) || ::geteuid() == 0 || config_.read_only) return result;
    const std::lock_guard lock(lending_mutex_);
    const auto st = lower::stat_fd(dir);
    if (!st || st->st_uid != ::geteuid() || (st->st_mode & bits) == bits) return call();
    const mode_t mode = st->st_mode & 07777;
    if (!lower::chmod_fd(dir, mode | bits)) return result;
    result = call();
    const auto now = lower::stat_fd(dir);
    if (now && (now->st_mode & 07777) != (mode | bits)) return result;  // a program has set another mode meanwhile
    const auto back = lower::chmod_fd(dir, mode);
    return back ? std::move(result) : decltype(result)(back.error());
  }
  Result<void> change_owner(const NodePtr& node, uid_t uid, gid_t gid, const Caller& caller);
  Result<std::vector<UniqueFd>> belongings(const NodePtr& node, int fd, const struct stat& st);
  static Result<void> kill_set_ids(const EncryptedFile& file, const Caller& caller, bool unless_capable = false);

  // contents.cpp
  Result<FilePtr> open_file(const NodePtr& node);
  Result<FilePtr> keep_open(const NodePtr& node, UniqueFd fd, int refused, const struct stat& st);
  // For reading and writing; refused: 0, or why it is for reading only.
  Result<UniqueFd> open_lower(const NodePtr& node, int& refused);
  Result<FilePtr> writable_file(const NodePtr& node);
  static Result<void> lenient(Result<void> synced);
  template <class T>
  Result<T> noted(const NodePtr& node, Result<T> result);

  // filesystem.cpp
  struct Place {
    DirPtr dir;
    LowerName name;
    bool copy = false;  // a conflict copy: not the name that encoding gives
    int fd() const noexcept { return dir->fd.get(); }
    const char* c_str() const noexcept { return name.name.c_str(); }
  };
  Result<Place> place(const NodePtr& parent, std::string_view name);
  Result<Entry> entry_at(const NodePtr& parent, const Place& place);
  // What is there already under `name`: the object whose encoded name `at` is, else the conflict copy that is shown so, to which `at` then changes.
  Result<lower::Stat> existing(const NodePtr& parent, Place& at, std::string_view name);
  Result<Entry> entry_called(const NodePtr& parent, Place& at, std::string_view name);
  bool turn_to_copy(const NodePtr& parent, Place& at, std::string_view name, std::error_code& error);
  // The conflict copy gets the name that it is shown by as its own, so that nothing else need know of copies.
  Result<void> adopt(const NodePtr& parent, Place& copy, std::string_view name, pid_t caller);
  // After the entry went from `at`: what was kept for its name.
  void clear_up(const NodePtr& parent, const Place& at, std::string_view name);
  Result<Entry> make(const NodePtr& parent, std::string_view name, const Caller& owner, const std::function<Result<Entry>(const Place&)>& how);
  Result<Entry> make_unlabelled(const NodePtr& parent, std::string_view name, const Caller& owner,
                                const std::function<Result<Entry>(const Place&)>& how);
  Result<void> label(const NodePtr& made, const Caller& caller);
  void note_made(Node& node) const noexcept;
  void leave_atime(int made) const noexcept;
  Result<void> fill_dir(const Place& at, mode_t wanted, const Caller& caller);
  // What is about to lose a name: its node, if the kernel knows it, and, if this is its last name, the descriptor that will be left.
  struct Victim {
    NodePtr node;
    std::shared_ptr<UniqueFd> fd;
    std::optional<struct stat> last;  // of a directory, in place of a descriptor; of a link whose target file goes, which tells its length
  };
  Result<Victim> victim_at(const NodePtr& parent, const Place& at, const lower::Stat& st);
  // The file of a long name goes from `from` to the owner of the object that has the name now.
  static void own_name_file(const Place& at, uid_t from, const struct stat& owner);
  Result<void> keep_length(Victim& victim, const std::string& target_file, const struct stat& st);
  // After the lower call, still under names_mutex_.
  void lose_name(const Victim& victim, const Link& name);
  // The `ecfs.target.H` that a link names, empty where it names none.
  Result<std::string> target_named(const Place& at, const struct stat& st) const;
  bool target_is_shared(const NodePtr& parent, const Place& at, const struct stat& st, const std::string& target);
  Result<void> keep_target_file(const std::string& name);
  Result<void> keep_shared_target(const NodePtr& parent, const Place& at, const struct stat& st);
  // The `ecfs.target.H` that goes with the name which a link is about to lose, empty where none does.
  Result<std::string> target_file_of(const NodePtr& parent, const Place& at, const struct stat& st);
  void drop_target_file(const std::string& name);

  std::mutex& opening(const NodeKey& key) noexcept { return opening_[key.ino % opening_.size()]; }

  // Held exclusive around a lower rename or removal and the change of the nodes that follows, shared from asking where a node is to the
  // call that uses the answer: else a chmod might hit what has since taken the name. Taken before the node table's.
  std::shared_mutex names_mutex_;
  mutable std::mutex lending_mutex_;  // one lender at a time; taken after names_mutex_
  Config config_;
  NodeTable nodes_;
  DirPtr root_dir_;
  DamageCounts damage_;
  // One thread at a time opens a file: two EncryptedFiles on one lower file would not know of each other's writes.
  std::array<std::mutex, 64> opening_;
  std::mutex log_mutex_;
  std::unordered_set<std::size_t> noted_;  // hashes of what was said once, so that it is not again
  // Where others change the lower directory.
  // One thread at a time changes names, and it alone uses lock_file_. No timed_mutex: ThreadSanitizer does not see pthread_mutex_clocklock.
  std::mutex changing_mutex_;  // guards changing_
  std::condition_variable turn_;
  bool changing_ = false;
  std::atomic<std::thread::id> changer_{};
  UniqueFd lock_file_;               // `ecfs.lock`
  std::mutex root_mutex_;            // guards root_names_, cut_looked_ and config_.marker
  DirPtr root_names_;                // root_dir_ with the root's id as it was last
  std::chrono::steady_clock::time_point cut_looked_{};
  std::atomic<bool> stopping_{false};
};

}  // namespace ecfs::daemon
