#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/failure_event.h"
#include "message/hang_notice.h"

namespace monarch {

// What happened on this host: a bounded log with cursors that only grow.
// Threading: confined to the control loop.
class EventLog {
 public:
  // An actor that went with its process.
  struct LostActor {
    std::string mesh;
    uint32_t rank = 0;
    std::string actor_class;
  };
  struct Entry {
    uint64_t cursor = 0;
    std::string session;  // hex
    std::string what;
    std::optional<FailureEvent> failure;
    int64_t unix_ms = 0;
    std::vector<LostActor> lost_actors;  // of "proc_ended", a bounded number of them
    std::optional<Hang> hang;            // of "actor_hung" and "actor_recovered"
    absl::Duration recovered_after;      // of "actor_hung", once that is known
    std::string reason;                  // of "session_ended"
  };
  struct Batch {
    uint64_t missed = 0;  // dropped since `after`
    std::vector<Entry> entries;
  };

  // `bytes_max`: of what processes say in their failures.
  explicit EventLog(size_t entries_max, size_t bytes_max = 16 << 20)
      : entries_max_(entries_max), bytes_max_(bytes_max) {}

  // Drops the oldest entries when full. `unix_ms`: when that was; 0: now.
  void Add(std::string session, std::string what, std::optional<FailureEvent> failure = std::nullopt,
           std::vector<LostActor> lost_actors = {}, int64_t unix_ms = 0);
  void AddSessionEnd(std::string session, std::string reason);
  // More is known of the end of the process that `failure` is about: its entry holds that from now on. Who
  // has read the entry is not told. Nothing if there is none.
  void Complete(const std::string& session, const FailureEvent& failure);
  // A handler that is hung; or that such a one has ended: then its entry says so, too.
  void AddHang(const std::string& session, const HangNotice& notice, int64_t unix_ms = 0);
  const std::deque<Entry>& entries() const { return entries_; }
  // At most `entries_max` entries behind cursor `after`.
  Batch Read(uint64_t after, size_t entries_max) const;
  uint64_t last_cursor() const { return next_cursor_ - 1; }

  // `news` runs after each Add until Unsubscribe; it must not add or unsubscribe itself.
  uint64_t Subscribe(absl::AnyInvocable<void()> news);
  void Unsubscribe(uint64_t id) { subscribers_.erase(id); }
  // Nothing more will be added: destroys what `news` holds.
  void UnsubscribeAll() { subscribers_.clear(); }

 private:
  void Append(Entry entry);
  void DropOldest();

  const size_t entries_max_;
  const size_t bytes_max_;
  size_t bytes_ = 0;
  std::deque<Entry> entries_;
  uint64_t next_cursor_ = 1;
  std::map<uint64_t, absl::AnyInvocable<void()>> subscribers_;
  uint64_t next_subscriber_ = 1;
};

}  // namespace monarch
