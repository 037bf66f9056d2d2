#include "daemon/session_activities.h"

#include <utility>

#include "daemon/activity_probe.h"
#include "daemon/session.h"

namespace monarch {
namespace {

constexpr absl::Duration kOld = absl::Seconds(1);

}  // namespace

void ListActivities(EventLoop* loop, SessionManager* sessions, const std::vector<SessionId>& which,
                    absl::AnyInvocable<void(std::vector<ActorActivity>)> done) {
  std::vector<const ProcRecord*> records;
  for (const SessionId& id : which) {
    const Session* session = sessions->Find(id);
    if (session == nullptr) continue;
    for (const auto& [proc, record] : session->procs().all()) records.push_back(&record);
  }
  ProbeActivities(loop, records, kOld,
                  [sessions, which, done = std::move(done)](std::vector<ActorActivity> found) mutable {
                    for (const SessionId& id : which) {
                      const Session* session = sessions->Find(id);
                      if (session == nullptr) continue;
                      for (ActorActivity& one : found) one.hung = one.hung || session->hangs().IsHung(one);
                    }
                    done(std::move(found));
                  });
}

}  // namespace monarch
