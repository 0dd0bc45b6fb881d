// SPDX-License-Identifier: GPL-3.0-or-later
// Result<T>: a value or a std::error_code. The member names are std::expected's (P0323), which g++ 12 lacks.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

namespace ecfs {

// Our own errors. They stay distinct up to the top, where one function turns them into an errno (daemon/ops)
// and one into an exit code (tools/ecfs/main.cpp).
enum class Errc {
  wrong_passphrase = 1,
  damaged_header,       // a file's header does not authenticate, or is cut
  damaged_block,        // a block does not authenticate
  damaged_directory,    // neither copy of a directory's id is good
  damaged_name,         // a lower name, link target or xattr that does not decode
  damaged_volume,       // the volume file does not parse or authenticate
  unsupported_format,   // a later format, suite or field
  not_a_volume,         // there is no volume file
  volume_exists,        // init over an existing volume
  kdf_too_costly,       // Argon2id costs over the limits
  bad_passphrase,       // empty, NUL inside, too long
  locked,               // another daemon holds the lower directory
  crypto_failure,       // the library failed (out of memory, no such cipher)
};

const std::error_category& ecfs_category() noexcept;
inline std::error_code make_error_code(Errc e) noexcept { return {static_cast<int>(e), ecfs_category()}; }

// An errno as an error_code.
inline std::error_code errno_code(int e) noexcept { return {e, std::system_category()}; }
inline std::error_code last_errno() noexcept { return errno_code(errno); }

// True when `ec` is exactly that errno.
inline bool is_errno(const std::error_code& ec, int e) noexcept {
  return ec.category() == std::system_category() && ec.value() == e;
}

}  // namespace ecfs

template <>
struct std::is_error_code_enum<ecfs::Errc> : std::true_type {};

namespace ecfs {

// Access to the value of a Result that holds an error is a programming error and ends the program at once.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(std::error_code ec) : v_(std::in_place_index<1>, ec) {}
  Result(Errc e) : Result(make_error_code(e)) {}

  bool has_value() const noexcept { return v_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  T& value() & { return get(); }
  const T& value() const& { return const_cast<Result*>(this)->get(); }
  T&& value() && { return std::move(get()); }
  T& operator*() & { return get(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(get()); }
  T* operator->() { return &get(); }
  const T* operator->() const { return &value(); }
  std::error_code error() const noexcept { return has_value() ? std::error_code{} : std::get<1>(v_); }
  template <class U>
  T value_or(U&& other) && {
    return has_value() ? std::move(get()) : T(std::forward<U>(other));
  }

 private:
  T& get() {
    if (!has_value()) std::abort();
    return *std::get_if<0>(&v_);
  }
  std::variant<T, std::error_code> v_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(std::error_code ec) : ec_(ec) {}
  Result(Errc e) : ec_(make_error_code(e)) {}
  bool has_value() const noexcept { return !ec_; }
  explicit operator bool() const noexcept { return has_value(); }
  std::error_code error() const noexcept { return ec_; }

 private:
  std::error_code ec_;
};

}  // namespace ecfs
