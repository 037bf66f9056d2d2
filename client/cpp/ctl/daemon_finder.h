#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace monarch::ctl {

// Where a daemon can be: its run directory, which holds `grpc.sock` and `lock`.
struct DaemonPlace {
  std::string directory;

  std::string Address() const;  // unix:DIR, what --address takes
  std::string Socket() const;   // what a gRPC channel takes
};

struct FinderOptions {
  std::string system_directory = "/run/monarch";
  std::string runtime_directory;  // $XDG_RUNTIME_DIR, or empty
  std::string temporary_directory = "/tmp";
  uid_t uid = 0;  // whose private daemons
  int daemons_max =
      256;  // more than that are left out: a leak of run directories must not make monarchctl slow

  static FinderOptions FromEnvironment();
};

// The system daemon, if its socket exists, and the private daemons of the user that hold the lock of their
// run directory. A folder that another user owns or may write to, and a symbolic link, is passed over:
// whatever it holds is not this user's daemon.
std::vector<DaemonPlace> FindDaemons(const FinderOptions& options);

// The folders in which the user's private daemons have their run directories, as far as they are safe.
std::vector<std::string> PrivateFolders(const FinderOptions& options);

// `unix:DIR`. InvalidArgument for anything else.
absl::StatusOr<DaemonPlace> PlaceFromAddress(const std::string& address);

}  // namespace monarch::ctl
