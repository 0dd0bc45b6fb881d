// SPDX-License-Identifier: GPL-3.0-or-later
#include "terminal.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "ecfs/keyslot.hpp"

namespace ecfs {
namespace {

volatile sig_atomic_t g_signal = 0;

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU};

// While it lives, those signals only leave their number in g_signal, and come only while ppoll waits.
class SignalGuard {
 public:
  SignalGuard() {
    g_signal = 0;
    sigset_t block;
    ::sigemptyset(&block);
    struct sigaction note {};
    note.sa_handler = [](int s) { g_signal = s; };
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaddset(&block, kSignals[i]);
      ::sigaction(kSignals[i], nullptr, &old_[i]);
      // What is ignored (nohup) stays ignored.
      if (old_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &note, nullptr);
    }
    ::sigprocmask(SIG_BLOCK, &block, &mask_);
  }
  ~SignalGuard() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &old_[i], nullptr);
    ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  const sigset_t& mask() const { return mask_; }

 private:
  std::array<struct sigaction, kSignals.size()> old_{};
  sigset_t mask_{};
};

class EchoOff {
 public:
  explicit EchoOff(int tty) : tty_(tty) {
    ok_ = ::tcgetattr(tty, &saved_) == 0;
    termios quiet = saved_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHOE | ECHOK | ECHONL);
    quiet.c_lflag |= ICANON | ISIG;
    // What was typed before the prompt was echoed and was not meant for us.
    ok_ = ok_ && ::tcsetattr(tty, TCSAFLUSH, &quiet) == 0;
  }
  ~EchoOff() {
    if (ok_) ::tcsetattr(tty_, TCSADRAIN, &saved_);
  }
  EchoOff(const EchoOff&) = delete;
  EchoOff& operator=(const EchoOff&) = delete;
  bool ok() const { return ok_; }

 private:
  int tty_;
  termios saved_{};
  bool ok_ = false;
};

void show(int tty, const std::string& text) {
  if (::write(tty, text.data(), text.size()) < 0) return;  // a terminal that is gone also fails the read
}

enum class Line { whole, end, too_long, interrupted, error };

Line read_line(int tty, const sigset_t& mask, SecretBuffer& buffer, std::size_t& size) {
  size = 0;
  for (;;) {
    pollfd p{tty, POLLIN, 0};
    const int ready = ::ppoll(&p, 1, nullptr, &mask);
    if (g_signal != 0) return Line::interrupted;
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t n = ready < 0 ? -1 : ::read(tty, buffer.data() + size, buffer.size() - size);
    if (n < 0) return Line::error;
    if (n == 0) return size == 0 ? Line::end : Line::whole;
    size += static_cast<std::size_t>(n);
    if (buffer.data()[size - 1] == '\n') return --size, Line::whole;
    if (size == buffer.size()) {
      ::tcflush(tty, TCIFLUSH);
      return Line::too_long;
    }
  }
}

}  // namespace

UniqueFd open_terminal() { return UniqueFd(::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)); }

Outcome<SecretBuffer> read_hidden(int tty, const std::string& prompt) {
  SecretBuffer buffer(kMaxPassphrase + 2);
  for (;;) {
    Line line = Line::error;
    std::size_t size = 0;
    int signal = 0;
    {
      const SignalGuard guard;
      const EchoOff quiet(tty);
      if (!quiet.ok()) return Failure{Exit::passphrase, "terminal", "the echo cannot be turned off", ""};
      show(tty, prompt);
      line = read_line(tty, guard.mask(), buffer, size);
      signal = g_signal;
      show(tty, "\n");
    }
    switch (line) {
      case Line::whole:
        buffer.shrink(size);
        return buffer;
      case Line::interrupted:
        // With everything put back, what the signal would have done; after a stop the prompt comes again.
        ::kill(::getpid(), signal);
        continue;
      case Line::end:
        return Failure{Exit::passphrase, "passphrase", "none was given", ""};
      case Line::too_long:
        return failure_of(Errc::bad_passphrase, "passphrase");
      case Line::error:
        return failure_of(last_errno(), "terminal", Exit::passphrase);
    }
  }
}

std::string read_shown(int tty, const std::string& prompt) {
  show(tty, prompt);
  std::string text;
  char c = 0;
  while (text.size() < 1024) {
    const ssize_t n = ::read(tty, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || c == '\n') break;
    text += c;
  }
  return text;
}

}  // namespace ecfs
