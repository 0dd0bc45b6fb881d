// SPDX-License-Identifier: GPL-3.0-or-later
#include "external.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <stdexcept>

namespace ecfs::bench {
namespace {

[[noreturn]] void not_understood(const char* program, std::string_view text) {
  throw std::runtime_error(std::string(program) + " printed what is not understood: " + std::string(text.substr(0, 300)));
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// All of the text is a number.
std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::vector<std::string_view> words(std::string_view line) {
  auto parts = split(line, ' ');
  std::erase_if(parts, [](std::string_view p) { return p.empty(); });
  return parts;
}

constexpr std::array<std::pair<std::size_t, const char*>, 12> kBonnieColumns{{{9, "external-bonnie-out-char"},
                                                                              {11, "external-bonnie-out-block"},
                                                                              {13, "external-bonnie-rewrite"},
                                                                              {15, "external-bonnie-in-char"},
                                                                              {17, "external-bonnie-in-block"},
                                                                              {19, "external-bonnie-seeks"},
                                                                              {26, "external-bonnie-seq-create"},
                                                                              {28, "external-bonnie-seq-read"},
                                                                              {30, "external-bonnie-seq-delete"},
                                                                              {32, "external-bonnie-random-create"},
                                                                              {34, "external-bonnie-random-read"},
                                                                              {36, "external-bonnie-random-delete"}}};

}  // namespace

Values parse_fio(std::string_view terse) {
  // Reading begins at field 5 (KiB, bandwidth, operations a second, milliseconds), writing 41 fields behind it.
  constexpr std::size_t kRead = 5, kWrite = 46, kRate = 2, kTime = 3;
  for (const auto line : split(terse, '\n')) {
    if (!line.starts_with("3;fio-")) continue;
    const auto fields = split(line, ';');
    if (fields.size() < kWrite + 41 || fields[4] != "0") not_understood("fio", line);
    const auto read_rate = number(fields[kRead + kRate]), write_rate = number(fields[kWrite + kRate]);
    const auto read_time = number(fields[kRead + kTime]), write_time = number(fields[kWrite + kTime]);
    if (!read_rate || !write_rate || !read_time || !write_time) not_understood("fio", line);
    return {{"external-fio", std::max(*read_time, *write_time) / 1000}, {"external-fio-iops", *read_rate + *write_rate}};
  }
  not_understood("fio", terse);
}

Values parse_fs_mark(std::string_view text) {
  bool table = false;
  for (const auto line : split(text, '\n')) {
    if (line.starts_with("FSUse%")) {
      table = true;
      continue;
    }
    const auto columns = words(line);
    if (!table || columns.size() < 5) continue;
    if (const auto rate = number(columns[3])) return {{"external-fs_mark", *rate}};
    break;
  }
  not_understood("fs_mark", text);
}

Values parse_dbench(std::string_view text) {
  for (const auto line : split(text, '\n'))
    if (const auto columns = words(line); columns.size() >= 3 && columns[0] == "Throughput")
      if (const auto rate = number(columns[1])) return {{"external-dbench", *rate}};
  not_understood("dbench", text);
}

Values parse_postmark(std::string_view text) {
  constexpr std::string_view kBefore = " seconds of transactions (";
  const auto at = text.find(kBefore);
  if (at != text.npos)
    if (const auto columns = words(text.substr(at + kBefore.size(), 40)); !columns.empty())
      if (const auto rate = number(columns[0])) return {{"external-postmark", *rate}};
  not_understood("postmark", text);
}

Values parse_bonnie(std::string_view csv) {
  for (const auto line : split(csv, '\n')) {
    const auto columns = split(line, ',');
    if (columns.size() < 38 || !number(columns[0])) continue;
    Values values;
    for (const auto& [column, figure] : kBonnieColumns) {
      if (columns[column].empty() || columns[column].starts_with('+')) continue;
      const auto value = number(columns[column]);
      if (!value) not_understood("bonnie++", line);
      values.emplace_back(figure, *value);
    }
    return values;
  }
  not_understood("bonnie++", csv);
}

namespace {

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const auto directory : split(path ? path : "", ':'))
    if (const std::string file = std::string(directory) + "/" + name; !directory.empty() && ::access(file.c_str(), X_OK) == 0) return file;
  // Debian has bonnie++ where ordinary users do not look.
  const std::string file = "/usr/sbin/" + name;
  return ::access(file.c_str(), X_OK) == 0 ? file : "";
}

std::function<std::string()> needs(const std::string& name) {
  return [name] { return find_program(name).empty() ? name + " is not installed" : ""; };
}

void run_fio(Job& job) {
  const auto mebibytes = job.scaled(4096);
  job.measure_values([&] {
    return parse_fio(job.run({find_program("fio"), "--name=fileserver", "--directory=.", "--size=" + std::to_string(mebibytes) + "m", "--rw=randrw",
                              "--rwmixread=80", "--bssplit=512/10:1k/5:2k/5:4k/60:8k/2:16k/4:32k/4:64k/10", "--ioengine=libaio", "--direct=1",
                              "--iodepth=64", "--output-format=terse", "--terse-version=3"})
                         .text);
  });
}

void run_fs_mark(Job& job) {
  const auto files = std::to_string(job.scaled(1000));
  job.measure_values([&] {
    return parse_fs_mark(job.run({find_program("fs_mark"), "-d", ".", "-n", files, "-s", "1048576", "-w", "16384", "-S", "1"}).text);
  });
}

void run_dbench(Job& job) {
  const auto seconds = std::to_string(job.scaled(60, 2));
  job.measure_values([&] { return parse_dbench(job.run({find_program("dbench"), "-t", seconds, "-D", ".", "1"}).text); });
}

// The number of files wanders by about the root of the transactions, and postmark gives up when none is left.
std::uint64_t postmark_files(double scale) {
  const auto transactions = static_cast<double>(scaled(scale, 25000));
  return std::max(scaled(scale, 500), static_cast<std::uint64_t>(4 * std::sqrt(transactions)));
}

void run_postmark(Job& job) {
  const std::string commands = "set location " + job.path("mail") + "\nset number " + std::to_string(postmark_files(job.scale())) + "\nset transactions " +
                               std::to_string(job.scaled(25000)) + "\nset size 5120 524288\nset seed 42\nrun\nquit\n";
  job.calls().mkdir("mail");
  File file = job.calls().create("commands");
  file.write(std::as_bytes(std::span(commands)));
  file.close();
  job.measure_values([&] { return parse_postmark(job.run({find_program("postmark"), "commands"}).text); });
}

void run_bonnie(Job& job) {
  std::vector<std::string> args{find_program("bonnie++"), "-d", ".", "-s", std::to_string(job.scaled(2048, 16)), "-r", "0", "-n",
                                std::to_string(job.scaled(16)), "-z", "1", "-q"};
  // It asks root to say so.
  if (::geteuid() == 0) args.insert(args.end(), {"-u", "root"});
  job.measure_values([&] { return parse_bonnie(job.run(args).text); });
}

Figure figure(const char* name, const char* unit, Group group, bool higher_is_better = true) {
  return {.name = name, .unit = unit, .kind = Kind::value, .group = group, .higher_is_better = higher_is_better};
}

std::vector<Figure> bonnie_figures() {
  std::vector<Figure> list;
  for (const auto& [column, name] : kBonnieColumns) {
    const bool bytes = column < 19;
    list.push_back(figure(name, bytes ? "K/s" : "/s", column < 26 ? Group::streaming : Group::small_files));
  }
  return list;
}

}  // namespace

