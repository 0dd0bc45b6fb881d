// SPDX-License-Identifier: GPL-3.0-or-later
// What a person does at a desktop: photos copied in, a large file compressed, music encoded, a game that loads while it runs.
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "interrupt.hpp"
#include "workloads/list.hpp"
#include "workloads/tree.hpp"

namespace ecfs::bench {
namespace {

double since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void write_file(Calls& calls, const std::string& path, std::uint64_t size, std::span<const std::byte> block) {
  File file = calls.create(path);
  for (std::uint64_t left = size; left > 0;) {
    const std::size_t n = std::min<std::uint64_t>(left, block.size());
    file.write(block.first(n));
    left -= n;
  }
  file.close();
}

// Photos: cp reads from a camera, which is none of the target's business, and writes 128 KiB at a time.

constexpr std::uint64_t kPhotos = 364, kSmallestPhoto = 1'800'000, kLargestPhoto = 5'340'000;
constexpr std::size_t kCopyBlock = 128 << 10;

void copy_photos(Job& job) {
  const auto block = job.random_bytes(kCopyBlock);
  job.calls().mkdir("photos");
  job.measure("photo-copy", 0, [&] {
    Random random = job.random(1);
    const timespec taken[2] = {{1200000000, 0}, {1200000000, 0}};
    for (std::uint64_t i = 0; i < job.scaled(kPhotos); ++i) {
      const std::string path = "photos/IMG_" + std::to_string(1000 + i) + ".JPG";
      write_file(job.calls(), path, random.between(kSmallestPhoto, kLargestPhoto), block);
      job.calls().set_times(path, taken);
    }
    job.calls().sync_filesystem();
  });
}

// gzip: reads and writes 32 KiB at a time, and removes what it has compressed.

constexpr std::uint64_t kGzipBlock = 32 << 10, kGzipBlocks = 745'000'000 / kGzipBlock;

class Deflater {
 public:
  explicit Deflater(int level) {
    // 16: gzip's header and checksum.
    if (::deflateInit2(&stream_, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) throw std::bad_alloc();
  }
  ~Deflater() { ::deflateEnd(&stream_); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  void put(std::span<std::byte> in, bool last, std::span<std::byte> room, File& out) {
    stream_.next_in = reinterpret_cast<Bytef*>(in.data());
    stream_.avail_in = static_cast<uInt>(in.size());
    int result = Z_OK;
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(room.data());
      stream_.avail_out = static_cast<uInt>(room.size());
      result = ::deflate(&stream_, last ? Z_FINISH : Z_NO_FLUSH);
      if (const std::size_t n = room.size() - stream_.avail_out; n > 0) out.write(room.first(n));
    } while (last ? result != Z_STREAM_END : stream_.avail_out == 0);
  }

 private:
  z_stream stream_{};
};

void gzip(Job& job) {
  const std::uint64_t blocks = job.scaled(kGzipBlocks);
  // Longer than deflate's window, so that no repetition of it is found.
  const auto text = source_text(job.random(), 64 * kGzipBlock);
  {
    File file = job.calls().create("file");
    for (std::uint64_t i = 0; i < blocks; ++i) file.write(std::span(text).subspan(i % 64 * kGzipBlock, kGzipBlock));
    file.sync();
    file.close();
  }
  job.measure("gzip", 0, [&] {
    std::vector<std::byte> block(kGzipBlock), room(kGzipBlock);
    File in = job.calls().open("file", O_RDONLY), out = job.calls().create("file.gz");
    Deflater deflater(6);
    for (std::size_t n = 1; n > 0;) {
      n = in.read(block);
      deflater.put(std::span(block).first(n), n == 0, room, out);
    }
    in.close();
    out.close();
    job.calls().unlink("file");
  });
}

// encode: five songs from 16-bit stereo to MP3 by LAME, or to Rice-coded differences by ourselves.

constexpr std::uint64_t kSongs = 5, kSongSamples = 44100 * 200, kWavHeader = 44;
constexpr std::size_t kFrame = 4096;

std::string program(const char* name) {
  const char* path = std::getenv("PATH");
  for (std::string_view rest = path ? path : ""; !rest.empty();) {
    const auto end = std::min(rest.find(':'), rest.size());
    const std::string candidate = std::string(rest.substr(0, end)) + "/" + name;
    if (end > 0 && ::access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

void put_number(std::vector<std::byte>& out, std::uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

void put_text(std::vector<std::byte>& out, std::string_view text) {
  for (const char c : text) out.push_back(static_cast<std::byte>(c));
}

// Two tones and noise.
std::vector<std::byte> song(Random random, std::uint64_t samples) {
  std::vector<std::byte> wav;
  const auto size = static_cast<std::uint32_t>(samples * 4);
  put_text(wav, "RIFF"), put_number(wav, size + 36, 4), put_text(wav, "WAVEfmt "), put_number(wav, 16, 4), put_number(wav, 1, 2);
  put_number(wav, 2, 2), put_number(wav, 44100, 4), put_number(wav, 176400, 4), put_number(wav, 4, 2), put_number(wav, 16, 2);
  put_text(wav, "data"), put_number(wav, size, 4);
  const double low = static_cast<double>(random.between(80, 300)) / 44100 * 6.2832, high = low * 5.03;
  for (std::uint64_t i = 0; i < samples; ++i) {
    const auto t = static_cast<double>(i);
    const double tone = 9000 * std::sin(low * t) + 3000 * std::sin(high * t);
    for (int channel = 0; channel < 2; ++channel)
      put_number(wav, static_cast<std::uint32_t>(static_cast<int>(tone) + static_cast<int>(random.below(800)) - 400), 2);
  }
  return wav;
}

// The bits that a frame takes with differences of an order and a Rice parameter.
class FrameCoder {
 public:
  // Tries each order and parameter, as thorough encoders do, and codes with the best. Bits that do not fill a byte wait.
  void code(std::span<const std::int16_t> samples, std::vector<std::byte>& out) {
    std::vector<std::int32_t> differences(samples.begin(), samples.end()), best_differences = differences;
    std::uint64_t best = UINT64_MAX;
    unsigned best_parameter = 0;
    for (unsigned order = 0; order <= 8; ++order) {
      for (unsigned parameter = 0; parameter < 16; ++parameter) {
        std::uint64_t bits = 0;
        for (const auto d : differences) bits += (folded(d) >> parameter) + 1 + parameter;
        if (bits < best) best = bits, best_parameter = parameter, best_differences = differences;
      }
      for (std::size_t i = differences.size() - 1; i > order; --i) differences[i] -= differences[i - 1];
    }
    put(best_parameter, 4, out);
    for (const auto d : best_differences) {
      const std::uint32_t value = folded(d);
      for (std::uint32_t n = value >> best_parameter; n > 0; --n) put(1, 1, out);
      put(0, 1, out);
      put(value & ((1u << best_parameter) - 1), best_parameter, out);
    }
  }

 private:
  static std::uint32_t folded(std::int32_t d) { return (static_cast<std::uint32_t>(d) << 1) ^ static_cast<std::uint32_t>(d >> 31); }

  void put(std::uint32_t value, unsigned bits, std::vector<std::byte>& out) {
    while (bits-- > 0) {
      waiting_ = waiting_ << 1 | (value >> bits & 1);
      if (++count_ % 8 == 0) out.push_back(static_cast<std::byte>(waiting_));
    }
  }

  std::uint32_t waiting_ = 0, count_ = 0;
};

void encode_ourselves(Calls& calls, const std::string& from, const std::string& to) {
  File in = calls.open(from, O_RDONLY), out = calls.create(to);
  std::vector<std::byte> bytes(2 * 2 * kFrame), coded;
  FrameCoder coder;
  in.read(std::span(bytes).first(kWavHeader));
  while (const std::size_t n = in.read(bytes)) {
    std::vector<std::int16_t> channel(n / 4);
    for (std::size_t c = 0; c < 2 && !channel.empty(); ++c) {
      for (std::size_t i = 0; i < channel.size(); ++i) std::memcpy(&channel[i], &bytes[4 * i + 2 * c], 2);
      coder.code(channel, coded);
    }
    if (coded.size() > 16384) out.write(coded), coded.clear();
  }
  if (!coded.empty()) out.write(coded);
  in.close();
  out.close();
}

void encode(Job& job) {
  const std::uint64_t samples = job.scaled(kSongSamples, kFrame);
  const auto name = [](std::uint64_t i, const char* suffix) { return "track-" + std::to_string(i) + suffix; };
  for (std::uint64_t i = 0; i < kSongs; ++i) {
    const auto wav = song(job.random(i), samples);
    write_file(job.calls(), name(i, ".wav"), wav.size(), wav);
  }
  const std::string lame = program("lame");
  job.measure("encode", 0, [&] {
    for (std::uint64_t i = 0; i < kSongs; ++i) {
      if (lame.empty()) {
        encode_ourselves(job.calls(), name(i, ".wav"), name(i, ".coded"));
      } else {
        job.run({lame, "--quiet", "-b", "128", job.path(name(i, ".wav")), job.path(name(i, ".mp3"))});
      }
    }
  });
}

// frames: a frame computes a fixed amount; every tenth needs an asset that is not in memory.

constexpr std::uint64_t kFrames = 3000, kFramesPerAsset = 10, kSmallestAsset = 64 << 10, kLargestAsset = 2 << 20;
constexpr unsigned kRoundsOfFrame = 1'500'000;

// Something that no compiler leaves out and whose time does not depend on memory.
std::uint64_t compute_frame(std::uint64_t state) {
  for (unsigned i = 0; i < kRoundsOfFrame; ++i) state = (state ^ (state >> 29)) * 0xbf58476d1ce4e5b9 + i;
  return state;
}

void play(Job& job) {
  const std::uint64_t frames = job.scaled(kFrames, kFramesPerAsset), assets = frames / kFramesPerAsset;
  const auto block = job.random_bytes(kCopyBlock);
  job.calls().mkdir("assets");
  Random random = job.random(1);
  for (std::uint64_t i = 0; i < assets; ++i)
    write_file(job.calls(), "assets/" + std::to_string(i), random.between(kSmallestAsset, kLargestAsset), block);
  std::vector<std::uint64_t> order(assets);
  for (std::uint64_t i = 0; i < assets; ++i) order[i] = i;
  random.shuffle(order);
  if (!job.drop_caches()) return;
  job.measure_values([&] {
    std::vector<double> times;
    std::vector<std::byte> buffer(256 << 10);
    std::uint64_t state = 1;
    const auto began = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < frames; ++i) {
      const auto frame = std::chrono::steady_clock::now();
      check_interrupt();
      if (i % kFramesPerAsset == 0 && i / kFramesPerAsset < assets) {
        File file = job.calls().open("assets/" + std::to_string(order[i / kFramesPerAsset]), O_RDONLY);
        while (const std::size_t n = file.read(buffer)) state += static_cast<std::uint64_t>(buffer[n - 1]);
        file.close();
      }
      state = compute_frame(state);
      times.push_back(since(frame));
    }
    const double seconds = since(began);
    // So that the compiler must know the result.
    if (state == 0) job.calls().trace().add("a number that cannot come out");
    std::ranges::sort(times, std::greater());
    const std::size_t worst = std::max<std::size_t>(1, times.size() / 100);
    double slow = 0;
    for (std::size_t i = 0; i < worst; ++i) slow += times[i];
    return std::vector<std::pair<std::string, double>>{{"frames", static_cast<double>(frames) / seconds},
                                                       {"frames-worst", static_cast<double>(worst) / slow}};
  });
}

Figure seconds(const char* name) {
  return {.name = name, .unit = "s", .kind = Kind::seconds, .group = Group::desktop, .higher_is_better = false};
}

}  // namespace

std::vector<Workload> desktop_workloads() {
  return {{.name = "photo-copy",
           .after = "",
           .what = "364 files of 1.3 GB in all written as cp -p does, 128 KiB at a time; the time includes a syncfs, and what they are copied from "
                   "is in memory",
           .figures = {seconds("photo-copy")},
           .quick = 0.05,
           .seeds = true,
           .bytes = [](double scale) { return scaled(scale, kPhotos) * kLargestPhoto; },
           .run = copy_photos},
          {.name = "gzip",
           .after = "gzip -6",
           .what = "a file of 745 MB of text compressed by zlib, 32 KiB at a time, and removed",
           .figures = {seconds("gzip")},
           .quick = 0.02,
           .seeds = true,
           .bytes = [](double scale) { return 2 * scaled(scale, kGzipBlocks) * kGzipBlock; },
           .run = gzip},
          {.name = "encode",
           .after = "LAME where it is installed",
           .what = "five songs of 200 seconds from WAV to MP3 by lame -b 128 (another program: its calls are not traced); without it, to Rice-coded "
                   "differences by our own encoder, so its time can be compared on one machine alone",
           .figures = {seconds("encode")},
           .quick = 0.02,
           .seeds = true,
           .bytes = [](double scale) { return 2 * kSongs * (scaled(scale, kSongSamples, kFrame) * 4 + (64 << 10)); },
           .run = encode},
          {.name = "frames",
           .after = "a game that streams its assets",
           .what = "3000 frames that compute a fixed amount; every tenth first loads an asset of 64 KiB to 2 MiB that no cache holds. Frames a second "
                   "over all, and over the slowest of a hundred",
           .figures = {{.name = "frames", .unit = "frames/s", .kind = Kind::value, .group = Group::desktop, .cold = true},
                       {.name = "frames-worst", .unit = "frames/s", .kind = Kind::value, .group = Group::desktop, .cold = true}},
           .quick = 0.05,
           .seeds = true,
           .bytes = [](double scale) { return scaled(scale, kFrames, kFramesPerAsset) / kFramesPerAsset * kLargestAsset; },
           .run = play}};
}

}  // namespace ecfs::bench
