#include "daemon/stop_machine.h"

#include <algorithm>

namespace monarch {

StopMachine::StopMachine(const Plan& plan, absl::Duration now)
    : term_at_(now + (plan.can_ask ? plan.grace : absl::ZeroDuration())),
      kill_at_(term_at_ + plan.kill_after) {}

StopMachine::Action StopMachine::Begin(absl::Duration now) {
  if (now < term_at_) {
    strongest_ = Action::kAsk;
    return Action::kAsk;
  }
  return OnTime(now);
}

StopMachine::Action StopMachine::Tighten(const Plan& plan, absl::Duration now) {
  const StopMachine other(plan, now);
  term_at_ = std::min(term_at_, other.term_at_);
  kill_at_ = std::min(kill_at_, other.kill_at_);
  return OnTime(now);
}

StopMachine::Action StopMachine::OnTime(absl::Duration now) {
  if (now >= kill_at_) {
    strongest_ = Action::kKill;
    kill_at_ = now + kKillRepeat;
    return Action::kKill;
  }
  if (now >= term_at_ && strongest_ < Action::kTerm) {
    strongest_ = Action::kTerm;
    return Action::kTerm;
  }
  return Action::kNone;
}

absl::Duration StopMachine::NextDeadline() const { return strongest_ < Action::kTerm ? term_at_ : kill_at_; }

}  // namespace monarch
