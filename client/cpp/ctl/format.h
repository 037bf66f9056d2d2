#pragma once

#include <string>
#include <vector>

#include "client/cpp/ctl/daemon_query.h"

namespace monarch::ctl {

// From what daemons said to what people read. Pure: the same input gives the same text. One file for each
// command.
std::string FormatStatus(const std::vector<Snapshot>& snapshots);
std::string FormatPs(const std::vector<Snapshot>& snapshots);
std::string FormatTree(const std::vector<Snapshot>& snapshots);

// ... and to what programs read: {"daemons": [{"address", "answered", "error" or "status" and "tree"}]}, the
// messages of proto/monarch/v1/admin.proto in protobuf's JSON form (64-bit numbers are strings).
std::string FormatJson(const std::vector<Snapshot>& snapshots, bool with_tree);

// Parts of the above.
std::string FormatAge(int64_t ms);  // "850ms", "12s", "3m12s", "5h02m", "9d04h"
std::string ShortSession(const std::string& session);
// A line for each daemon that gave no answer.
std::string FormatUnanswered(const std::vector<Snapshot>& snapshots);

}  // namespace monarch::ctl
