#include "daemon/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/version.h"

namespace monarch {
namespace {

constexpr char kSystemRunDir[] = "/run/monarch";

// mailbox_bytes_max is --mailbox-bytes-max.
std::string OptionOf(std::string_view limit) {
  return absl::StrCat("--", absl::StrReplaceAll(std::string(limit), {{"_", "-"}}));
}

void AddLimits(CLI::App* app, Limits* limits) {
  for (const LimitEntry& entry : LimitTable(*limits)) {
    const auto set = [limits, name = std::string(entry.name)](const int64_t& value) {
      static_cast<void>(SetLimit(name, value, limits));
    };
    app->add_option_function<int64_t>(OptionOf(entry.name), set,
                                      absl::StrCat(std::string(entry.what), " (", entry.value, ")"))
        ->group("Limits");
  }
}

}  // namespace

DaemonOptions::Parsed DaemonOptions::Parse(int argc, char** argv, DaemonOptions* options) {
  CLI::App app("monarchd: spawns, supervises and stops worker processes on this host");
  app.set_version_flag("--version", std::string("monarchd ") + kVersion);
  app.add_option("--run-dir", options->run_dir, "directory of grpc.sock, native.sock and lock");
  CLI::Option* client_fd =
      app.add_option("--client-fd", options->client_fd, "inherited socket of the private client");
  app.add_flag("--private", options->is_private, "serve one client and end with it")->needs(client_fd);
  CLI::Option* system = app.add_flag("--system", options->is_system,
                                     "serve all users of this host, with their processes in units of systemd "
                                     "(run directory: /run/monarch)");
  system->excludes(client_fd);
  app.add_flag("--allow-root", options->allow_root, "with --system: start processes of root, too")
      ->needs(system);
  app.add_option("--worker-address", options->worker_addresses,
                 "serve other daemons of this user there (may be repeated): ipc://PATH, ipc://@NAME, "
                 "tcp://127.0.0.1:PORT, tcp://HOST:fdN (inherited listening socket)")
      ->excludes(client_fd)
      ->excludes(system);
  app.add_option("--launcher", options->launcher_path, "monarch-launcher (default: beside this program)");
  app.add_option("--log", options->log_path, "log file");
  const std::map<std::string, LogLevel> levels = {{"debug", LogLevel::kDebug},
                                                  {"info", LogLevel::kInfo},
                                                  {"warning", LogLevel::kWarning},
                                                  {"error", LogLevel::kError}};
  app.add_option("--log-level", options->log_level, "debug, info, warning or error")
      ->transform(CLI::CheckedTransformer(levels, CLI::ignore_case));
  AddLimits(&app, &options->limits);
  try {
    if (const absl::Status set = SetLimitsFromEnvironment(environ, &options->limits); !set.ok()) {
      throw CLI::ValidationError(std::string(set.message()));
    }
    app.parse(argc, argv);
    if (options->is_system && options->run_dir.empty()) options->run_dir = kSystemRunDir;
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
