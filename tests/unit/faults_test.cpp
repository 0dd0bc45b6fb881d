// SPDX-License-Identifier: GPL-3.0-or-later
// The lower filesystem fails at its n-th call, for every n, in every way that it can: afterwards the file is in a legal state, by the
// object at hand and by one that opens it anew, and later calls work. ECFS_SEED chooses other steps, ECFS_FAULT_STEPS how many.
#include <cstring>

#include "ecfs/lower.hpp"
#include "file_model.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;
using lower::Call;
using lower::Op;
using lower::Verdict;

struct Hooked {
  explicit Hooked(lower::Hook hook) { lower::set_hook(std::move(hook)); }
  ~Hooked() { lower::set_hook(nullptr); }
};

UniqueFd copy_of(const Bytes& raw) {
  UniqueFd fd = memory_file();
  // Zero pages stay holes, as in the file that was copied.
  REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(raw.size())) == 0);
  for (std::size_t at = 0; at < raw.size(); at += kPage) {
    const std::size_t n = std::min(kPage, raw.size() - at);
    if (std::any_of(raw.begin() + static_cast<std::ptrdiff_t>(at), raw.begin() + static_cast<std::ptrdiff_t>(at + n), [](auto c) { return c != 0; }))
      REQUIRE(::pwrite(fd.get(), raw.data() + at, n, static_cast<off_t>(at)) == static_cast<ssize_t>(n));
  }
  return fd;
}

Bytes block_bytes(const Bytes& file, std::uint64_t block, std::size_t size) {
  Bytes out(size);
  const auto from = static_cast<std::size_t>(block_start(block));
  if (from < file.size()) std::memcpy(out.data(), file.data() + from, std::min(size, file.size() - from));
  return out;
}

// A file is legal between `before` and `after` when each block is its old or its new content and the size is the old, the new or, where
// only a part was done, one between. A size below both is legal only where what is missing is zeros (a cut file that ends in holes
// ends where its last real block does). An explanation, or nothing.
std::string illegal(const Bytes& got, const Bytes& before, const Bytes& after) {
  const std::size_t low = std::min(before.size(), after.size()), high = std::max(before.size(), after.size());
  if (got.size() > high) return "size " + std::to_string(got.size()) + " is over both " + std::to_string(low) + " and " + std::to_string(high);
  for (std::size_t i = got.size(); i < low; ++i)
    if (after[i] != 0) return "size " + std::to_string(got.size()) + " lost bytes that stay in either state";
  for (std::uint64_t b = 0; b < block_count(got.size()); ++b) {
    const std::size_t n = std::min(got.size() - static_cast<std::size_t>(block_start(b)), payload(b));
    const Bytes now = block_bytes(got, b, n);
    if (now != block_bytes(before, b, n) && now != block_bytes(after, b, n)) return "block " + std::to_string(b) + " is neither old nor new";
  }
  return {};
}

struct Fault {
  const char* name;
  int error;          // fail with it
  bool for_good;      // not once: every later call that takes space fails too
  std::size_t limit;  // before failing, a write moves so many bytes; 0: none
};

constexpr Fault kFaults[] = {
    {"EIO", EIO, false, 0},
    {"ENOSPC", ENOSPC, false, 0},
    {"EDQUOT", EDQUOT, false, 0},
    {"ENOSPC for good", ENOSPC, true, 0},
    {"ENOSPC after a page", ENOSPC, true, kPage},
    {"ENOSPC inside a page", ENOSPC, true, kPage + 1024},
};

// Lower filesystems may stop inside a page only where it has no space yet: a hole, or past the end.
bool has_space(int fd, std::uint64_t off) {
  struct stat st {};
  if (::fstat(fd, &st) != 0 || off >= static_cast<std::uint64_t>(st.st_size)) return false;
  return ::lseek(fd, static_cast<off_t>(off), SEEK_DATA) == static_cast<off_t>(off);
}

// On a full filesystem, what has its space can still be written.
bool takes_space(const Call& c) { return c.op == Op::fallocate || (c.op == Op::pwrite && !has_space(c.fd, c.offset)); }

