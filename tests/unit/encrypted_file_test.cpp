// SPDX-License-Identifier: GPL-3.0-or-later
// EncryptedFile against a byte vector. ECFS_SEED chooses another sequence, ECFS_STEPS its length.
#include "ecfs/encrypted_file.hpp"

#include "ecfs/lower.hpp"
#include "file_model.hpp"

namespace {

using namespace ecfs;
using namespace ecfs::test;

UniqueFd temporary_file() {
  const std::string dir = std::filesystem::temp_directory_path().string();
  UniqueFd fd(::open(dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd) return fd;
  std::string name = dir + "/ecfs-unit-XXXXXX";
  fd = UniqueFd(::mkstemp(name.data()));
  REQUIRE(fd);
  ::unlink(name.c_str());
  return fd;
}

std::uint64_t lower_bytes(int fd) {
  struct stat st {};
  REQUIRE(::fstat(fd, &st) == 0);
  return static_cast<std::uint64_t>(st.st_size);
}

bool zero_between(const Bytes& b, std::uint64_t from, std::uint64_t to) {
  return std::all_of(b.begin() + static_cast<std::ptrdiff_t>(from), b.begin() + static_cast<std::ptrdiff_t>(to),
                     [](std::uint8_t c) { return c == 0; });
}

// What SEEK_DATA and SEEK_HOLE may say about a file of these bytes; a description of what is wrong, or nothing.
std::string seek_problem(const EncryptedFile& file, const Bytes& model, std::uint64_t off) {
  const auto data = file.seek_data(off), hole = file.seek_hole(off);
  if (off >= model.size()) {
    if (!is_errno(data.error(), ENXIO) || !is_errno(hole.error(), ENXIO)) return "no ENXIO at the end";
    return {};
  }
  // The last block is never a hole, so there is data behind every offset.
  if (!data) return "SEEK_DATA: " + data.error().message();
  if (*data < off || *data >= model.size()) return "SEEK_DATA out of range: " + std::to_string(*data);
  if (!zero_between(model, off, *data)) return "SEEK_DATA skipped bytes that are not zero";
  if (!hole) return "SEEK_HOLE: " + hole.error().message();
  if (*hole < off || *hole > model.size()) return "SEEK_HOLE out of range: " + std::to_string(*hole);
  if (*hole == model.size()) return {};
  const std::uint64_t b = block_of(*hole);
  if (!zero_between(model, *hole, std::min<std::uint64_t>(block_start(b) + payload(b), model.size())))
    return "SEEK_HOLE found a hole that is not zero";
  return {};
}

// One long random sequence. On a difference the seed and the last steps are printed.
void run_model(UniqueFd fd, Suite suite, std::uint64_t seed, std::uint64_t steps, std::uint64_t max_size) {
  const KeyRing keys = key_ring();
  const EncryptedFile::Options options{.suite = suite};
  StepSource source(seed, max_size);
  Bytes model;
  std::vector<std::string> trail;
  const auto report = [&](const std::string& what) {
    std::string text = what + "\n  ECFS_SEED=" + std::to_string(seed);
    for (const auto& s : trail) text += "\n  " + s;
    FAIL(text);
  };
  auto opened = EncryptedFile::open(UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)), keys, options);
  REQUIRE(opened);
  std::uint64_t unsupported = 0, reopened = 0;
  for (std::uint64_t i = 0; i < steps; ++i) {
    EncryptedFile& file = *opened;
    const Step step = source.next(model.size());
    if (trail.size() == 12) trail.erase(trail.begin());
    trail.push_back(std::to_string(i) + ": " + step.text() + " size=" + std::to_string(model.size()));
    const auto r = apply(file, step);
    if (r) {
      apply(model, step);
    } else if (is_errno(r.error(), EOPNOTSUPP) && step.action != Action::write && step.action != Action::truncate) {
      ++unsupported;  // tmpfs has no ZERO_RANGE; the file must be as it was
    } else {
      report(r.error().message());
    }
    if (file.size() != model.size()) report("size " + std::to_string(file.size()) + ", expected " + std::to_string(model.size()));
    if (lower_bytes(fd.get()) != lower_size(model.size())) report("lower size " + std::to_string(lower_bytes(fd.get())));

    // A read anywhere, also across the end.
    const std::uint64_t off = source.offset();
    Bytes got(static_cast<std::size_t>(source.below(12000)));
    const auto n = file.read(off, got);
    if (!n) report("read: " + n.error().message());
    const std::size_t want = off >= model.size() ? 0 : std::min<std::size_t>(got.size(), model.size() - static_cast<std::size_t>(off));
    if (*n != want) report("read " + std::to_string(*n) + " bytes of " + std::to_string(want));
    if (!std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(want), model.begin() + static_cast<std::ptrdiff_t>(want ? off : 0)))
      report("read at " + std::to_string(off) + " differs");