const std::vector<Workload>& external_workloads() {
  static const std::vector<Workload> all{
      {.name = "external-fio",
       .after = "fio",
       .what = "fio itself with the IOMeter file-server mix, libaio, direct, queue depth 64, a file of 4 GiB",
       .figures = {figure("external-fio", "s", Group::streaming, false), figure("external-fio-iops", "/s", Group::streaming)},
       .bytes = [](double scale) { return scaled(scale, 4096) << 20; },
       .run = run_fio,
       .unavailable = needs("fio")},
      {.name = "external-fs_mark",
       .after = "FS-Mark",
       .what = "fs_mark itself: 1000 files of 1 MiB in 16 KiB writes, -S 1",
       .figures = {figure("external-fs_mark", "files/s", Group::sync_heavy)},
       .bytes = [](double scale) { return scaled(scale, 1000) << 20; },
       .run = run_fs_mark,
       .unavailable = needs("fs_mark")},
      {.name = "external-dbench",
       .after = "dbench",
       .what = "dbench itself with one client and its own load, for 60 seconds",
       .figures = {figure("external-dbench", "MB/s", Group::sync_heavy)},
       .bytes = [](double) { return std::uint64_t{256} << 20; },
       .run = run_dbench,
       .unavailable = needs("dbench")},
      {.name = "external-postmark",
       .after = "PostMark",
       .what = "postmark itself: 25,000 transactions over 500 files of 5 to 512 KiB (more for few transactions, or it would run out of them); it counts whole seconds",
       .figures = {figure("external-postmark", "TPS", Group::small_files)},
       .bytes = [](double scale) { return postmark_files(scale) << 20; },
       .run = run_postmark,
       .unavailable = needs("postmark")},
      {.name = "external-bonnie",
       .after = "bonnie++",
       .what = "bonnie++ itself with 2 GiB and 16 × 1024 files; its caches stay as they are, and what takes less than half a second is left out",
       .figures = bonnie_figures(),
       .bytes = [](double scale) { return (scaled(scale, 2048, 16) << 20) + scaled(scale, 16) * 1024 * 8192; },
       .run = run_bonnie,
       .unavailable = needs("bonnie++")}};
  return all;
}

}  // namespace ecfs::bench