// Makes the n-th call fail as `fault` says. `calls` counts, `hit` tells whether it came so far.
lower::Hook failing(const Fault& fault, int n, int& calls, bool& hit) {
  return [&fault, n, &calls, &hit, tearing = std::uint64_t{0}](const Call& c) mutable -> Verdict {
    ++calls;
    if (hit) return fault.for_good && takes_space(c) ? Verdict{.error = fault.error} : Verdict{};
    if (tearing != 0) {  // the rest of the write that was begun
      tearing = 0;
      hit = true;
      return {.error = fault.error};
    }
    if (calls != n) return {};
    if (fault.limit == 0) {
      hit = true;
      return {.error = fault.error};
    }
    if (c.op != Op::pwrite || c.length <= fault.limit) return {};
    std::size_t limit = fault.limit;
    if (limit % kPage != 0 && has_space(c.fd, c.offset + limit / kPage * kPage)) limit = limit / kPage * kPage;
    tearing = 1;
    return {.error = 0, .limit = limit};
  };
}

struct Totals {
  std::uint64_t faults = 0, refused = 0, survived = 0;
};

// One step from one state under one kind of fault, at every call.
void try_step(const Bytes& raw, const Bytes& before, const Step& step, const Fault& fault, const KeyRing& keys, Totals& totals) {
  Bytes after = before;
  apply(after, step);
  for (int n = 1;; ++n) {
    INFO("n=", n, " ", std::string(fault.name), ", ", step.text(), ", size=", before.size());
    const UniqueFd fd = copy_of(raw);
    auto file = open_again(fd.get(), keys);
    REQUIRE(file);
    int calls = 0;
    bool hit = false;
    Result<void> result;
    {
      const Hooked hooked(failing(fault, n, calls, hit));
      result = apply(*file, step);
    }
    if (!hit) {
      // Fewer than n calls (or none that can stop half-way): nothing failed. Only ZERO_RANGE may be missing here.
      if (!result) CHECK(is_errno(result.error(), EOPNOTSUPP));
      if (n > calls) return;
      continue;
    }
    ++totals.faults;
    if (!result) {
      ++totals.refused;
      const bool expected = is_errno(result.error(), fault.error);
      CHECK_MESSAGE(expected, "another error came out: ", result.error().message());
    } else {
      ++totals.survived;
      REQUIRE(read_all(*file) == after);  // what was answered with success is done
    }
    const Bytes seen = read_all(*file);
    const std::string why = illegal(seen, before, after);
    REQUIRE_MESSAGE(why.empty(), why);

    // The same by another object, as after the daemon was killed right here.
    {
      auto again = open_again(fd.get(), keys);
      REQUIRE_MESSAGE(again, "open: ", again.error().message());
      const std::string d = difference(read_all(*again), seen);
      REQUIRE_MESSAGE(d.empty(), "opened anew it differs: ", d);
      const LowerRead lower = read_lower(raw_bytes(fd.get()), keys);
      REQUIRE_MESSAGE(lower.problem.empty(), lower.problem, ", lower size ", raw_bytes(fd.get()).size());
    }

    // Later calls work, on the object that saw the failure.
    auto later = open_again(fd.get(), keys);
    REQUIRE(later);
    EncryptedFile& use = n % 2 == 0 ? *later : *file;
    Bytes model = seen;
    for (const Step& s : {Step{Action::write, 3900, 200, 1}, Step{Action::write, model.size(), 10, 2}, step,
                          Step{Action::truncate, model.size() / 2 + 1, 0, 0}, Step{Action::write, 9000, 4000, 3}}) {
      const auto r = apply(use, s);
      if (!r) {
        REQUIRE(is_errno(r.error(), EOPNOTSUPP));
        continue;
      }
      apply(model, s);
      const LowerRead now = read_lower(raw_bytes(fd.get()), keys);
      REQUIRE_MESSAGE(now.problem.empty(), "after ", s.text(), ": ", now.problem);
    }
    const std::string d = difference(read_all(use), model);
    REQUIRE_MESSAGE(d.empty(), "later calls: ", d);
    const LowerRead lower = read_lower(raw_bytes(fd.get()), keys);
    REQUIRE_MESSAGE(lower.problem.empty(), lower.problem, ", lower size ", raw_bytes(fd.get()).size());
    REQUIRE(lower.plain == model);
  }
}

}  // namespace

