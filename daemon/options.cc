#include "daemon/options.h"

#include <CLI/CLI.hpp>
#include <map>

#include "base/version.h"

namespace monarch {

DaemonOptions::Parsed DaemonOptions::Parse(int argc, char** argv, DaemonOptions* options) {
  CLI::App app("monarchd: spawns, supervises and stops worker processes on this host");
  app.set_version_flag("--version", std::string("monarchd ") + kVersion);
  app.add_option("--run-dir", options->run_dir, "directory of grpc.sock, native.sock and lock");
  CLI::Option* client_fd =
      app.add_option("--client-fd", options->client_fd, "inherited socket of the private client");
  app.add_flag("--private", options->is_private, "serve one client and end with it")->needs(client_fd);
  app.add_option("--worker-address", options->worker_addresses,
                 "serve other daemons of this user there (may be repeated): ipc://PATH, ipc://@NAME, "
                 "tcp://127.0.0.1:PORT, tcp://HOST:fdN (inherited listening socket)")
      ->excludes(client_fd);
  app.add_option("--launcher", options->launcher_path, "monarch-launcher (default: beside this program)");
  app.add_option("--log", options->log_path, "log file");
  const std::map<std::string, LogLevel> levels = {{"debug", LogLevel::kDebug},
                                                  {"info", LogLevel::kInfo},
                                                  {"warning", LogLevel::kWarning},
                                                  {"error", LogLevel::kError}};
  app.add_option("--log-level", options->log_level, "debug, info, warning or error")
      ->transform(CLI::CheckedTransformer(levels, CLI::ignore_case));
  app.add_option("--ring-links-max", options->ring_links_max,
                 "links of a process by shared memory; further ones are relayed (0: all)")
      ->check(CLI::Range(0, 256));
  app.add_option("--procs-per-session-max", options->limits.procs_per_session_max);
  app.add_option("--procs-per-host-max", options->limits.procs_per_host_max);
  app.add_option("--sessions-per-host-max", options->limits.sessions_per_host_max);
  app.add_option("--spawn-phase-ms", options->limits.spawn_phase_ms, "deadline of each phase of a spawn");
  app.add_option("--remote-lease-ms", options->limits.remote_lease_ms,
                 "silence of a session's home until the session ends here");
  app.add_option("--host-dead-ms", options->limits.host_dead_ms,
                 "silence of an attached host until it is gone");
  app.add_option("--stop-grace-ms", options->limits.stop_grace_ms, "from a stop request to TERM");
  app.add_option("--session-end-kill-ms", options->limits.session_end_kill_ms,
                 "from a client's death to KILL");
  try {
    app.parse(argc, argv);
    if (!options->is_private && options->worker_addresses.empty() && options->run_dir.empty()) {
      throw CLI::ValidationError("--run-dir", "is needed unless --private or --worker-address is given");
    }
    if (const absl::Status valid = options->limits.Validate(); !valid.ok()) {
      throw CLI::ValidationError(std::string(valid.message()));
    }
  } catch (const CLI::ParseError& error) {
    return Parsed{app.exit(error)};
  }
  return Parsed{};
}

}  // namespace monarch
