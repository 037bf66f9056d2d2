#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace monarch {

// Where a worker daemon listens for other daemons. Threading: plain data.
//
//   tcp://HOST:PORT  tcp!HOST:PORT     loopback only; "localhost" and this host's own name mean 127.0.0.1
//   tcp://HOST:fdN                     a listening socket that was inherited as fd N, of whatever family
//   ipc://PATH  unix:PATH  unix!PATH   a socket file
//   ipc://NAME  ipc://@NAME  unix:@NAME  unix!@NAME   an abstract Unix name
//   DIAL@BIND                          two addresses: others connect to the first, the second is listened on
//   SERVICE@ADDRESS                    what comes before is no address and is ignored
struct HostAddress {
  enum class Kind { kPath, kAbstract, kTcp, kListeningFd };
  // Of the two addresses of DIAL@BIND.
  enum class Side { kDial, kBind };

  Kind kind = Kind::kPath;
  std::string text;  // as it was given
  std::string name;  // path, abstract name, or numeric address
  uint16_t port = 0;
  int fd = -1;

  // InvalidArgument: no address, or of a form that daemons do not serve. FailedPrecondition: a TCP address
  // beyond loopback.
  static absl::StatusOr<HostAddress> Parse(std::string_view text, Side side);

  // For bind and connect; not of an inherited socket.
  struct Socket {
    sockaddr_storage address = {};
    socklen_t size = 0;
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  };
  absl::StatusOr<Socket> ToSocket() const;
};

}  // namespace monarch