    if (source.below(8) == 0)
      if (const auto p = seek_problem(file, model, source.offset()); !p.empty()) report(p);
    if (source.below(50) == 0) {
      if (const auto d = difference(read_all(file), model); !d.empty()) report(d);
      const LowerRead lower = read_lower(raw_bytes(fd.get()), keys);
      if (!lower.problem.empty()) report("format: " + lower.problem);
      if (const auto d = difference(lower.plain, model); !d.empty()) report("format: " + d);
    }
    if (source.below(100) == 0) {
      opened = open_again(fd.get(), keys, options);
      if (!opened) report("open: " + opened.error().message());
      if (opened->size() != model.size()) report("size after open: " + std::to_string(opened->size()));
      if (lower_bytes(fd.get()) != lower_size(model.size())) report("opening changed the lower size");
      ++reopened;
    }
  }
  if (const auto d = difference(read_all(*opened), model); !d.empty()) report(d);
  if (steps >= 1000) CHECK(reopened > 0);
  MESSAGE("seed ", seed, ": ", steps, " steps, opened again ", reopened, " times, ", unsupported, " not supported here");
}

std::uint64_t seed() { return env_number("ECFS_SEED", 20260101); }
std::uint64_t steps() { return env_number("ECFS_STEPS", 100000); }

// A file of `model`, to damage.
UniqueFd file_with(const Bytes& model, const KeyRing& keys, Suite suite = Suite::aes_256_gcm) {
  UniqueFd fd = memory_file();
  auto file = open_again(fd.get(), keys, {.suite = suite});
  REQUIRE(file);
  if (!model.empty()) REQUIRE(file->write(0, model));
  return fd;
}

void poke(int fd, std::uint64_t at, const Bytes& bytes) {
  REQUIRE(::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at)) == static_cast<ssize_t>(bytes.size()));
}

void flip(int fd, std::uint64_t at) {
  std::uint8_t b = 0;
  REQUIRE(::pread(fd, &b, 1, static_cast<off_t>(at)) == 1);
  poke(fd, at, {static_cast<std::uint8_t>(b ^ 1)});
}

}  // namespace

