// SPDX-License-Identifier: GPL-3.0-or-later
// Where passphrases come from: the terminal, a file, a program, or standard input. One rule for their bytes
// everywhere (ecfs::normalise_passphrase).
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "ecfs/secret.hpp"
#include "ecfs/unique_fd.hpp"
#include "report.hpp"

namespace ecfs {

struct PassphraseOptions {
  std::string passfile;
  std::string askpass;
  bool from_stdin = false;
  void add_to(CLI::App& app);
};

// One source, asked once or more. Everything that fails here is Exit::passphrase.
class PassphraseSource {
 public:
  explicit PassphraseSource(PassphraseOptions options) : options_(std::move(options)) {}

  // Whether a person at a terminal answers, who may be asked again.
  bool on_terminal() const;
  // An existing passphrase or recovery key. The prompt has no colon.
  Outcome<SecretBuffer> ask(const std::string& prompt);
  // A new passphrase: on a terminal asked twice, with a word on its strength.
  Outcome<SecretBuffer> ask_new(const std::string& prompt);
  // After the last question: whatever standard input still holds is an error.
  Outcome<void> finish();
  // A line on the terminal, when there is one.
  void say(const std::string& text);
  // A question on the terminal; false without one.
  bool yes(const std::string& question);

 private:
  Outcome<SecretBuffer> raw(const std::string& prompt);
  Outcome<SecretBuffer> from_file();
  Outcome<SecretBuffer> from_program(const std::string& prompt);
  Outcome<SecretBuffer> from_line();
  Outcome<SecretBuffer> from_terminal(const std::string& prompt);

  PassphraseOptions options_;
  std::optional<SecretBuffer> lines_;  // all of standard input
  std::size_t line_ = 0;               // where the next line starts
  std::size_t lines_size_ = 0;
};

}  // namespace ecfs
