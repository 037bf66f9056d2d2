#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/ids.h"
#include "message/packet_socket.h"

namespace monarch {

// How long to wait before the `attempt`th try (from 0): doubling, capped, and anywhere in its upper half by
// `random`, so that the processes of a host do not all come at once. Pure.
absl::Duration ReturnDelay(int attempt, uint64_t random);

// Finds the next daemon in the run directory of the last, and says there who this process is.
// Threading: confined to the service thread, and destroyed when that has ended.
class DaemonReturn {
 public:
  struct Options {
    std::string run_dir;  // empty: there is no next one
    SessionId session;
    ProcAddress self;
    StartToken token;
    absl::Duration absence_max;  // then it is given up
  };
  // `returned`: a socket whose daemon knows this process. `lost`: it does not, or none came; why.
  DaemonReturn(EventLoop* loop, Options options, std::function<void(PacketSocket)> returned,
               std::function<void(const std::string&)> lost)
      : loop_(loop), options_(std::move(options)), returned_(std::move(returned)), lost_(std::move(lost)) {}

  bool possible() const { return !options_.run_dir.empty(); }
  void Begin();

 private:
  void Try();
  void TryAgain(const absl::Status& why);
  absl::Status Connect();
  void OnAnswer();

  EventLoop* const loop_;
  const Options options_;
  const std::function<void(PacketSocket)> returned_;
  const std::function<void(const std::string&)> lost_;
  PacketSocket socket_;
  int attempt_ = 0;
  absl::Duration deadline_;
  EventLoop::TimerId answer_timer_ = 0;
};

}  // namespace monarch
