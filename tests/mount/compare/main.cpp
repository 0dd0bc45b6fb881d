// SPDX-License-Identifier: GPL-3.0-or-later
// Makes the same random sequence of system calls in a plain directory and in a mount over the same filesystem, and compares results, errnos,
// bytes, times and, every so often, the whole trees. A sequence that differs is shrunk to the shortest that still does.
//
//   compare-trees [--seed N] [--calls N] [--max-target N] [--remount-every N] [--acl] [--short-names] [--user UID:GID[,GID...]]... PLAIN MOUNT
//       both directories must be empty. At a remount it prints "remount" and waits for a line on its standard input
//   compare-trees --differences     what differs by design, one a line: its name, a tab, what it is
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>

#include "program.hpp"

namespace compare {
namespace {

bool later(const timespec& a, const timespec& b) { return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec; }

// Times of all that a call may touch, before and after it: which of them it moved.
class Watch {
 public:
  Watch(Side& side, const Call& c) : side_(side), call_(c) { look(before_); }
  // The latest change so far: the next must get a later time, on the coarsest of clocks.
  timespec latest() const {
    timespec t{};
    for (const auto& st : before_)
      if (st && later(st->st_ctim, t)) t = st->st_ctim;
    return t;
  }
  void look_again() { look(after_); }
  std::string moved(const Watch& other) const {
    static const char* what[] = {"a", "a's directory", "b", "b's directory", "slot", "slot2"};
    std::string text;
    for (std::size_t i = 0; i < after_.size(); ++i) {
      if (!counts(i) || !other.counts(i)) continue;
      const auto &x = before_[i], &y = after_[i];
      if (x->st_mtim.tv_sec != y->st_mtim.tv_sec || x->st_mtim.tv_nsec != y->st_mtim.tv_nsec) text += std::string(" mtime of ") + what[i];
      if (x->st_ctim.tv_sec != y->st_ctim.tv_sec || x->st_ctim.tv_nsec != y->st_ctim.tv_nsec) text += std::string(" ctime of ") + what[i];
    }
    return text;
  }

 private:
  void look(std::vector<std::optional<struct stat>>& out) {
    const auto at = [&](int dir, std::string path, bool parent) {
      std::optional<struct stat> st(std::in_place);
      if (parent) {
        while (path.ends_with('/')) path.pop_back();
        const auto slash = path.rfind('/');
        path = slash == std::string::npos ? "." : path.substr(0, slash);
      }
      if (::fstatat(dir, path.c_str(), &*st, AT_SYMLINK_NOFOLLOW) != 0) st.reset();
      out.push_back(st);
    };
    at(side_.base(call_), call_.a, false);
    at(side_.base(call_), call_.a, true);
    at(side_.root(), call_.b, false);
    at(side_.root(), call_.b, true);
    if (!kinds()[call_.kind].slots) return;
    for (const int fd : {side_.fd(call_), side_.fd2(call_)}) {
      std::optional<struct stat> st(std::in_place);
      if (fd < 0 || ::fstat(fd, &*st) != 0) st.reset();
      out.push_back(st);
    }
  }
  // What came, went or was replaced is told by results and trees. Differences: mapped-mtime, write-back-times.
  bool counts(std::size_t i) const {
    const auto &x = before_[i], &y = after_[i];
    return x && y && x->st_ino == y->st_ino && !side_.mapped.count(y->st_ino);
  }
  Side& side_;
  const Call& call_;
  std::vector<std::optional<struct stat>> before_, after_;
};

void wait_past(const timespec& t) {
  timespec now{};
  const timespec tick{0, 1000000};
  while (::clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0 && !later(now, t)) ::nanosleep(&tick, nullptr);
}

std::string text(const Outcome& o) {
  return std::to_string(o.result) + " errno " + std::to_string(o.error) + " (" + std::strerror(o.error) + ") " +
         (o.data.size() > 400 ? std::to_string(o.data.size()) + " bytes" : o.data);
}

void remount(Side& plain, Side& mount) {
  for (Side* s : {&plain, &mount}) s->close_all();
  std::printf("remount\n");
  std::fflush(stdout);
  std::string line;
  if (!std::getline(std::cin, line)) {
    std::fputs("compare: nobody remounts\n", stderr);
    std::exit(2);
  }
  for (Side* s : {&plain, &mount}) {
    s->open_root();
    s->mapped.clear();
  }
}

// The first call that differs, or -1. The trees are compared every `every` calls, around a remount and at the end.
long run(const std::vector<Call>& calls, Side& p, Side& m, std::size_t every, std::string& why) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Call& c = calls[i];
    bool trees = (i + 1) % every == 0 || i + 1 == calls.size();
    if (c.kind == 0) {
      why = tree_difference(p, m);
      if (!why.empty()) return static_cast<long>(i);
      remount(p, m);
      trees = true;
    } else {
      std::optional<Watch> wp, wm;
      if (c.watch && kinds()[c.kind].times) {
        wp.emplace(p, c);
        wm.emplace(m, c);
        wait_past(wp->latest());
        wait_past(wm->latest());
      }
      Outcome x = p.run(c), y = m.run(c);
      if (wp) {
        wp->look_again();
        wm->look_again();
        x.data += " moved:" + wp->moved(*wm);
        y.data += " moved:" + wm->moved(*wp);
      }
      if (x != y) {
        why = "plain " + text(x) + "\n  mount " + text(y);
        return static_cast<long>(i);
      }
    }
    if (trees) {
      why = tree_difference(p, m);
      if (!why.empty()) return static_cast<long>(i);
    }
  }
  return -1;
}

