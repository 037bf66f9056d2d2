#include "daemon/event_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace monarch {
namespace {

// What is left of a process that held more is told by its owners.
constexpr size_t kLostActorsMax = 64;

size_t BytesOf(const FailureEvent& event) {
  size_t bytes = sizeof(event);
  for (const std::string* text :
       {&event.mesh, &event.rank_label, &event.actor_class, &event.host_name, &event.phase, &event.reason,
        &event.stderr_tail, &event.traceback, &event.backtrace}) {
    bytes += text->size();
  }
  for (const FailureEvent& cause : event.cause) bytes += BytesOf(cause);
  return bytes;
}

size_t BytesOf(const EventLog::Entry& entry) {
  size_t bytes = entry.reason.size() + (entry.failure ? BytesOf(*entry.failure) : 0);
  if (entry.hang) bytes += sizeof(*entry.hang) + entry.hang->method.size() + entry.hang->wait_channel.size();
  for (const EventLog::LostActor& actor : entry.lost_actors) {
    bytes += sizeof(actor) + actor.mesh.size() + actor.actor_class.size();
  }
  return bytes;
}

}  // namespace

void EventLog::Add(std::string session, std::string what, std::optional<FailureEvent> failure,
                   std::vector<LostActor> lost_actors, int64_t unix_ms) {
  if (lost_actors.size() > kLostActorsMax) lost_actors.resize(kLostActorsMax);
  Entry entry;
  entry.session = std::move(session);
  entry.what = std::move(what);
  entry.failure = std::move(failure);
  entry.lost_actors = std::move(lost_actors);
  entry.unix_ms = unix_ms;
  Append(std::move(entry));
}

void EventLog::AddSessionEnd(std::string session, std::string reason) {
  Entry entry;
  entry.session = std::move(session);
  entry.what = "session_ended";
  entry.reason = std::move(reason);
  Append(std::move(entry));
}

void EventLog::AddHang(const std::string& session, const HangNotice& notice, int64_t unix_ms) {
  Entry entry;
  entry.session = session;
  entry.what = notice.hang.recovered ? "actor_recovered" : "actor_hung";
  entry.failure = notice.event;
  entry.hang = notice.hang;
  entry.unix_ms = unix_ms;
  if (notice.hang.recovered) {
    const auto told = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& one) {
      return one.what == "actor_hung" && one.session == session && one.failure->actor == notice.event.actor &&
             one.recovered_after == absl::ZeroDuration();
    });
    if (told != entries_.rend()) {
      bytes_ -= BytesOf(*told);
      told->recovered_after = std::max(notice.hang.age, absl::Nanoseconds(1));
      absl::StrAppend(&told->failure->reason, "; ", notice.hang.Text());
      bytes_ += BytesOf(*told);
    }
  }
  Append(std::move(entry));
}

void EventLog::Append(Entry entry) {
  entry.cursor = next_cursor_++;
  if (entry.unix_ms == 0) entry.unix_ms = absl::ToUnixMillis(WallTime());
  const size_t bytes = BytesOf(entry);
  while (!entries_.empty() && (entries_.size() == entries_max_ || bytes_ + bytes > bytes_max_)) DropOldest();
  bytes_ += bytes;
  entries_.push_back(std::move(entry));
  for (auto& [id, news] : subscribers_) news();
}

void EventLog::Complete(const std::string& session, const FailureEvent& failure) {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->what != "proc_ended" || entry->session != session || !entry->failure ||
        entry->failure->actor != failure.actor)
      continue;
    bytes_ -= BytesOf(*entry);
    entry->failure = failure;
    bytes_ += BytesOf(*entry);
    break;
  }
  while (bytes_ > bytes_max_ && entries_.size() > 1) DropOldest();
}

void EventLog::DropOldest() {
  bytes_ -= BytesOf(entries_.front());
  entries_.pop_front();
}

EventLog::Batch EventLog::Read(uint64_t after, size_t entries_max) const {
  Batch batch;
  if (entries_.empty() || after >= last_cursor()) return batch;
  const uint64_t oldest = entries_.front().cursor;
  if (after + 1 < oldest) {
    batch.missed = oldest - after - 1;
    after = oldest - 1;
  }
  const size_t first = after + 1 - oldest;
  const size_t count = std::min(entries_max, entries_.size() - first);
  batch.entries.assign(entries_.begin() + first, entries_.begin() + first + count);
  return batch;
}

uint64_t EventLog::Subscribe(absl::AnyInvocable<void()> news) {
  const uint64_t id = next_subscriber_++;
  subscribers_.emplace(id, std::move(news));
  return id;
}

}  // namespace monarch
