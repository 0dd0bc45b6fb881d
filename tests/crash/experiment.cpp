// SPDX-License-Identifier: GPL-3.0-or-later
#include "experiment.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <stdexcept>

#include "ecfs/keyslot.hpp"

namespace ecfs::crash {
namespace {

void must(const std::error_code& error, const char* what) {
  if (error) throw std::runtime_error(std::string(what) + ": " + error.message());
}

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  std::seed_seq seq{static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32), static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(b >> 32)};
  std::uint32_t out[2];
  seq.generate(out, out + 2);
  return out[0] | static_cast<std::uint64_t>(out[1]) << 32;
}

// The volume file, with Argon2id costs that allow many thousands of unlocks.
void make_volume(const std::string& path, const Variant& variant) {
  if (::mkdir(path.c_str(), 0755) != 0) throw std::runtime_error("cannot make " + path);
  const auto dir = lower::open_path(path, O_RDONLY | O_DIRECTORY);
  must(dir.error(), "opening the lower directory");
  std::vector<EpochMaster> masters;
  Volume volume = new_volume(variant.suite, variant.names, masters);
  SecretBuffer secret(kPassphrase.size());
  std::copy(kPassphrase.begin(), kPassphrase.end(), secret.data());
  auto slot = make_slot(volume, SlotType::passphrase, "first", secret, {1, kMinKdfMemory}, masters);
  must(slot.error(), "making a keyslot");
  volume.slots.push_back(std::move(*slot));
  const auto keys = make_key_ring(masters);
  must(keys.error(), "deriving keys");
  if (variant.names == NameMode::encrypted) {
    DirRecord record;
    random_bytes(record.id);
    record.epoch = keys->newest().epoch;
    const auto raw = seal_dir_record(*keys, record);
    must(raw.error(), "making the root's id");
    const std::string_view text(reinterpret_cast<const char*>(raw->data()), raw->size());
    must(lower::setxattr(dir->get(), nullptr, kDirXattr, text, 0).error(), "the root's id");
    must(daemon::write_synced(dir->get(), kDirFile.data(), text, true).error(), "the root's id");
  }
  must(store_volume(dir->get(), volume, *keys, true).error(), "storing the volume file");
}

}  // namespace

std::string describe(const Variant& v) {
  return std::string(word(v.suite)) + ", " + std::string(word(v.names)) + " names, " + (v.shared ? "shared" : "exclusive");
}

Experiment::Experiment(const Workload& workload, const Variant& variant, const std::string& tmpfs, std::uint64_t seed)
    : workload_(workload), seed_(seed), disk_(tmpfs), recorded_(tmpfs) {
  how_ = {{kPassphrase}, variant.shared};
  const std::string lower = recorded_.path() + "/lower";
  make_volume(lower, variant);
  history_.passphrase(kPassphrase);
  Driver driver(history_);
  std::vector<std::string> problems;
  {
    auto opened = open_volume(lower, how_, problems);
    must(opened.error(), "mounting");
    driver.attach(*opened->fs, nullptr);
    workload.before(driver);
    history_.begin(0);
    history_.synced_all();
    driver.detach();
    must(opened->fs->marker().end(opened->fs->lower_root()).error(), "unmounting");
  }
  recorder_ = std::make_unique<Recorder>(lower);
  {
    auto opened = open_volume(lower, how_, problems);
    must(opened.error(), "mounting");
    driver.attach(*opened->fs, recorder_.get());
    Random rng(seed_);
    workload.work(driver, rng);
    driver.detach();
    must(opened->fs->marker().end(opened->fs->lower_root()).error(), "unmounting");
  }
  if (!problems.empty()) throw std::runtime_error(problems.front());
  const std::string complaint = recorder_->stop();
  if (!complaint.empty()) throw std::runtime_error(complaint);
  states_ = std::make_unique<States>(recorder_->journal());
}

void Experiment::changed() {
  find_barriers(recorder_->journal());
  states_ = std::make_unique<States>(recorder_->journal());
}

Experiment::Report Experiment::try_state(std::size_t n, std::size_t fixed) {
  Random rng(mixed(seed_, n));
  const Plan asked = n < fixed ? states_->fixed(n * (states_->fixed() / std::max<std::size_t>(fixed, 1))) : states_->random(rng);
  const State state = states_->make(asked, rng);
  const Plan& plan = state.plan;
  const auto placed = disk_.place(state.tree, *recorder_->journal().pool);
  OpenWith how = how_;
  how.passphrases = history_.passphrases(plan);

  Report report{describe(plan), {}};
  const auto complain = [&](const std::string& what) { report.complaints.push_back(what); };
  // Only what is seen without changing anything is seen of the state itself.
  const Seen apart = read_independently(placed.path, how);
  const Seen first = read_really(placed.path, how, n % 4 == 1);
  for (auto& what : history_.check(plan, first, placed.ids)) complain(what);
  if (workload_.check)
    for (auto& what : workload_.check(history_, plan, first, disk_.path())) complain(what);
  for (auto& what : apart.problems) complain(what);
  if (const auto d = difference(first, apart); !d.empty()) complain("the two readers differ: " + d);
  // What the first mount mended is as it was seen, for the next mount and for whoever reads without one.
  if (n % 2 == 0) {
    const Seen again = read_independently(placed.path, how);
    for (auto& what : again.problems) complain("after a mount, " + what);
    if (const auto d = difference(first, again); !d.empty()) complain("after a mount the independent reader sees something else: " + d);
  } else {
    const Seen again = read_really(placed.path, how, false);
    for (auto& what : again.problems) complain("the second mount: " + what);
    if (const auto d = difference(first, again); !d.empty()) complain("the second mount sees something else: " + d);
  }
  return report;
}

}  // namespace ecfs::crash
