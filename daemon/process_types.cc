#include "daemon/process_types.h"

namespace monarch {

const char* ProcPhaseName(ProcPhase phase) {
  switch (phase) {
    case ProcPhase::kAccepted:
      return "accepted";
    case ProcPhase::kLaunched:
      return "launched";
    case ProcPhase::kConnected:
      return "connected";
    case ProcPhase::kReady:
      return "ready";
    case ProcPhase::kStopping:
      return "stopping";
    case ProcPhase::kExited:
      return "exited";
  }
  return "unknown";
}

}  // namespace monarch
