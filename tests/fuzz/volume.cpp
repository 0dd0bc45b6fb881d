// SPDX-License-Identifier: GPL-3.0-or-later
// The volume file. What parses, renders and parses again; only the MAC and the checksum over it may differ.
#include "ecfs/volume.hpp"

#include "ecfs/keyslot.hpp"
#include "fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ecfs;
  const std::string_view text = fuzz::text({data, size});
  VolumeError error;
  const auto volume = parse_volume(text, error);
  if (!volume) {
    fuzz::must(!error.part.empty() && volume.error() == error.code, "a reason with every refusal");
    return 0;
  }
  for (const Keyslot& s : volume->slots)
    fuzz::must(s.argon2_ops <= kMaxKdfOps && s.argon2_mem <= kMaxKdfMemory, "costs within the limits");
  const std::string rendered = render_volume(*volume, fuzz::keys());
  const auto again = parse_volume(rendered, error);
  fuzz::must(again.has_value(), "what is written can be read");
  fuzz::must(render_volume(*again, fuzz::keys()) == rendered, "one text for one volume");
  if (verify_volume(*volume, fuzz::keys())) fuzz::must(rendered == text, "what verifies is what rendering makes");
  return 0;
}
