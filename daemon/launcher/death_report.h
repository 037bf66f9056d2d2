#pragma once

#include <optional>

#include "daemon/launcher/exit_status.h"

namespace monarch {

// Decides what is told about the death of one worker, and when, from the order in which its signs arrive: the
// life-line, the cause in /proc, the end of the bounded wait, the reaped status. Pure: the caller acts on
// what it returns. Invariants: at most one `dying`, before the one `exited`; nothing afterwards.
//
//   alive --life-line, cause known--> told --reaped--> gone
//   alive --life-line, cause open---> waiting --reaped or time over--> (told) --> gone
//   alive --reaped--> gone (dying and exited at once)
//
// Threading: confined to the launcher's loop.
class DeathReport {
 public:
  struct Step {
    std::optional<ExitStatus> dying;
    std::optional<ExitStatus> exited;
    bool wait = false;  // come back with WaitIsOver unless Reaped comes first
  };

  // `cause` as read from /proc; `is_zombie`: it is final although it is 0.
  Step LifelineFired(const ExitStatus& cause, bool is_zombie);
  Step WaitIsOver();
  Step Reaped(const ExitStatus& status);

  bool gone() const { return state_ == State::kGone; }

 private:
  enum class State { kAlive, kWaiting, kTold, kGone };
  State state_ = State::kAlive;
};

}  // namespace monarch
