// SPDX-License-Identifier: GPL-3.0-or-later
#include "report.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "ecfs/error.hpp"

namespace ecfs {
namespace {

std::string hex_escape(unsigned char c) {
  char text[8];
  std::snprintf(text, sizeof text, "\\x%02x", c);
  return text;
}

bool control(unsigned char c) { return c < 0x20 || c == 0x7f; }

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (control(static_cast<unsigned char>(c)))
      out += hex_escape(static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out;
}

int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

// One write a line, so that the lines of several programs on one terminal do not mix.
void line(std::string_view kind, std::string_view text) {
  write_all(STDERR_FILENO, "ecfs: " + std::string(kind) + ": " + printable(text) + "\n");
}

}  // namespace

Exit exit_of(std::error_code ec, Exit otherwise) {
  if (ec.category() != ecfs_category()) return otherwise;
  switch (static_cast<Errc>(ec.value())) {
    case Errc::wrong_passphrase:
    case Errc::bad_passphrase:
      return Exit::passphrase;
    case Errc::damaged_volume:
    case Errc::kdf_too_costly:
      return Exit::damaged_volume;
    case Errc::unsupported_format:
      return Exit::unsupported;
    case Errc::not_a_volume:
      return Exit::no_volume;
    case Errc::volume_exists:
      return Exit::volume_exists;
    case Errc::locked:
      return Exit::lower_in_use;
    case Errc::damaged_header:
    case Errc::damaged_block:
    case Errc::damaged_directory:
    case Errc::damaged_name:
    case Errc::crypto_failure:
      break;
  }
  return Exit::failure;
}

Failure failure_of(std::error_code ec, std::string what, Exit otherwise, std::string hint) {
  return {exit_of(ec, otherwise), std::move(what), ec.message(), std::move(hint)};
}

std::string shell_word(std::string_view text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || c >= 0x80 ||
           std::string_view("/._-+,:@%=~").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && text[0] != '~' && std::all_of(text.begin(), text.end(), plain))
    return std::string(text);
  const bool controls =
      std::any_of(text.begin(), text.end(), [](char c) { return control(static_cast<unsigned char>(c)); });
  std::string out = controls ? "$'" : "'";
  for (const char c : text) {
    if (control(static_cast<unsigned char>(c)))
      out += hex_escape(static_cast<unsigned char>(c));
    else if (c == '\'')
      out += controls ? "\\'" : "'\\''";
    else if (c == '\\' && controls)
      out += "\\\\";
    else
      out += c;
  }
  return out + "'";
}

void print_failure(const Failure& failure) {
  line("error", failure.what.empty() ? failure.why : failure.what + ": " + failure.why);
  if (!failure.hint.empty()) line("hint", failure.hint);
}

void print_note(std::string_view text) { line("note", text); }
void print_warning(std::string_view text) { line("warning", text); }

Outcome<void> put(std::string_view text) {
  if (const int e = write_all(STDOUT_FILENO, text))
    return failure_of({e, std::system_category()}, "standard output");
  return {};
}

}  // namespace ecfs
