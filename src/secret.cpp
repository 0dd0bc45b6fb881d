// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/secret.hpp"

#include <sodium.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace ecfs {
namespace {
// sodium_malloc needs sodium_init (page size, canary) before its first use. It is idempotent and thread-safe.
const int kInitialised = sodium_init();

void* map_pages(std::size_t size) {
  void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  ::madvise(p, size, MADV_DONTDUMP);
  return p;
}

constexpr std::size_t kPoolPage = 4096;
constexpr std::size_t kPoolGrowth = 64;  // pages a mapping: a page alone would cost two system calls each time

// Free pages of PlainPage. The pool never gives memory back: it is bounded by the descriptors, a page for each open file.
struct PagePool {
  std::mutex mutex;
  std::vector<std::uint8_t*> free;
};
PagePool& pool() {
  static PagePool* p = new PagePool;  // outlives every static that may still hold a page
  return *p;
}
}  // namespace

void wipe(void* p, std::size_t n) noexcept { sodium_memzero(p, n); }

SecretBuffer::SecretBuffer(std::size_t size) : size_(size) {
  if (kInitialised < 0 && sodium_init() < 0) throw std::bad_alloc();
  p_.reset(static_cast<std::uint8_t*>(sodium_malloc(std::max<std::size_t>(size, 1))));
  if (!p_) throw std::bad_alloc();
  std::memset(p_.get(), 0, size);
}

SecretBuffer::SecretBuffer(std::string_view text) : SecretBuffer(text.size()) {
  std::memcpy(p_.get(), text.data(), text.size());
}

void SecretBuffer::Free::operator()(std::uint8_t* p) const noexcept { sodium_free(p); }

PageBuffer::PageBuffer(PageBuffer&& o) noexcept
    : p_(std::exchange(o.p_, nullptr)), capacity_(std::exchange(o.capacity_, 0)) {}

PageBuffer& PageBuffer::operator=(PageBuffer&& o) noexcept {
  std::swap(p_, o.p_);
  std::swap(capacity_, o.capacity_);
  return *this;
}

PageBuffer::~PageBuffer() {
  if (!p_) return;
  wipe(p_, capacity_);
  ::munmap(p_, capacity_);
}

std::span<std::uint8_t> PageBuffer::reserve(std::size_t size) {
  if (size > capacity_) {
    const std::size_t want = (size + 4095) / 4096 * 4096;
    void* p = map_pages(want);
    PageBuffer old = std::move(*this);
    p_ = static_cast<std::uint8_t*>(p);
    capacity_ = want;
  }
  return {p_, size};
}

std::uint8_t* PlainPage::get() {
  if (p_) return p_;
  const std::lock_guard lock(pool().mutex);
  auto& free = pool().free;
  if (free.empty()) {
    // Room for every page first, so that reset() never allocates.
    free.reserve(free.capacity() + kPoolGrowth);
    auto* base = static_cast<std::uint8_t*>(map_pages(kPoolPage * kPoolGrowth));
    for (std::size_t i = 0; i < kPoolGrowth; ++i) free.push_back(base + i * kPoolPage);
  }
  p_ = free.back();
  free.pop_back();
  return p_;
}

void PlainPage::reset() noexcept {
  if (!p_) return;
  wipe(p_, kPoolPage);
  const std::lock_guard lock(pool().mutex);
  pool().free.push_back(std::exchange(p_, nullptr));
}

}  // namespace ecfs
