// SPDX-License-Identifier: GPL-3.0-or-later
// Keys and buffers that are wiped when they go. No copy, no formatter, no comparison but in constant time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace ecfs {

// Wipes n bytes at p; the compiler may not drop it (sodium_memzero).
void wipe(void* p, std::size_t n) noexcept;

// N secret bytes in place. `Tag` makes keys of different use different types, so that they can't be swapped.
template <class Tag, std::size_t N>
class Key {
 public:
  static constexpr std::size_t kSize = N;
  Key() = default;
  explicit Key(std::span<const std::uint8_t, N> bytes) noexcept { std::copy(bytes.begin(), bytes.end(), b_.begin()); }
  Key(Key&& o) noexcept : b_(o.b_) { wipe(o.b_.data(), N); }
  Key& operator=(Key&& o) noexcept {
    if (this != &o) {
      b_ = o.b_;
      wipe(o.b_.data(), N);
    }
    return *this;
  }
  ~Key() { wipe(b_.data(), N); }

  std::span<std::uint8_t, N> bytes() noexcept { return b_; }
  std::span<const std::uint8_t, N> bytes() const noexcept { return b_; }
  const std::uint8_t* data() const noexcept { return b_.data(); }
  std::uint8_t* data() noexcept { return b_.data(); }

 private:
  std::array<std::uint8_t, N> b_{};
};

// Bytes in guarded, locked memory (sodium_malloc): passphrases, master keys. Empty when the allocation failed.
class SecretBuffer {
 public:
  SecretBuffer() = default;
  explicit SecretBuffer(std::size_t size);
  explicit SecretBuffer(std::string_view text);

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::uint8_t* data() noexcept { return p_.get(); }
  const std::uint8_t* data() const noexcept { return p_.get(); }
  std::span<std::uint8_t> bytes() noexcept { return {p_.get(), size_}; }
  std::span<const std::uint8_t> bytes() const noexcept { return {p_.get(), size_}; }
  // The first n bytes stay; the memory is wiped when the buffer goes.
  void shrink(std::size_t n) noexcept { size_ = n < size_ ? n : size_; }

 private:
  struct Free {
    void operator()(std::uint8_t* p) const noexcept;
  };
  std::unique_ptr<std::uint8_t, Free> p_;
  std::size_t size_ = 0;
};

// Page-aligned memory for plaintext and lower pages in flight: kept out of core dumps (MADV_DONTDUMP), wiped
// when it goes. It only grows; one a thread is the intended use.
class PageBuffer {
 public:
  PageBuffer() = default;
  PageBuffer(PageBuffer&& o) noexcept;
  PageBuffer& operator=(PageBuffer&& o) noexcept;
  ~PageBuffer();
  // Room for `size` bytes, contents undefined; throws std::bad_alloc, as every container does.
  std::span<std::uint8_t> reserve(std::size_t size);

 private:
  std::uint8_t* p_ = nullptr;
  std::size_t capacity_ = 0;
};

// One page of plaintext that is kept for longer than a request (a file's last block): from a pool of pages that are out of core
// dumps, wiped when it goes. Empty until get() is called; get() throws std::bad_alloc.
class PlainPage {
 public:
  PlainPage() = default;
  PlainPage(PlainPage&& o) noexcept : p_(o.p_) { o.p_ = nullptr; }
  PlainPage& operator=(PlainPage&& o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~PlainPage() { reset(); }
  std::uint8_t* get();
  void reset() noexcept;

 private:
  std::uint8_t* p_ = nullptr;
};

struct FileKeyTag;
struct KekTag;
struct WrapKeyTag;
struct LinkKeyTag;
struct XattrValueKeyTag;
struct ConfKeyTag;
struct SivKeyTag;
using FileKey = Key<FileKeyTag, 32>;
using Kek = Key<KekTag, 32>;
using WrapKey = Key<WrapKeyTag, 32>;
using LinkKey = Key<LinkKeyTag, 32>;
using XattrValueKey = Key<XattrValueKeyTag, 32>;
using ConfKey = Key<ConfKeyTag, 32>;
using SivKey = Key<SivKeyTag, 64>;

// A master key lives in guarded memory.
class MasterKey {
 public:
  static constexpr std::size_t kSize = 32;
  MasterKey() : b_(kSize) {}
  std::span<std::uint8_t, kSize> bytes() noexcept { return std::span<std::uint8_t, kSize>(b_.data(), kSize); }
  std::span<const std::uint8_t, kSize> bytes() const noexcept {
    return std::span<const std::uint8_t, kSize>(b_.data(), kSize);
  }

 private:
  SecretBuffer b_;
};

}  // namespace ecfs