// From empty directories, with nothing open.
long run_anew(const std::vector<Call>& calls, Side& p, Side& m, std::size_t every, std::string& why) {
  for (Side* s : {&p, &m}) {
    s->close_all();
    s->open_root();
    clear(s->root());
    ::fchmod(s->root(), 0777);
    s->mapped.clear();
  }
  return run(calls, p, m, every, why);
}

// Drops calls, in ever smaller pieces, as long as what is left still differs.
std::vector<Call> shrink(std::vector<Call> calls, Side& p, Side& m, std::string& why) {
  int budget = 500;
  for (std::size_t piece = calls.size() / 2; piece > 0 && budget > 0; piece /= 2) {
    for (std::size_t at = 0; at + piece <= calls.size() && budget > 0;) {
      std::vector<Call> fewer(calls.begin(), calls.begin() + static_cast<long>(at));
      fewer.insert(fewer.end(), calls.begin() + static_cast<long>(at + piece), calls.end());
      --budget;
      std::string w;
      const long where = run_anew(fewer, p, m, fewer.size() < 60 ? 1 : 50, w);
      if (where >= 0) {
        fewer.resize(static_cast<std::size_t>(where) + 1);
        calls = std::move(fewer);
        why = w;
      } else {
        at += piece;
      }
      if (piece > calls.size()) piece = calls.size();
    }
  }
  return calls;
}

std::vector<Call> program() {
  std::vector<Call> calls;
  Generator generator(g_settings.seed);
  const auto mkdir = static_cast<std::size_t>(
      std::find_if(kinds().begin(), kinds().end(), [](const Kind& k) { return std::strcmp(k.name, "mkdir") == 0; }) - kinds().begin());
  for (const char* d : {"d1", "d2", "d1/e"}) {
    Call c;
    c.kind = mkdir;
    c.a = d;
    c.mode = 0777;
    c.umask = 0;
    calls.push_back(c);
  }
  while (calls.size() < g_settings.calls) {
    if (g_settings.remount_every > 0 && calls.size() % g_settings.remount_every == 0) calls.emplace_back();
    calls.push_back(generator.next());
  }
  return calls;
}

Actor parse_actor(const std::string& text) {
  Actor a{};
  char* at = nullptr;
  a.uid = static_cast<uid_t>(std::strtoul(text.c_str(), &at, 10));
  while (*at) a.groups.push_back(static_cast<gid_t>(std::strtoul(at + 1, &at, 10)));
  if (a.groups.empty()) {
    std::fprintf(stderr, "compare: '%s' is not UID:GID[,GID...]\n", text.c_str());
    std::exit(2);
  }
  return a;
}

}  // namespace
}  // namespace compare

int main(int argc, char** argv) {
  using namespace compare;
  Settings& s = g_settings;
  s.actors.push_back({::geteuid(), {::getegid()}});
  std::vector<std::string> dirs;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto number = [&] { return i + 1 < argc ? std::strtoul(argv[++i], nullptr, 10) : 0; };
    if (arg == "--seed") s.seed = static_cast<unsigned>(number());
    else if (arg == "--calls") s.calls = number();
    else if (arg == "--max-target") s.max_target = number();
    else if (arg == "--remount-every") s.remount_every = number();
    else if (arg == "--acl") s.acl = true;
    else if (arg == "--short-names") s.names_short = true;
    else if (arg == "--user" && i + 1 < argc) s.actors.push_back(parse_actor(argv[++i]));
    else if (arg == "--differences") {
      for (const auto& d : kDifferences) std::printf("%s\t%s\n", d.id, d.what);
      return 0;
    } else dirs.push_back(arg);
  }
  if (dirs.size() != 2) {
    std::fputs("usage: compare-trees [OPTION...] PLAIN MOUNT\n", stderr);
    return 2;
  }
  Side plain(dirs[0], false), mount(dirs[1], true);
  std::printf("seed %u, %zu calls\n", s.seed, s.calls);
  std::fflush(stdout);
  auto calls = program();
  std::string why;
  const long where = run_anew(calls, plain, mount, 250, why);
  if (where < 0) return 0;
  std::printf("call %ld differs: %s\n  %s\nshrinking...\n", where, show(calls[static_cast<std::size_t>(where)]).c_str(), why.c_str());
  calls.resize(static_cast<std::size_t>(where) + 1);
  calls = shrink(std::move(calls), plain, mount, why);
  std::printf("the shortest sequence found (%zu calls):\n", calls.size());
  for (const auto& c : calls) std::printf("  %s\n", show(c).c_str());
  std::printf("  %s\n", why.c_str());
  return 1;
}