TEST_SUITE("file model") {
  TEST_CASE("random steps on a memory file, AES-256-GCM") { run_model(memory_file(), Suite::aes_256_gcm, seed(), steps(), 40000); }

  TEST_CASE("random steps on a memory file, ChaCha20-Poly1305") {
    run_model(memory_file(), Suite::chacha20_poly1305, seed() + 1, steps() / 4, 20000);
  }

  TEST_CASE("random steps on a file of the temporary directory") {
    run_model(temporary_file(), Suite::aes_256_gcm, seed() + 2, steps() / 2, 40000);
  }

  TEST_CASE("every size up to three blocks: written, read, reopened, cut by one, grown by one") {
    const KeyRing keys = key_ring();
    for (const std::uint64_t size : {1u, 2u, 100u, 3935u, 3936u, 3937u, 4064u, 7999u, 8000u, 8001u, 8128u, 12063u, 12064u, 12065u}) {
      CAPTURE(size);
      Bytes model = counting(static_cast<std::size_t>(size), 1);
      const UniqueFd fd = file_with(model, keys);
      CHECK(lower_bytes(fd.get()) == lower_size(size));
      auto file = open_again(fd.get(), keys);
      REQUIRE(file);
      CHECK(file->size() == size);
      CHECK(read_all(*file) == model);
      REQUIRE(file->truncate(size - 1));
      model.resize(static_cast<std::size_t>(size - 1));
      CHECK(read_lower(raw_bytes(fd.get()), keys).plain == model);
      REQUIRE(file->truncate(size + 1));
      model.resize(static_cast<std::size_t>(size + 1));
      const LowerRead lower = read_lower(raw_bytes(fd.get()), keys);
      CHECK(lower.problem.empty());
      CHECK(lower.plain == model);
    }
  }

  TEST_CASE("a small file takes one lower page") {
    const KeyRing keys = key_ring();
    const UniqueFd fd = file_with(counting(3936), keys);
    struct stat st {};
    REQUIRE(::fstat(fd.get(), &st) == 0);
    CHECK(st.st_size == 4096 + 3936);
    CHECK(st.st_blocks * 512 <= 4096);
  }

  TEST_CASE("a file that becomes empty draws another key") {
    const KeyRing keys = key_ring();
    const UniqueFd fd = file_with(counting(10), keys);
    const Bytes before = raw_bytes(fd.get());
    auto file = open_again(fd.get(), keys);
    REQUIRE(file);
    REQUIRE(file->write(0, counting(10)));
    const Bytes same_key = raw_bytes(fd.get());
    CHECK(std::equal(before.begin(), before.begin() + kHeaderSize, same_key.begin()));
    CHECK(before != same_key);  // a fresh nonce, so other bytes
    REQUIRE(file->truncate(0));
    CHECK(lower_bytes(fd.get()) == 0);
    REQUIRE(file->write(0, counting(10)));
    const Bytes other_key = raw_bytes(fd.get());
    CHECK(!std::equal(before.begin() + 16, before.begin() + kHeaderSize, other_key.begin() + 16));
  }

  TEST_CASE("sparse files: far ends, the largest size, past it") {
    const KeyRing keys = key_ring();
    const UniqueFd fd = temporary_file();
    auto file = open_again(fd.get(), keys);
    REQUIRE(file);
    const std::uint64_t far = std::uint64_t{1} << 40;
    REQUIRE(file->write(far, counting(10, 7)));
    CHECK(file->size() == far + 10);
    CHECK(lower_bytes(fd.get()) == lower_size(far + 10));
    Bytes got(20);
    CHECK(file->read(far - 10, got).value() == 20);
    CHECK(zero_between(got, 0, 10));
    CHECK(std::equal(got.begin() + 10, got.end(), counting(10, 7).begin()));
    CHECK(file->seek_hole(0).value() == 0);
    const auto data = file->seek_data(0);
    REQUIRE(data);
    CHECK(*data > far - kPayload);
    CHECK(*data <= far);
    struct stat st {};
    REQUIRE(::fstat(fd.get(), &st) == 0);
    CHECK(st.st_blocks * 512 <= 65536);
    auto again = open_again(fd.get(), keys);
    REQUIRE(again);
    CHECK(again->size() == far + 10);

    CHECK(is_errno(file->truncate(kMaxPlainSize + 1).error(), EFBIG));
    CHECK(is_errno(file->write(kMaxPlainSize, counting(1)).error(), EFBIG));
    CHECK(is_errno(file->allocate(kMaxPlainSize, 1, true).error(), EFBIG));
    CHECK(file->size() == far + 10);
    CHECK(read_all(*open_again(file_with(counting(5), keys).get(), keys)) == counting(5));
  }

  TEST_CASE("damage: exactly the reads that touch it fail") {
    const KeyRing keys = key_ring();
    const Bytes model = counting(5 * 4064, 3);
    for (const std::uint64_t block : {0u, 1u, 3u}) {
      const UniqueFd fd = file_with(model, keys);
      flip(fd.get(), page_off(block) + 2000);
      auto file = open_again(fd.get(), keys);
      REQUIRE(file);
      CHECK(file->size() == model.size());
      for (std::uint64_t b = 0; b < block_count(model.size()); ++b) {
        CAPTURE(block);
        CAPTURE(b);
        Bytes got(100);
        const auto n = file->read(block_start(b) + 50, got);
        if (b == block) {
          CHECK(n.error() == Errc::damaged_block);
        } else {
          REQUIRE(n);
          CHECK(std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(*n), model.begin() + static_cast<std::ptrdiff_t>(block_start(b) + 50)));
        }
      }
      Bytes all(model.size());
      CHECK(file->read(0, all).error() == Errc::damaged_block);
      // Part of a damaged block cannot be replaced, the whole of it can.
      CHECK(file->write(block_start(block) + 1, counting(1)).error() == Errc::damaged_block);
      REQUIRE(file->write(block_start(block), counting(payload(block))));
      CHECK(file->read(0, all).value() == all.size());
    }
  }

  TEST_CASE("damage: a damaged last block keeps its size by the hint") {
    const KeyRing keys = key_ring();
    const UniqueFd fd = file_with(counting(9000), keys);
    flip(fd.get(), page_off(2) + 100);
    auto file = open_again(fd.get(), keys);
    REQUIRE(file);
    CHECK(file->size() == 9000);
    Bytes got(8000);
    CHECK(file->read(0, got).value() == 8000);
    CHECK(file->read(8000, got).error() == Errc::damaged_block);
  }

  TEST_CASE("damage: swapped blocks, a block of another file, a swapped header") {
    const KeyRing keys = key_ring();
    const Bytes model = counting(4 * 4064, 3);
    {
      const UniqueFd fd = file_with(model, keys);
      const Bytes raw = raw_bytes(fd.get());
      poke(fd.get(), page_off(1), Bytes(raw.begin() + 8192, raw.begin() + 12288));
      auto file = open_again(fd.get(), keys);
      REQUIRE(file);
      Bytes got(10);
      CHECK(file->read(block_start(1), got).error() == Errc::damaged_block);
      CHECK(file->read(block_start(2), got).value() == 10);
    }
    {
      const UniqueFd a = file_with(model, keys), b = file_with(model, keys);
      const Bytes other = raw_bytes(b.get());
      poke(a.get(), page_off(1), Bytes(other.begin() + 4096, other.begin() + 8192));
      auto file = open_again(a.get(), keys);
      REQUIRE(file);
      Bytes got(10);
      CHECK(file->read(block_start(1), got).error() == Errc::damaged_block);
      poke(a.get(), 0, Bytes(other.begin(), other.begin() + 128));
      file = open_again(a.get(), keys);
      REQUIRE(file);  // a good header of another file: its blocks are not
      CHECK(file->read(0, got).error() == Errc::damaged_block);
    }
  }

  TEST_CASE("damage: header, later version, unknown epoch, cut files") {
    const KeyRing keys = key_ring();
    const Bytes model = counting(5000);
    for (const std::uint64_t at : {0u, 11u, 20u, 40u, 60u, 103u, 110u}) {
      const UniqueFd fd = file_with(model, keys);
      flip(fd.get(), at);
      CHECK(open_again(fd.get(), keys).error() == Errc::damaged_header);
      CHECK(open_again(fd.get(), keys, {.lost_header_is_empty = true}).error() == Errc::damaged_header);
    }
    const UniqueFd fd = file_with(model, keys);
    poke(fd.get(), 8, {2, 0});
    CHECK(open_again(fd.get(), keys).error() == Errc::unsupported_format);
    KeyRing other;
    other.add(epoch_keys(2));
    CHECK(open_again(file_with(model, keys).get(), other).error() == Errc::damaged_header);
    for (const off_t size : {1, 127, 128, 4095}) {
      const UniqueFd cut = file_with(model, keys);
      REQUIRE(::ftruncate(cut.get(), size) == 0);
      CHECK(open_again(cut.get(), keys).error() == Errc::damaged_header);
    }
  }

  TEST_CASE("size hints: the last block decides, and what is wrong is set right") {
    const KeyRing keys = key_ring();
    const Bytes model = counting(9000, 5);
    for (const std::uint64_t lower : {8192u + 4096u + 1u, 12288u, 12288u + 4064u, 12288u + 4095u, 16384u, 16384u + 7u, 40960u + 3u}) {
      CAPTURE(lower);
      const UniqueFd fd = file_with(model, keys);
      REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(lower)) == 0);
      {
        // Where nothing may be written, the size is right all the same and the lower file stays.
        const auto file = open_again(fd.get(), keys, {.writable = false});
        REQUIRE(file);
        CHECK(read_all(*file) == model);
        CHECK(lower_bytes(fd.get()) == lower);
      }
      const auto file = open_again(fd.get(), keys);
      REQUIRE(file);
      CHECK(read_all(*file) == model);
      CHECK(lower_bytes(fd.get()) == lower_size(model.size()));
    }
  }

  TEST_CASE("size hints: of an inode that lags behind its pages after a cut, the size that was told counts") {
    const KeyRing keys = key_ring();
    const Bytes model = counting(9000, 5);
    for (const std::uint64_t told : {8990u, 9100u, 8001u, 12064u}) {  // the block longer than its hint, and shorter; in the same block
      CAPTURE(told);
      Bytes expected = model;
      expected.resize(told);
      const UniqueFd fd = file_with(model, keys);
      REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(lower_size(told))) == 0);
      {
        const auto file = open_again(fd.get(), keys, {.writable = false, .inode_may_lag = true});
        REQUIRE(file);
        CHECK(file->size() == told);
        CHECK(read_all(*file) == expected);
        CHECK(!file->hint_differed_from());
      }
      {
        auto file = open_again(fd.get(), keys, {.inode_may_lag = true});
        REQUIRE(file);
        CHECK(read_all(*file) == expected);
        const std::uint8_t more = 1;
        REQUIRE(file->write(told, {&more, 1}));  // nothing of what was cut off comes back
        expected.push_back(more);
        CHECK(read_all(*file) == expected);
      }
      const auto file = open_again(fd.get(), keys);  // and is gone for good
      REQUIRE(file);
      CHECK(read_all(*file) == expected);
      CHECK(!file->hint_differed_from());
    }
    // Zero pages at the end are another matter: an inode from before the cut has none.
    const UniqueFd fd = file_with(model, keys);
    REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(lower_size(20000))) == 0);
    const auto file = open_again(fd.get(), keys, {.inode_may_lag = true});
    REQUIRE(file);
    CHECK(file->hint_differed_from() == 9000);
  }

  TEST_CASE("shrinking into zeros that no block holds writes and syncs them before the rest goes") {
    const KeyRing keys = key_ring();
    for (const bool hole : {true, false})
      for (const std::uint64_t size : {3500u, 6000u}) {
        CAPTURE(hole);
        CAPTURE(size);
        const UniqueFd fd = file_with(hole ? Bytes{} : counting(size - 100, 5), keys);
        auto file = open_again(fd.get(), keys);
        REQUIRE(file);
        REQUIRE(file->truncate(20000));
        std::vector<lower::Op> calls;
        lower::set_hook([&](const lower::Call& c) -> lower::Verdict {
          if (c.op == lower::Op::pwrite || c.op == lower::Op::fsync || c.op == lower::Op::ftruncate) calls.push_back(c.op);
          return {};
        });
        CHECK(file->truncate(size));
        lower::set_hook(nullptr);
        using lower::Op;
        CHECK(calls == std::vector<Op>{Op::pwrite, Op::fsync, Op::ftruncate, Op::ftruncate});
        // Without room for the block, there is when the rest has gone.
        REQUIRE(file->truncate(30000));
        REQUIRE(file->punch(0, 20000));
        bool cut = false;
        lower::set_hook([&](const lower::Call& c) -> lower::Verdict {
          cut = cut || c.op == Op::ftruncate;
          return {.error = c.op == Op::pwrite && !cut ? ENOSPC : 0};
        });
        CHECK(file->truncate(15000));
        lower::set_hook(nullptr);
        CHECK(file->size() == 15000);
        CHECK(read_all(*file) == Bytes(15000));
        const auto again = open_again(fd.get(), keys);
        REQUIRE(again);
        CHECK(read_all(*again) == Bytes(15000));
      }
  }

  TEST_CASE("growth whose data never reached the disk: the zero pages go, however many") {
    const KeyRing keys = key_ring();
    for (const std::uint64_t pages : {4u, 100u, 5000u, 1u << 20}) {
      const Bytes model = counting(5000, 5);
      const UniqueFd fd = file_with(model, keys);
      REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(pages * kPage + 17)) == 0);
      const auto file = open_again(fd.get(), keys);
      REQUIRE(file);
      CHECK(read_all(*file) == model);
      CHECK(lower_bytes(fd.get()) == lower_size(model.size()));
    }
    // Allocated pages that were never written are zeros, too.
    const UniqueFd fd = file_with(counting(5000), keys);
    REQUIRE(::fallocate(fd.get(), 0, 0, 300 * 4096) == 0);
    const auto file = open_again(fd.get(), keys);
    REQUIRE(file);
    CHECK(file->size() == 5000);
  }

  TEST_CASE("a lost header: empty after a cut session, damage otherwise") {
    const KeyRing keys = key_ring();
    const UniqueFd fd = memory_file();
    REQUIRE(::ftruncate(fd.get(), 4096 + 10) == 0);
    CHECK(open_again(fd.get(), keys).error() == Errc::damaged_header);
    CHECK(lower_bytes(fd.get()) == 4106);
    {
      const auto file = open_again(fd.get(), keys, {.writable = false, .lost_header_is_empty = true});
      REQUIRE(file);
      CHECK(file->size() == 0);
      CHECK(lower_bytes(fd.get()) == 4106);
    }
    auto file = open_again(fd.get(), keys, {.lost_header_is_empty = true});
    REQUIRE(file);
    CHECK(file->size() == 0);
    CHECK(lower_bytes(fd.get()) == 0);
    REQUIRE(file->write(0, counting(3)));
    CHECK(read_all(*file) == counting(3));
  }

  TEST_CASE("after a cut session what is behind a hole in block 0 is there, and what is behind a lost header has no key") {
    const KeyRing keys = key_ring();
    for (const std::uint64_t size : {3937u, 5000u, 20000u}) {
      CAPTURE(size);
      const Bytes model = counting(size);
      for (const bool cut : {true, false})
        for (const bool writable : {false, true}) {
          CAPTURE(cut);
          CAPTURE(writable);
          // Block 0 never reached the disk: with smaller blocks below, the page's first may have.
          const UniqueFd fd = file_with(model, keys);
          poke(fd.get(), kHeaderSize, Bytes(kPage - kHeaderSize));
          REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(page_off(block_count(size)))) == 0);  // nor did the hint
          const auto file = open_again(fd.get(), keys, {.writable = writable, .lost_header_is_empty = cut});
          REQUIRE(file);
          Bytes wanted = model;
          std::fill_n(wanted.begin(), payload(0), std::uint8_t{0});
          CHECK(file->size() == size);
          CHECK(read_all(*file) == wanted);
          CHECK(lower_bytes(fd.get()) == (writable ? lower_size(size) : page_off(block_count(size))));
          // Without the header nothing says under which key the pages are.
          poke(fd.get(), 0, Bytes(kPage));
          const auto lost = open_again(fd.get(), keys, {.writable = false, .lost_header_is_empty = cut});
          if (cut) {
            REQUIRE(lost);
            CHECK(lost->size() == 0);
          } else {
            CHECK(lost.error() == Errc::damaged_header);
          }
          CHECK(raw_bytes(fd.get()).size() > kPage);  // looking takes nothing away
        }
    }
  }

  TEST_CASE("a header with holes alone behind it: empty after a cut session or a failed truncation, damage otherwise") {
    const KeyRing keys = key_ring();
    for (const std::uint64_t size : {1u, 100u, 3936u, 3937u, 20000u}) {
      CAPTURE(size);
      const UniqueFd fd = file_with(counting(size), keys);
      const Bytes raw = raw_bytes(fd.get());
      const Bytes header(raw.begin(), raw.begin() + kHeaderSize);
      REQUIRE(::ftruncate(fd.get(), 0) == 0);
      poke(fd.get(), 0, header);
      REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(lower_size(size))) == 0);
      // The only trace of what was there is left as it is.
      for (const bool writable : {false, true}) CHECK(open_again(fd.get(), keys, {.writable = writable}).error() == Errc::damaged_block);
      CHECK(lower_bytes(fd.get()) == lower_size(size));
      {
        const auto file = open_again(fd.get(), keys, {.writable = false, .lost_header_is_empty = true});
        REQUIRE(file);
        CHECK(file->size() == 0);
      }
      CHECK(lower_bytes(fd.get()) == lower_size(size));
      {
        const auto file = open_again(fd.get(), keys, {.lost_header_is_empty = true});
        REQUIRE(file);
        CHECK(file->size() == 0);
        CHECK(lower_bytes(fd.get()) == 0);
      }
      // As a truncation into a hole leaves it when it fails.
      poke(fd.get(), 0, header);
      REQUIRE(::ftruncate(fd.get(), kPage) == 0);
      const auto file = open_again(fd.get(), keys);
      REQUIRE(file);
      CHECK(file->size() == 0);
      CHECK(lower_bytes(fd.get()) == 0);
    }
  }

  TEST_CASE("files of two epochs stand side by side; new ones take the newest") {
    KeyRing old = key_ring(), both = key_ring();
    both.add(epoch_keys(2, 0x40));
    const UniqueFd a = file_with(counting(100), old);
    auto file = open_again(a.get(), both);
    REQUIRE(file);
    REQUIRE(file->write(50, counting(100)));
    CHECK(raw_bytes(a.get())[12] == 1);  // keeps its key until it is rotated
    CHECK(raw_bytes(file_with(counting(100), both).get())[12] == 2);
  }

  TEST_CASE("a file keeps the suite that it was written with") {
    const KeyRing keys = key_ring();
    const UniqueFd fd = file_with(counting(5000), keys, Suite::chacha20_poly1305);
    auto file = open_again(fd.get(), keys, {.suite = Suite::aes_256_gcm});
    REQUIRE(file);
    REQUIRE(file->write(10, counting(10, 0)));
    CHECK(raw_bytes(fd.get())[10] == 2);
    CHECK(read_lower(raw_bytes(fd.get()), keys).problem.empty());
  }
}
