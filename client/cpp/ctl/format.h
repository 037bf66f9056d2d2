#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cpp/ctl/daemon_query.h"
#include "proto/monarch/v1/event.pb.h"

namespace monarch::ctl {

// From what daemons said to what people read. Pure: the same input gives the same text. One file for each
// command.
std::string FormatStatus(const std::vector<Snapshot>& snapshots);
// Each limit beside its use.
std::string FormatDoctor(const std::vector<Snapshot>& snapshots);
std::string FormatPs(const std::vector<Snapshot>& snapshots);
std::string FormatTree(const std::vector<Snapshot>& snapshots);

std::string FormatSessions(const std::vector<Snapshot>& snapshots);
// What became of a session that was stopped; it names those that did not end by themselves.
std::string FormatStopped(const v1::SessionInfo& session, const v1::StopSessionResponse& stopped);

// The newest of the failures, and what else failed. `now_unix_ms`: for ages.
std::string FormatWhy(const std::vector<Snapshot>& snapshots, const std::string& target, int64_t now_unix_ms);

// A line for one event; before it, one that says how many are lost.
std::string FormatEvent(const v1::WatchResponse& event, absl::TimeZone zone);

// ... and to what programs read: {"daemons": [{"address", "answered", "error" or "status" and what the
// command asked for, "tree" or "failures"}]}, the messages of proto/monarch/v1/admin.proto in protobuf's JSON
// form (64-bit numbers are strings).
enum class JsonPart { kNone, kTree, kFailures };
std::string FormatJson(const std::vector<Snapshot>& snapshots, JsonPart part);
// {"address", "session", "stopped"} on one line.
std::string FormatStoppedJson(const Snapshot& daemon, const v1::SessionInfo& session,
                              const v1::StopSessionResponse& stopped);
// {"address", "event"} on one line; the event as above, from proto/monarch/v1/event.proto.
std::string FormatEventJson(const DaemonPlace& place, const v1::WatchResponse& event);

// Parts of the above.
std::string FormatAge(int64_t ms);  // "850ms", "12s", "3m12s", "5h02m", "9d04h"
std::string ShortSession(const std::string& session);
// A line for each daemon that gave no answer.
std::string FormatUnanswered(const std::vector<Snapshot>& snapshots);

}  // namespace monarch::ctl
