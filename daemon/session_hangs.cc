// Session: handlers that take long.
#include <utility>

#include "base/log.h"
#include "daemon/session.h"

namespace monarch {

void Session::OnHang(const ActorAddress& actor, const Hang& hang, absl::Duration began) {
  const ActorRecord* who = actors_.Find(actor);
  const ProcRecord* record = procs_.Find(actor.proc);
  if (who == nullptr || record == nullptr) return;
  HangNotice notice;
  notice.owner = who->owner;
  notice.event = BaseEvent(*record);
  notice.event.kind = FailureKind::kHung;
  notice.event.mesh = who->mesh;
  notice.event.rank = who->rank;
  notice.event.rank_label = who->rank_label;
  notice.event.actor_class = who->actor_class;
  notice.event.actor = actor;
  notice.event.reason = hang.Text();
  notice.hang = hang;
  LogInfo("daemon", hang.recovered ? "handler ended" : "handler hung")
      .With("session", id_.ToHex())
      .With("who", notice.event.Summary());
  context_->events->AddHang(id_.ToHex(), notice);
  // So that the next daemon does not tell it again.
  if (hang.recovered) {
    keeper_.ForgetHang(actor);
  } else {
    keeper_.KeepHang({notice, began});
  }
  hosts_.TellHang(notice);
}

void Session::OnRemoteHang(const HangNotice& notice) { context_->events->AddHang(id_.ToHex(), notice); }

}  // namespace monarch
