#include "client/cpp/runtime/end_signals.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string>

#include "message/control_message.h"

namespace monarch {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGHUP};

// What the handler uses: constant once it is installed, or atomic.
const std::string* goodbyes[std::size(kSignals)];
std::atomic<int> daemon_socket{-1};
std::atomic<pid_t> client{0};

void OnEndSignal(int signal) {
  const int error = errno;
  const int socket = daemon_socket.load();
  // A forked child has the handler, too. Without room in the socket the daemon still sees the client's end.
  if (socket >= 0 && getpid() == client.load()) {
    const std::string& goodbye = *goodbyes[signal == kSignals[0] ? 0 : 1];
    [[maybe_unused]] const ssize_t sent =
        send(socket, goodbye.data(), goodbye.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  struct sigaction as_before = {};
  as_before.sa_handler = SIG_DFL;
  sigaction(signal, &as_before, nullptr);
  raise(signal);  // It is held back until this returns.
  errno = error;
}

void Install(int signal) {
  struct sigaction present = {};
  if (sigaction(signal, nullptr, &present) != 0) return;
  if ((present.sa_flags & SA_SIGINFO) != 0 || present.sa_handler != SIG_DFL) return;
  struct sigaction action = {};
  action.sa_handler = OnEndSignal;
  action.sa_flags = SA_ONSTACK;
  sigfillset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void TellOfEndSignals(int socket) {
  static const bool encoded = [] {
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      goodbyes[i] = new std::string(
          *EncodeControl({ControlType::kGoodbye, 0, Value::Map{{"signal", int64_t{kSignals[i]}}}}));
    }
    return true;
  }();
  static_cast<void>(encoded);
  client = getpid();
  daemon_socket = socket;
  for (const int signal : kSignals) Install(signal);
}

void TellNoMoreOfEndSignals(int socket) { daemon_socket.compare_exchange_strong(socket, -1); }

}  // namespace monarch
