// SPDX-License-Identifier: GPL-3.0-or-later
// ecfs info: what the volume file says to everybody.
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "lower_volume.hpp"
#include "paths.hpp"

namespace ecfs {
namespace {

using Json = nlohmann::json;

Json as_json(const Volume& v, const std::string& path) {
  Json slots = Json::array();
  for (const Keyslot& s : v.slots)
    slots.push_back({{"type", word(s.type)},
                     {"label", s.label},
                     {"created", s.created},
                     {"argon2_ops", s.argon2_ops},
                     {"argon2_mem", s.argon2_mem}});
  return {{"lower", path},        {"format", kFormatVersion},    {"uuid", v.uuid},
          {"created", v.created}, {"cipher", word(v.suite)},     {"names", word(v.names)},
          {"epochs", v.epochs},   {"keyslots", std::move(slots)}};
}

std::string memory(std::uint64_t bytes) {
  return bytes % (1 << 20) == 0 || bytes > (10 << 20) ? std::to_string(bytes >> 20) + " MiB"
                                                      : std::to_string(bytes >> 10) + " KiB";
}

std::string as_text(const Volume& v, const std::string& path) {
  std::string epochs;
  for (const Epoch e : v.epochs) epochs += (epochs.empty() ? "" : " ") + std::to_string(e);
  std::string text = "volume   " + v.uuid + "\n" + "lower    " + shell_word(path) + "\n" + "format   " +
                     std::to_string(kFormatVersion) + "\n" + "created  " + v.created + "\n" + "cipher   " +
                     std::string(word(v.suite)) + "\n" + "names    " + std::string(word(v.names)) + "\n" +
                     "epochs   " + epochs + "\n";
  for (std::size_t i = 0; i < v.slots.size(); ++i) {
    const Keyslot& s = v.slots[i];
    text += "slot " + std::to_string(i) + "   " + std::string(word(s.type)) +
            (s.label.empty() ? "" : " \"" + s.label + "\"") + ", made " + s.created + ", Argon2id " +
            memory(s.argon2_mem) + ", " + std::to_string(s.argon2_ops) +
            (s.argon2_ops == 1 ? " pass\n" : " passes\n");
  }
  return text;
}

}  // namespace

Outcome<void> command_info(const std::string& name, Args args) {
  std::string lower;
  bool json = false;
  CommandLine app(name, "Shows what the volume file of LOWER says without a passphrase.", "LOWER");
  app.add_option("LOWER", lower, "The lower directory")->required();
  app.add_flag("--json", json, "As JSON");
  if (auto go = parse_arguments(app, std::move(args)); !go || !*go)
    return go ? Outcome<void>() : go.failure();

  const std::string path = real_path(lower).value_or(absolute_path(lower));
  auto dir = open_lower(path);
  if (!dir) return dir.failure();
  auto volume = read_volume(dir->get(), path);
  if (!volume) return volume.failure();
  return put(json ? as_json(*volume, path).dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                  : as_text(*volume, path));
}

}  // namespace ecfs
