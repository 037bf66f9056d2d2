#include "daemon/session_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/shared_fds.h"
#include "message/doorbell.h"
#include "message/utf8.h"

namespace monarch {
namespace {

constexpr size_t kSharedFds = 3;
// Of each long text of a FailureEvent; one packet holds four.
constexpr size_t kTextBytesMax = 8 << 10;
constexpr size_t kLostActorsMax = 32;
constexpr size_t kNameBytesMax = 256;
// Of all spawns of a session: what is made of each takes memory.
constexpr size_t kSpawnedMax = 1 << 20;

absl::StatusOr<uint64_t> Number(const Value& body, std::string_view key) {
  MONARCH_ASSIGN_OR_RETURN(const int64_t number, body[key].AsInt());
  return static_cast<uint64_t>(number);
}

absl::StatusOr<uint32_t> Small(const Value& body, std::string_view key) {
  MONARCH_ASSIGN_OR_RETURN(const int64_t number, body[key].AsInt());
  if (number < 0 || number > int64_t{UINT32_MAX}) return absl::InvalidArgumentError("number out of range");
  return static_cast<uint32_t>(number);
}

absl::Status ReadClient(const Value& body, std::vector<ScopedFd> fds, SessionBook* book) {
  if (fds.size() != 3 && fds.size() != 4) return absl::InvalidArgumentError("session: wanted 3 or 4 fds");
  MONARCH_ASSIGN_OR_RETURN(book->client_address, ProcAddressFromValue(body["client"]));
  MONARCH_ASSIGN_OR_RETURN(book->client.uid, Small(body, "uid"));
  MONARCH_ASSIGN_OR_RETURN(const uint32_t pid, Small(body, "pid"));
  book->client.pid = static_cast<pid_t>(pid);
  MONARCH_ASSIGN_OR_RETURN(book->client.name, body["name"].AsString());
  book->client.pidfd = std::move(fds[0]);
  book->client.out = std::move(fds[1]);
  book->client.err = std::move(fds[2]);
  if (fds.size() == 4) book->client.output_stream = std::move(fds[3]);
  return absl::OkStatus();
}

absl::Status ReadProc(const Value& body, std::vector<ScopedFd> fds, SessionBook* book) {
  ProcRecord record;
  MONARCH_ASSIGN_OR_RETURN(record.description.address, ProcAddressFromValue(body["proc"]));
  MONARCH_ASSIGN_OR_RETURN(record.description.rank, Small(body, "rank"));
  MONARCH_ASSIGN_OR_RETURN(const uint64_t pid, Number(body, "pid"));
  record.description.pid = static_cast<int64_t>(pid);
  MONARCH_ASSIGN_OR_RETURN(record.description.mesh, body["mesh"].AsString());
  MONARCH_ASSIGN_OR_RETURN(record.description.rank_label, body["rank_label"].AsString());
  MONARCH_ASSIGN_OR_RETURN(record.is_client, body["is_client"].AsBool());
  MONARCH_ASSIGN_OR_RETURN(record.owner, ActorAddressFromValue(body["owner"]));
  MONARCH_ASSIGN_OR_RETURN(record.spawn_id, body["spawn"].AsString());
  MONARCH_ASSIGN_OR_RETURN(record.spawn_index, Number(body, "spawn_index"));
  MONARCH_ASSIGN_OR_RETURN(record.stop_reason, body["stop_reason"].AsString());
  MONARCH_ASSIGN_OR_RETURN(const Id128 control, Id128FromValue(body["control"]));
  if (!fds.empty()) {
    if (fds.size() != kSharedFds) return absl::InvalidArgumentError("proc: wanted 3 fds");
    MONARCH_ASSIGN_OR_RETURN(record.shared, TakeSharedFds(&fds));
    record.description.phase = ProcPhase::kConnected;
    book->control_tokens[record.description.address.proc] = StartToken(control);
  }
  book->procs.push_back(std::move(record));
  return absl::OkStatus();
}

absl::Status ReadLink(const Value& body, std::vector<ScopedFd> fds, SessionBook* book) {
  KeptLink link;
  MONARCH_ASSIGN_OR_RETURN(link.a, Number(body, "a"));
  MONARCH_ASSIGN_OR_RETURN(link.b, Number(body, "b"));
  MONARCH_ASSIGN_OR_RETURN(link.ring, body["ring"].AsBool());
  MONARCH_ASSIGN_OR_RETURN(link.bit_in_a, Small(body, "a_bit"));
  MONARCH_ASSIGN_OR_RETURN(link.bit_in_b, Small(body, "b_bit"));
  MONARCH_ASSIGN_OR_RETURN(link.under_way, body["under_way"].AsBool());
  if (link.a == link.b || link.bit_in_a >= kRingBits || link.bit_in_b >= kRingBits)
    return absl::InvalidArgumentError("link: no two processes, or a bit out of range");
  if (link.under_way && link.ring) {
    if (fds.size() != 1) return absl::InvalidArgumentError("link: wanted the ring");
    link.ring_fd = std::move(fds[0]);
  }
  book->links.push_back(std::move(link));
  return absl::OkStatus();
}

absl::Status ReadSpawn(const Value& body, SessionBook* book) {
  KeptSpawn spawn;
  MONARCH_ASSIGN_OR_RETURN(spawn.request_id, body["id"].AsString());
  MONARCH_ASSIGN_OR_RETURN(spawn.mesh, body["mesh"].AsString());
  MONARCH_ASSIGN_OR_RETURN(spawn.first, Number(body, "first"));
  MONARCH_ASSIGN_OR_RETURN(spawn.count, Number(body, "count"));
  const Value::List* labels = body["labels"].list();
  const Value::List* sizes = body["sizes"].list();
  if (labels == nullptr || sizes == nullptr) return absl::InvalidArgumentError("spawn: no shape");
  std::vector<std::string> names;
  std::vector<size_t> lengths;
  for (const Value& label : *labels) {
    MONARCH_ASSIGN_OR_RETURN(names.emplace_back(), label.AsString());
  }
  for (const Value& size : *sizes) {
    MONARCH_ASSIGN_OR_RETURN(const int64_t length, size.AsInt());
    lengths.push_back(static_cast<size_t>(length));
  }
  MONARCH_ASSIGN_OR_RETURN(NDSlice slice, NDSlice::RowMajor(std::move(lengths)));
  MONARCH_ASSIGN_OR_RETURN(spawn.shape, Shape::Create(std::move(names), std::move(slice)));
  if (const Value::List* ranks = body["ranks"].list(); ranks != nullptr) {
    for (const Value& rank : *ranks) {
      MONARCH_ASSIGN_OR_RETURN(const int64_t number, rank.AsInt());
      if (number < 0 || static_cast<size_t>(number) >= spawn.shape.size())
        return absl::InvalidArgumentError("spawn: a rank that its shape has not");
      spawn.ranks.push_back(static_cast<uint32_t>(number));
    }
  }
  if (!body["incarnation"].is_nil()) {
    MONARCH_ASSIGN_OR_RETURN(spawn.incarnation, Small(body, "incarnation"));
  }
  if (spawn.count != (spawn.ranks.empty() ? spawn.shape.size() : spawn.ranks.size()))
    return absl::InvalidArgumentError("spawn: count and shape differ");
  size_t spawned = 0;
  for (const auto& [other, kept] : book->spawns) spawned += kept.count;
  if (spawn.count > kSpawnedMax - spawned) return absl::ResourceExhaustedError("spawn: too many processes");
  const std::string id = spawn.request_id;
  book->spawns.insert_or_assign(id, std::move(spawn));
  return absl::OkStatus();
}

// One packet has to hold it; who was connected has had all of it.
Value Shortened(FailureEvent event) {
  for (std::string* text : {&event.stderr_tail, &event.traceback, &event.backtrace, &event.reason}) {
    if (text->size() > kTextBytesMax) *text = text->substr(text->size() - kTextBytesMax);
  }
  event.cause.clear();
  return ToValue(event);
}

std::string Name(const std::string& text) { return ToUtf8(text.substr(0, kNameBytesMax)); }

absl::Status ReadEnd(const Value& body, SessionBook* book) {
  KeptEnd end;
  MONARCH_ASSIGN_OR_RETURN(end.proc, ProcAddressFromValue(body["proc"]));
  MONARCH_ASSIGN_OR_RETURN(end.event, FailureEventFromValue(body["event"]));
  if (!body["lost"].is_nil()) {
    const Value::List* const lost = body["lost"].list();
    if (lost == nullptr) return absl::InvalidArgumentError("end: its actors are no list");
    for (const Value& actor : *lost) {
      EventLog::LostActor one;
      MONARCH_ASSIGN_OR_RETURN(one.mesh, actor["mesh"].AsString());
      MONARCH_ASSIGN_OR_RETURN(one.rank, Small(actor, "rank"));
      MONARCH_ASSIGN_OR_RETURN(one.actor_class, actor["class"].AsString());
      end.lost_actors.push_back(std::move(one));
    }
  }
  book->ends.push_back(std::move(end));
  return absl::OkStatus();
}

absl::Status ReadFailure(const Value& body, SessionBook* book) {
  MONARCH_ASSIGN_OR_RETURN(FailureEvent event, FailureEventFromValue(body["event"]));
  book->failures.push_back(std::move(event));
  return absl::OkStatus();
}

absl::Status ReadActor(const Value& body, SessionBook* book) {
  ActorRecord actor;
  MONARCH_ASSIGN_OR_RETURN(actor.address, ActorAddressFromValue(body["actor"]));
  MONARCH_ASSIGN_OR_RETURN(actor.owner, ActorAddressFromValue(body["owner"]));
  MONARCH_ASSIGN_OR_RETURN(actor.name, body["name"].AsString());
  MONARCH_ASSIGN_OR_RETURN(actor.actor_class, body["class"].AsString());
  MONARCH_ASSIGN_OR_RETURN(actor.mesh, body["mesh"].AsString());
  MONARCH_ASSIGN_OR_RETURN(actor.rank, Small(body, "rank"));
  MONARCH_ASSIGN_OR_RETURN(actor.rank_label, body["rank_label"].AsString());
  MONARCH_ASSIGN_OR_RETURN(actor.incarnation, Small(body, "incarnation"));
  actor.failed = body["failed"].AsBool().value_or(false);  // older builds kept no others
  book->actors.push_back(std::move(actor));
  return absl::OkStatus();
}

absl::Status ReadHang(const Value& body, SessionBook* book) {
  KeptHang hang;
  MONARCH_ASSIGN_OR_RETURN(hang.notice, HangNoticeFromValue(body["notice"]));
  MONARCH_ASSIGN_OR_RETURN(const int64_t began_ns, body["began_ns"].AsInt());
  hang.began = absl::Nanoseconds(began_ns);
  book->hangs.push_back(std::move(hang));
  return absl::OkStatus();
}

}  // namespace

std::string ProcKey(uint64_t proc) { return absl::StrCat("proc/", proc); }
std::string LinkKey(uint64_t a, uint64_t b) { return absl::StrCat("link/", a, "/", b); }
std::string ActorKey(const ActorAddress& actor) {
  return absl::StrCat("actor/", actor.proc.proc, "/", actor.actor);
}
std::string HangKey(const ActorAddress& actor) {
  return absl::StrCat("hang/", actor.proc.proc, "/", actor.actor);
}
std::string SpawnKey(const std::string& request_id) { return absl::StrCat("spawn/", request_id); }

BookEntry EntryOf(const SessionClient& client, const ProcAddress& address) {
  BookEntry entry{"session",
                  {{"kind", Value("session")},
                   {"client", ToValue(address)},
                   {"uid", Value(uint32_t{client.uid})},
                   {"pid", Value(int64_t{client.pid})},
                   {"name", Value(client.name)}},
                  {client.pidfd.get(), client.out.get(), client.err.get()}};
  if (client.output_stream.valid()) entry.fds.push_back(client.output_stream.get());
  return entry;
}

BookEntry EntryOf(const ProcRecord& record) {
  const ProcDescription& who = record.description;
  BookEntry entry{ProcKey(who.address.proc),
                  {{"kind", Value("proc")},
                   {"proc", ToValue(who.address)},
                   {"rank", Value(who.rank)},
                   {"pid", Value(who.pid)},
                   {"mesh", Value(who.mesh)},
                   {"rank_label", Value(who.rank_label)},
                   {"is_client", Value(record.is_client)},
                   {"owner", ToValue(record.owner)},
                   {"spawn", Value(record.spawn_id)},
                   {"spawn_index", Value(uint64_t{record.spawn_index})},
                   {"stop_reason", Value(record.stop_reason)},
                   {"control", ToValue(record.control.token())}},
                  {}};
  if (record.introduced())
    entry.fds = {record.shared.doorbell.get(), record.shared.bell.get(), record.shared.segment.get()};
  return entry;
}

BookEntry EntryOf(const KeptLink& link) {
  BookEntry entry{LinkKey(link.a, link.b),
                  {{"kind", Value("link")},
                   {"a", Value(link.a)},
                   {"b", Value(link.b)},
                   {"ring", Value(link.ring)},
                   {"a_bit", Value(link.bit_in_a)},
                   {"b_bit", Value(link.bit_in_b)},
                   {"under_way", Value(link.under_way)}},
                  {}};
  if (link.under_way && link.ring) entry.fds = {link.ring_fd.get()};
  return entry;
}

BookEntry EntryOf(const KeptSpawn& spawn) {
  Value::List labels;
  for (const std::string& label : spawn.shape.labels()) labels.emplace_back(label);
  Value::List sizes;
  for (const size_t size : spawn.shape.slice().sizes()) sizes.emplace_back(uint64_t{size});
  Value::List ranks;
  for (const uint32_t rank : spawn.ranks) ranks.emplace_back(rank);
  return {SpawnKey(spawn.request_id),
          {{"kind", Value("spawn")},
           {"id", Value(spawn.request_id)},
           {"mesh", Value(spawn.mesh)},
           {"labels", Value(std::move(labels))},
           {"sizes", Value(std::move(sizes))},
           {"ranks", Value(std::move(ranks))},
           {"incarnation", Value(spawn.incarnation)},
           {"first", Value(spawn.first)},
           {"count", Value(uint64_t{spawn.count})}},
          {}};
}

BookEntry EntryOf(uint64_t number, const KeptEnd& end) {
  Value::List lost;
  for (size_t i = 0; i < std::min(end.lost_actors.size(), kLostActorsMax); ++i) {
    const EventLog::LostActor& actor = end.lost_actors[i];
    lost.emplace_back(Value::Map{{"mesh", Value(Name(actor.mesh))},
                                 {"rank", Value(actor.rank)},
                                 {"class", Value(Name(actor.actor_class))}});
  }
  return {absl::StrCat("end/", number),
          {{"kind", Value("end")},
           {"proc", ToValue(end.proc)},
           {"event", Shortened(end.event)},
           {"lost", Value(std::move(lost))}},
          {}};
}

BookEntry FailureEntry(uint64_t number, const FailureEvent& event) {
  return {absl::StrCat("failure/", number), {{"kind", Value("failure")}, {"event", Shortened(event)}}, {}};
}

BookEntry EntryOf(const ActorRecord& actor) {
  return {ActorKey(actor.address),
          {{"kind", Value("actor")},
           {"actor", ToValue(actor.address)},
           {"owner", ToValue(actor.owner)},
           {"name", Value(Name(actor.name))},
           {"class", Value(Name(actor.actor_class))},
           {"mesh", Value(Name(actor.mesh))},
           {"rank", Value(actor.rank)},
           {"rank_label", Value(Name(actor.rank_label))},
           {"incarnation", Value(actor.incarnation)},
           {"failed", Value(actor.failed)}},
          {}};
}

BookEntry EntryOf(const KeptHang& hang) {
  return {HangKey(hang.notice.event.actor),
          {{"kind", Value("hang")},
           {"notice", ToValue(hang.notice)},
           {"began_ns", Value(absl::ToInt64Nanoseconds(hang.began))}},
          {}};
}

absl::Status SessionBook::Add(const Value& body, std::vector<ScopedFd> fds) {
  MONARCH_ASSIGN_OR_RETURN(const std::string kind, body["kind"].AsString());
  if (kind == "session") return ReadClient(body, std::move(fds), this);
  if (kind == "proc") return ReadProc(body, std::move(fds), this);
  if (kind == "link") return ReadLink(body, std::move(fds), this);
  if (kind == "spawn") return ReadSpawn(body, this);
  if (kind == "end") return ReadEnd(body, this);
  if (kind == "failure") return ReadFailure(body, this);
  if (kind == "actor") return ReadActor(body, this);
  if (kind == "hang") return ReadHang(body, this);
  return absl::InvalidArgumentError(absl::StrCat("an entry of kind ", kind));
}

AdoptionFate FateOf(const SessionBook& book, const ProcRecord& worker, bool has_news) {
  if (!has_news) return AdoptionFate::kForget;
  const auto spawn = book.spawns.find(worker.spawn_id);
  // One of its first attempt, which an earlier restart had cut off, may be left.
  const bool finished = spawn != book.spawns.end() && spawn->second.Has(worker.description.address);
  return finished ? AdoptionFate::kKeep : AdoptionFate::kKill;
}

}  // namespace monarch
