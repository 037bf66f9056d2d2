#pragma once

#include <string>
#include <vector>

#include "client/cpp/ctl/daemon_query.h"

namespace monarch::ctl {

// The failures that private daemons left at their end (proto/failure_file.h). Those of a place in `snapshots`
// where nobody listens take the place of its error; those of other daemons in `folders` are appended. A file
// that is not this user's own is passed over, one that is damaged too, with a line on stderr.
void AddEndedDaemons(const std::vector<std::string>& folders, std::vector<Snapshot>* snapshots);

}  // namespace monarch::ctl
