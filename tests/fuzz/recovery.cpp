// SPDX-License-Identifier: GPL-3.0-or-later
// The recovery key's written form, and the rule for a passphrase's bytes.
#include "ecfs/keyslot.hpp"

#include <cstring>

#include "fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ecfs;
  (void)fuzz::keys();
  const std::string_view text = fuzz::text({data, size});
  int bad_group = -1;
  const auto key = parse_recovery_key(text, bad_group);
  fuzz::must(bad_group >= 0 && bad_group <= 8, "a group that there is");
  if (key) {
    fuzz::must(bad_group == 0 && key->size() == kRecoveryBytes, "16 bytes");
    const SecretBuffer form = format_recovery_key(*key);
    fuzz::must(form.size() == kRecoveryText, "47 characters");
    const auto again = parse_recovery_key(fuzz::text(form.bytes()), bad_group);
    fuzz::must(again && equal_in_constant_time(again->bytes(), key->bytes()), "there and back");
  }
  const auto passphrase = normalise_passphrase(SecretBuffer(text));
  if (passphrase) {
    fuzz::must(!passphrase->empty() && passphrase->size() <= kMaxPassphrase, "a length that is allowed");
    fuzz::must(std::memchr(passphrase->data(), 0, passphrase->size()) == nullptr, "no NUL");
    fuzz::must(size - passphrase->size() <= 1, "at most one newline is cut");
  }
  return 0;
}
