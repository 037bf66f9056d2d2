#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/failure_event.h"
#include "base/ids.h"
#include "base/ndslice.h"
#include "base/scoped_fd.h"
#include "daemon/event_log.h"
#include "daemon/proc_table.h"
#include "daemon/session_types.h"
#include "message/control_message.h"
#include "message/hang_notice.h"

namespace monarch {

// Two processes that were introduced. The introductions are under way until both have certainly been given to
// the kernel; so long the ring is kept, to be sent again.
struct KeptLink {
  uint64_t a = 0;
  uint64_t b = 0;
  bool ring = false;
  uint32_t bit_in_a = 0;
  uint32_t bit_in_b = 0;
  bool under_way = false;
  ScopedFd ring_fd;
};

// A spawn that succeeded: the answer to its repetition. Its processes have `count` numbers from `first` on.
struct KeptSpawn {
  std::string request_id;
  std::string mesh;
  Shape shape;
  std::vector<uint32_t> ranks;  // those that were started; none: all
  uint32_t incarnation = 1;
  uint64_t first = 0;
  size_t count = 0;

  bool Has(const ProcAddress& proc) const { return proc.proc >= first && proc.proc - first < count; }
};

// The end of a process.
struct KeptEnd {
  ProcAddress proc;
  FailureEvent event;
  std::vector<EventLog::LostActor> lost_actors;
};

// A handler that was told to be hung, and by when it began is known.
struct KeptHang {
  HangNotice notice;
  absl::Duration began;
};

// What a session's launcher keeps for the next daemon, in the form in which it does: entries, each a map with
// its key and up to six fds.
struct BookEntry {
  std::string key;
  Value::Map body;
  std::vector<int> fds;  // the maker's
};

BookEntry EntryOf(const SessionClient& client, const ProcAddress& address);
BookEntry EntryOf(const ProcRecord& record);
BookEntry EntryOf(const KeptLink& link);
BookEntry EntryOf(const KeptSpawn& spawn);
BookEntry EntryOf(const ActorRecord& actor);
BookEntry EntryOf(const KeptHang& hang);
// The last of them are kept, and so the key is a place: that of the `number`th.
BookEntry EntryOf(uint64_t number, const KeptEnd& end);
BookEntry FailureEntry(uint64_t number, const FailureEvent& event);
std::string ProcKey(uint64_t proc);
std::string ActorKey(const ActorAddress& actor);
std::string HangKey(const ActorAddress& actor);
std::string LinkKey(uint64_t a, uint64_t b);
std::string SpawnKey(const std::string& request_id);

// The entries of one session, read again. Plain data, apart from Add.
struct SessionBook {
  ProcAddress client_address;
  SessionClient client;           // without connection and shared pages
  std::vector<ProcRecord> procs;  // without connections and control passes; the client among them
  std::map<uint64_t, StartToken> control_tokens;  // by proc
  std::vector<KeptEnd> ends;
  std::vector<FailureEvent> failures;  // of actors
  std::vector<ActorRecord> actors;
  std::vector<KeptHang> hangs;
  std::vector<KeptLink> links;
  std::map<std::string, KeptSpawn> spawns;

  // An entry of any build: one that is not understood is refused, and the others hold. InvalidArgument;
  // ResourceExhausted: more spawned processes than any session has.
  absl::Status Add(const Value& body, std::vector<ScopedFd> fds);
};

// What becomes of a worker in the book. Pure.
enum class AdoptionFate {
  kKeep,
  kKill,    // of a spawn that was cut off: its asker repeats it
  kForget,  // never launched
};
AdoptionFate FateOf(const SessionBook& book, const ProcRecord& worker, bool has_news);

}  // namespace monarch
