// SPDX-License-Identifier: GPL-3.0-or-later
// The system calls of one thread of a workload, below one directory of a target. Each looks for Ctrl-C, throws when it fails, with the path and
// the reason, and goes into a hash: two runs with one seed have the same hash exactly when they issue the same operations.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "ecfs/unique_fd.hpp"

namespace ecfs::bench {

// "fsync of mail/17: No space left on device"
class CallFailed : public std::system_error {
 public:
  CallFailed(std::string_view call, std::string_view path, int error);
};

// What was called, with which paths, offsets and lengths. What came back is not in it, and no contents.
class Trace {
 public:
  void add(std::uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3 ^ (hash_ >> 29); }
  void add(std::string_view text) {
    for (const char c : text) add(static_cast<unsigned char>(c));
    add(text.size());
  }
  void count(std::uint64_t call) { ++calls_, add(call); }
  std::uint64_t hash() const { return hash_; }
  std::uint64_t calls() const { return calls_; }
  // A thread's trace, at its place in the order of the threads.
  void join(const Trace& thread) { calls_ += thread.calls_, add(thread.hash_); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325, calls_ = 0;
};

class Calls;

// An open file. It must not outlive its Calls, and belongs to that thread.
class File {
 public:
  File(File&&) = default;
  File& operator=(File&&) = default;

  // All of it, or it throws.
  void write(std::span<const std::byte> bytes);
  void pwrite(std::span<const std::byte> bytes, std::uint64_t offset);
  // One call: how much there was, 0 at the end of the file.
  std::size_t read(std::span<std::byte> bytes);
  std::size_t pread(std::span<std::byte> bytes, std::uint64_t offset);
  void seek(std::uint64_t offset);
  void truncate(std::uint64_t size);
  void allocate(std::uint64_t size);  // posix_fallocate from 0
  void sync();                        // fsync
  void sync_data();                   // fdatasync
  struct stat stat();
  // Tells what close(2) says; the destructor does not.
  void close();
  int fd() const { return fd_.get(); }

 private:
  friend class Calls;
  File(Calls& calls, UniqueFd fd, std::string path) : calls_(&calls), fd_(std::move(fd)), path_(std::move(path)) {}

  Calls* calls_;
  UniqueFd fd_;
  std::string path_;
};

class Calls {
 public:
  // `directory` is a descriptor of the directory that all paths are below.
  explicit Calls(int directory) : directory_(directory) {}
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  File open(const std::string& path, int flags, mode_t mode = 0644);
  File create(const std::string& path) { return open(path, O_CREAT | O_TRUNC | O_WRONLY); }
  void mkdir(const std::string& path, mode_t mode = 0755);
  void rmdir(const std::string& path);
  void unlink(const std::string& path);
  void rename(const std::string& from, const std::string& to);
  void link(const std::string& from, const std::string& to);
  void symlink(const std::string& target, const std::string& path);
  void truncate(const std::string& path, std::uint64_t size);
  void chmod(const std::string& path, mode_t mode);
  void set_times(const std::string& path, const timespec (&times)[2]);
  struct stat stat(const std::string& path);   // follows links
  struct stat lstat(const std::string& path);  // does not
  // Whether there is something; any other failure than ENOENT throws.
  bool exists(const std::string& path);
  // The names in a directory without "." and "..", in the filesystem's order: sort them before acting on them, or two runs differ.
  std::vector<std::string> list(const std::string& path);
  void sync_directory(const std::string& path);
  void sync_filesystem();  // syncfs

  Trace& trace() { return trace_; }

 private:
  friend class File;
  const int directory_;
  Trace trace_;
};

}  // namespace ecfs::bench
