#pragma once

#include <string>
#include <vector>

#include "client/cpp/ctl/daemon_query.h"

namespace monarch::ctl {

// Leaves only the failures of `target` (all if it is empty), and completes what they have as causes by what
// their daemon learned of those processes later. `target`: the name of a mesh of processes or actors;
// NAME:RANK or NAME[RANK], a member of it; or a pid. A failure is of a mesh if it, a cause of it, or an actor
// that went with it is. Pure. False: none is left.
bool KeepFailuresOf(const std::string& target, std::vector<Snapshot>* snapshots);

}  // namespace monarch::ctl
