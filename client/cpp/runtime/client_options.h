#pragma once

#include <string>

#include "base/limits.h"

namespace monarch {

// Where the daemon is (docs/architecture.md, "Finding the daemon"), and what a client is to have there.
// Threading: plain data.
struct ClientOptions {
  // "": MONARCH_ADDRESS, else the system's socket, else a private daemon. "private": a private daemon.
  // "unix:DIR": the daemon whose run directory is DIR.
  std::string address;
  std::string monarchd_path;  // for a private daemon; "": beside the executable or library, else PATH
  std::string name;           // shown by monarchctl; "": argv[0]
  int stdout_fd = 1;          // where the workers' output goes; -1: nowhere
  int stderr_fd = 2;
  int output_stream_fd = -1;  // where marked output goes (WIRE.md, output stream); -1: nowhere
  Limits limits;              // what the environment has goes before
};

}  // namespace monarch
