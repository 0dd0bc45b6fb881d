// SPDX-License-Identifier: GPL-3.0-or-later
#include "passphrase.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include "ecfs/crypto.hpp"
#include "ecfs/keyslot.hpp"
#include "process.hpp"
#include "terminal.hpp"

namespace ecfs {
namespace {

constexpr int kTries = 3;
// More than any command asks for, with room for what is too long to be told so.
constexpr std::size_t kMaxStdin = 16 * 1024;

Failure no_passphrase(std::string what, std::string why, std::string hint = {}) {
  return {Exit::passphrase, std::move(what), std::move(why), std::move(hint)};
}

// A rough guess in bits, which only ever advises: kinds of characters, length, repetition.
double guess_strength(const SecretBuffer& s) {
  bool lower = false, upper = false, digit = false, other = false;
  bool seen[256] = {};
  std::size_t distinct = 0;
  for (const std::uint8_t c : s.bytes()) {
    (std::islower(c) ? lower : std::isupper(c) ? upper : std::isdigit(c) ? digit : other) = true;
    if (!seen[c]) ++distinct;
    seen[c] = true;
  }
  wipe(seen, sizeof seen);
  const double pool = (lower ? 26 : 0) + (upper ? 26 : 0) + (digit ? 10 : 0) + (other ? 20 : 0);
  const auto length = static_cast<double>(std::min(s.size(), 3 * distinct));
  // Letters alone are mostly words, in which a character holds about half of what it could.
  return length * std::log2(std::max(pool, 2.0)) * (digit || other ? 0.75 : 0.55);
}

std::string strength_hint(const SecretBuffer& s) {
  const double bits = guess_strength(s);
  const std::string advice = " Longer is stronger; five or six random words are good.";
  if (bits < 40) return "Strength: weak." + advice;
  if (bits < 65) return "Strength: fair." + advice;
  return "Strength: good.";
}

bool same(const SecretBuffer& a, const SecretBuffer& b) {
  return equal_in_constant_time(a.bytes(), b.bytes());
}

}  // namespace

void PassphraseOptions::add_to(CLI::App& app) {
  auto* file = app.add_option("--passfile", passfile, "Read the passphrase from FILE")->option_text("FILE");
  auto* program =
      app.add_option("--askpass", askpass, "Run PROGRAM with the prompt; its output is the passphrase")
          ->option_text("PROGRAM");
  auto* in = app.add_flag("--stdin", from_stdin,
                          "Read the passphrase from standard input, one a line as they are asked for");
  file->excludes(program)->excludes(in);
  program->excludes(in);
}

bool PassphraseSource::on_terminal() const {
  return options_.passfile.empty() && options_.askpass.empty() && !options_.from_stdin && open_terminal();
}

void PassphraseSource::say(const std::string& text) {
  if (const UniqueFd tty = open_terminal();
      tty && ::write(tty.get(), (text + "\n").data(), text.size() + 1) < 0)
    return;
}

bool PassphraseSource::yes(const std::string& question) {
  const UniqueFd tty = open_terminal();
  if (!tty) return false;
  const std::string answer = read_shown(tty.get(), question + " [y/N] ");
  return !answer.empty() && (answer[0] == 'y' || answer[0] == 'Y');
}

Outcome<SecretBuffer> PassphraseSource::ask(const std::string& prompt) {
  auto got = raw(prompt);
  if (!got) return got;
  auto good = normalise_passphrase(std::move(*got));
  if (!good) {
    const std::string from = !options_.passfile.empty()  ? shell_word(options_.passfile)
                             : !options_.askpass.empty() ? "--askpass " + shell_word(options_.askpass)
                             : options_.from_stdin       ? "standard input"
                                                         : "terminal";
    return failure_of(good.error(), from);
  }
  return std::move(*good);
}

Outcome<SecretBuffer> PassphraseSource::ask_new(const std::string& prompt) {
  if (!on_terminal()) return ask(prompt);
  for (int i = 0; i < kTries; ++i) {
    auto first = ask(prompt);
    if (!first) return first;
    say(strength_hint(*first));
    auto second = ask("Repeat it");
    if (!second) return second;
    if (same(*first, *second)) return first;
    say("The two differ.");
  }
  return no_passphrase("passphrase", "it was not repeated as it was given");
}

Outcome<void> PassphraseSource::finish() {
  if (!options_.from_stdin) return {};
  if (lines_ && line_ < lines_size_)
    return no_passphrase("standard input", "more lines than were asked for",
                         "give one passphrase a line, nothing else");
  return {};
}

Outcome<SecretBuffer> PassphraseSource::raw(const std::string& prompt) {
  if (!options_.passfile.empty()) return from_file();
  if (!options_.askpass.empty()) return from_program(prompt + ": ");
  if (options_.from_stdin) return from_line();
  return from_terminal(prompt + ": ");
}

Outcome<SecretBuffer> PassphraseSource::from_file() {
  const UniqueFd fd(::open(options_.passfile.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd)
    return failure_of(last_errno(), "passphrase file " + shell_word(options_.passfile), Exit::passphrase);
  SecretBuffer buffer(kMaxPassphrase + 2);
  const auto n = read_up_to(fd.get(), buffer);
  if (!n) return failure_of(n.error(), "passphrase file " + shell_word(options_.passfile), Exit::passphrase);
  buffer.shrink(*n);
  return buffer;
}

Outcome<SecretBuffer> PassphraseSource::from_program(const std::string& prompt) {
  const std::string what = "--askpass " + shell_word(options_.askpass);
  auto pipe = make_pipe();
  if (!pipe) return failure_of(pipe.error(), what);
  SpawnOptions how;
  how.stdout_fd = pipe->second.get();
  const auto pid = spawn({options_.askpass, prompt}, how);
  pipe->second.reset();
  if (!pid) return failure_of(pid.error(), what, Exit::passphrase);
  SecretBuffer buffer(kMaxPassphrase + 2);
  const auto n = read_up_to(pipe->first.get(), buffer);
  pipe->first.reset();  // one that writes on and on gets SIGPIPE
  const int status = wait_for(*pid);
  if (n && *n == buffer.size()) return failure_of(Errc::bad_passphrase, what);
  if (status != 0) return no_passphrase(what, describe_status(status));
  if (!n) return failure_of(n.error(), what, Exit::passphrase);
  buffer.shrink(*n);
  return buffer;
}

Outcome<SecretBuffer> PassphraseSource::from_line() {
  if (!lines_) {
    if (::isatty(STDIN_FILENO))
      return no_passphrase("--stdin", "standard input is a terminal, which would show the passphrase",
                           "leave --stdin out to be asked without echo");
    // All of it at once: only the end tells whether something is left over.
    lines_.emplace(kMaxStdin + 1);
    const auto n = read_up_to(STDIN_FILENO, *lines_);
    if (!n) return failure_of(n.error(), "standard input", Exit::passphrase);
    if (*n > kMaxStdin) return no_passphrase("standard input", "more than was asked for");
    lines_size_ = *n;
  }
  if (line_ >= lines_size_)
    return no_passphrase("standard input",
                         line_ == 0 ? "it holds no passphrase" : "it ended before the next passphrase");
  const std::uint8_t* start = lines_->data() + line_;
  const auto* newline = static_cast<const std::uint8_t*>(std::memchr(start, '\n', lines_size_ - line_));
  const std::size_t size = newline ? static_cast<std::size_t>(newline - start) : lines_size_ - line_;
  line_ += size + (newline ? 1 : 0);
  return SecretBuffer(std::string_view(reinterpret_cast<const char*>(start), size));
}

Outcome<SecretBuffer> PassphraseSource::from_terminal(const std::string& prompt) {
  const UniqueFd tty = open_terminal();
  if (!tty)
    return no_passphrase("passphrase", "there is no terminal to ask on",
                         "use --passfile FILE, --askpass PROGRAM or --stdin");
  return read_hidden(tty.get(), prompt);
}

}  // namespace ecfs
