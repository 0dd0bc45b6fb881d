// SPDX-License-Identifier: GPL-3.0-or-later
// What a subcommand gives back: a value, or a failure with its exit code and the words that main prints.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include "ecfs/exit_code.hpp"

namespace ecfs {

struct Failure {
  Exit exit = Exit::failure;
  std::string what;  // the thing: a path, an option
  std::string why;
  std::string hint;  // the next step, when there is one
};

template <class T>
class [[nodiscard]] Outcome {
 public:
  Outcome(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Outcome(Failure failure) : v_(std::in_place_index<1>, std::move(failure)) {}
  explicit operator bool() const noexcept { return v_.index() == 0; }
  T& operator*() { return get(); }
  T* operator->() { return &get(); }
  const Failure& failure() const { return *std::get_if<1>(&v_); }

 private:
  T& get() {
    if (T* p = std::get_if<0>(&v_)) return *p;
    std::abort();  // as Result: a programming error
  }
  std::variant<T, Failure> v_;
};

template <>
class [[nodiscard]] Outcome<void> {
 public:
  Outcome() = default;
  Outcome(Failure failure) : failed_(true), failure_(std::move(failure)) {}
  explicit operator bool() const noexcept { return !failed_; }
  const Failure& failure() const { return failure_; }

 private:
  bool failed_ = false;
  Failure failure_;
};

// The one mapping of our errors to exit codes (main.cpp). `otherwise` is for errnos.
Exit exit_of(std::error_code ec, Exit otherwise = Exit::failure);

Failure failure_of(std::error_code ec, std::string what, Exit otherwise = Exit::failure,
                   std::string hint = {});

// A path or word as a person can paste it into a shell: as it is where that is safe, else quoted.
std::string shell_word(std::string_view text);

// "ecfs: error: WHAT: WHY" and "ecfs: hint: ..." to stderr. Control characters come out as \xNN: names from
// elsewhere must not steer a terminal.
void print_failure(const Failure& failure);
void print_note(std::string_view text);     // "ecfs: note: ..."
void print_warning(std::string_view text);  // "ecfs: warning: ..."

// All of `text` to standard output.
Outcome<void> put(std::string_view text);

}  // namespace ecfs