TEST_SUITE("faults") {
  TEST_CASE("every lower call fails once: the file is in a legal state and goes on") {
    const KeyRing keys = key_ring();
    const std::uint64_t seed = env_number("ECFS_SEED", 7), count = env_number("ECFS_FAULT_STEPS", 1500);
    StepSource source(seed, 30000);
    MESSAGE("ECFS_SEED=", seed);
    Totals totals;
    const UniqueFd fd = memory_file();
    auto file = open_again(fd.get(), keys);
    REQUIRE(file);
    Bytes model;
    for (std::uint64_t i = 0; i < count; ++i) {
      CAPTURE(i);
      const Step step = source.next(model.size());
      const Bytes raw = raw_bytes(fd.get());
      for (const Fault& fault : kFaults) try_step(raw, model, step, fault, keys, totals);
      if (apply(*file, step)) apply(model, step);
    }
    CHECK(totals.faults > count);
    CHECK(totals.refused > totals.faults / 2);
    MESSAGE(totals.faults, " faults, ", totals.refused, " refused, ", totals.survived, " survived");
  }

  TEST_CASE("opening fails or succeeds, and changes no content") {
    const KeyRing keys = key_ring();
    for (const std::uint64_t size : {0u, 1u, 3936u, 9000u, 40000u})
      for (const int extra : {0, 5, 300 * 4096})  // a wrong hint, a growth that was cut
        for (int n = 1; n < 40; ++n) {
          CAPTURE(size);
          CAPTURE(extra);
          CAPTURE(n);
          const UniqueFd fd = memory_file();
          const Bytes model = counting(static_cast<std::size_t>(size), 3);
          {
            auto file = open_again(fd.get(), keys);
            REQUIRE(file);
            if (size > 0) REQUIRE(file->write(0, model));
          }
          if (size > 0 && extra > 0) REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(lower_size(size)) + extra) == 0);
          int calls = 0;
          bool hit = false;
          {
            const Hooked hooked(failing(kFaults[0], n, calls, hit));
            const auto file = open_again(fd.get(), keys);
            if (!hit) CHECK(file);
            if (!file) CHECK(is_errno(file.error(), EIO));
            // Where only the last block could not be read, the rest must stay readable: the size is then the lower size's word.
            if (file && hit) CHECK(file->size() == plain_size_by_hint(lower_size(size) + static_cast<std::uint64_t>(extra)).value_or(size));
          }
          const auto file = open_again(fd.get(), keys);
          REQUIRE(file);
          CHECK(read_all(*file) == model);
          if (!hit) break;
        }
  }

  TEST_CASE("reading fails with the lower error and gives nothing") {
    const KeyRing keys = key_ring();
    const UniqueFd fd = memory_file();
    auto file = open_again(fd.get(), keys);
    REQUIRE(file);
    REQUIRE(file->write(0, counting(20000)));
    Bytes out(20000, 0x55);
    {
      const Hooked hooked([](const Call& c) -> Verdict { return c.op == Op::pread ? Verdict{.error = EIO} : Verdict{}; });
      CHECK(is_errno(file->read(0, out).error(), EIO));
    }
    CHECK(out == Bytes(20000, 0x55));
    CHECK(read_all(*file) == counting(20000));
  }

  TEST_CASE("short transfers and EINTR everywhere change nothing") {
    const KeyRing keys = key_ring();
    const std::uint64_t seed = env_number("ECFS_SEED", 11);
    MESSAGE("ECFS_SEED=", seed);
    StepSource source(seed, 30000);
    const UniqueFd fd = memory_file();
    auto file = open_again(fd.get(), keys);
    REQUIRE(file);
    Bytes model;
    std::uint64_t calls = 0;
    const Hooked hooked([&](const Call& c) -> Verdict {
      ++calls;
      if (c.op != Op::pread && c.op != Op::pwrite) return {};
      if (calls % 3 == 0) return {.error = EINTR};
      return {.error = 0, .limit = 1 + calls * 7919 % 5000};
    });
    for (int i = 0; i < 3000; ++i) {
      const Step step = source.next(model.size());
      CAPTURE(i);
      CAPTURE(step.text());
      const auto r = apply(*file, step);
      if (r)
        apply(model, step);
      else
        REQUIRE(is_errno(r.error(), EOPNOTSUPP));
      REQUIRE(read_all(*file) == model);
    }
    CHECK(calls > 10000);
    CHECK(read_lower(raw_bytes(fd.get()), keys).plain == model);
  }
}
