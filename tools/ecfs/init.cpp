// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs init: a new volume.
#include "commands.hpp"
#include "lower_volume.hpp"
#include "paths.hpp"

namespace ecfs {

Outcome<void> command_init(const std::string& name, Args args) {
  VolumePlan plan;
  PassphraseOptions passphrase;
  std::string lower, names = "encrypted", cipher = "aes-256-gcm";
  bool no_recovery = false;
  CommandLine app(name,
                  "Makes an encrypted volume in LOWER, which is created or must be empty.\n"
                  "Without the passphrase and the recovery key nobody can read what is in it.",
                  "LOWER");
  app.add_option("LOWER", lower, "The lower directory, which will hold the encrypted files")->required();
  app.add_option("--names", names, "encrypted (the default) or plain")
      ->option_text("MODE")
      ->check(CLI::IsMember({"encrypted", "plain"}));
  app.add_option("--cipher", cipher, "aes-256-gcm (the default) or chacha20-poly1305")
      ->option_text("CIPHER")
      ->check(CLI::IsMember({"aes-256-gcm", "chacha20-poly1305"}));
  app.add_flag("--no-recovery", no_recovery, "Make no recovery key: a forgotten passphrase is then final");
  app.add_option("--label", plan.label, "A name for the passphrase's keyslot")->option_text("TEXT");
  add_kdf_option(app, plan.kdf_ms);
  passphrase.add_to(app);
  if (auto go = parse_arguments(app, std::move(args)); !go || !*go)
    return go ? Outcome<void>() : go.failure();
  if (!valid_label(plan.label))
    return Failure{Exit::usage, "--label",
                   "it is not UTF-8, holds control characters or is longer than 255 bytes", ""};
  plan.names = names == word(NameMode::plain) ? NameMode::plain : NameMode::encrypted;
  plan.suite = cipher == word(Suite::chacha20_poly1305) ? Suite::chacha20_poly1305 : Suite::aes_256_gcm;
  plan.recovery = !no_recovery;

  PassphraseSource source(passphrase);
  const std::string path = absolute_path(lower);
  if (auto made = make_volume(path, plan, source); !made) return made.failure();
  return put("The volume is in " + shell_word(path) + ".\n");
}

}  // namespace ecfs
