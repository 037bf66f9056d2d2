#include "daemon/launcher/death_report.h"

namespace monarch {

DeathReport::Step DeathReport::LifelineFired(const ExitStatus& cause, bool is_zombie) {
  Step step;
  if (state_ != State::kAlive) return step;
  if (cause.known() || is_zombie) {
    state_ = State::kTold;
    step.dying = cause;
  } else {
    state_ = State::kWaiting;
    step.wait = true;
  }
  return step;
}

DeathReport::Step DeathReport::WaitIsOver() {
  Step step;
  if (state_ != State::kWaiting) return step;
  state_ = State::kTold;
  step.dying = ExitStatus{};
  return step;
}

DeathReport::Step DeathReport::Reaped(const ExitStatus& status) {
  Step step;
  if (state_ == State::kGone) return step;
  if (state_ != State::kTold) step.dying = status;
  step.exited = status;
  state_ = State::kGone;
  return step;
}

}  // namespace monarch
