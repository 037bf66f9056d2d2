#include "daemon/event_log.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"

namespace monarch {
namespace {

size_t BytesOf(const FailureEvent& event) {
  size_t bytes = sizeof(event);
  for (const std::string* text : {&event.mesh, &event.rank_label, &event.actor_class, &event.host_name,
                                  &event.phase, &event.reason, &event.stderr_tail, &event.traceback}) {
    bytes += text->size();
  }
  for (const FailureEvent& cause : event.cause) bytes += BytesOf(cause);
  return bytes;
}

size_t BytesOf(const std::optional<FailureEvent>& event) { return event ? BytesOf(*event) : 0; }

}  // namespace

void EventLog::Add(std::string session, std::string what, std::optional<FailureEvent> failure) {
  const size_t bytes = BytesOf(failure);
  while (!entries_.empty() && (entries_.size() == entries_max_ || bytes_ + bytes > bytes_max_)) {
    bytes_ -= BytesOf(entries_.front().failure);
    entries_.pop_front();
  }
  bytes_ += bytes;
  entries_.push_back({next_cursor_++, std::move(session), std::move(what), std::move(failure),
                      absl::ToUnixMillis(WallTime())});
  for (auto& [id, news] : subscribers_) news();
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
