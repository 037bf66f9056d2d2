#pragma once

#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/event_loop.h"
#include "daemon/activity_state.h"
#include "daemon/session_manager.h"

namespace monarch {

// What the actors of these sessions are at work on, on this host, and which of them are hung; the state of
// what is a second old. As ProbeActivities. A session that has ended when `done` comes has no hung actors.
void ListActivities(EventLoop* loop, SessionManager* sessions, const std::vector<SessionId>& which,
                    absl::AnyInvocable<void(std::vector<ActorActivity>)> done);

}  // namespace monarch
