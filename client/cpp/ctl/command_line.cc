#include "client/cpp/ctl/command_line.h"

#include <CLI/CLI.hpp>

#include "base/version.h"
#include "client/cpp/ctl/exit_code.h"

namespace monarch::ctl {
namespace {

constexpr char kFooter[] =
    "Without --address: the system daemon (/run/monarch) and your private daemons are asked, all at once.\n"
    "\n"
    "Exit codes: 0 all answered; 1 no daemon found; 2 wrong usage; 3 a daemon does not answer within the\n"
    "timeout (the others are shown all the same); 4 a daemon refused to answer; 5 no such failure,\n"
    "process or session is known; 6 stack: a process could not be read.";

absl::Duration DurationOrThrow(const char* name, const std::string& text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration >= absl::ZeroDuration()) return duration;
  throw CLI::ValidationError(name, "\"" + text + "\" is no duration, as 90s, 10m and 2h are");
}

}  // namespace

Parsed ParseCommandLine(int argc, const char* const* argv) {
  CommandLine line;
  double timeout_s = absl::ToDoubleSeconds(line.timeout);
  CLI::App app("Shows what monarchd runs on this host, and ends it.", "monarchctl");
  app.set_version_flag("--version", kVersion);
  app.add_option("--address", line.address, "Ask only this daemon: unix:DIR, DIR being its run directory");
  app.add_option("--timeout", timeout_s, "Seconds that everything together may take (5)")
      ->check(CLI::Range(0.01, 3600.0));
  app.footer(kFooter);
  app.require_subcommand(1);
  const auto add = [&](const char* name, const char* help, Command command) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->add_flag("--json", line.json, "Print JSON: the messages of monarch.v1.AdminService");
    sub->fallthrough();
    sub->callback([&line, command] { line.command = command; });
    return sub;
  };
  add("status", "The daemons: version, age, what each holds, limits that are nearly reached",
      Command::kStatus);
  add("doctor", "Each limit beside its use now, and what is nearly full", Command::kDoctor);
  add("sessions", "What runs here: each program that has processes, its age and how much it has",
      Command::kSessions);
  add("ps", "The processes of all sessions", Command::kPs);
  add("tree", "Sessions, their processes, and their actors below their owners", Command::kTree);
  add("why", "Why something failed: its causes, and the last words of the process", Command::kWhy)
      ->add_option(
          "TARGET", line.target,
          "A mesh (NAME), a member of it (NAME:RANK), or a process (PID); without it what failed last");
  add("stack", "What the threads of processes are in, Python and native; each stands still while it is read",
      Command::kStack)
      ->add_option("TARGET", line.target, "As that of why; without it all clients and workers");
  CLI::App* stop =
      add("stop", "End a session: its actors clean up, its processes end; waits for that", Command::kStop);
  stop->add_option("SESSION", line.target, "The beginning of its id, as sessions shows it")->required();
  stop->add_option_function<std::string>(
      "--grace", [&line](const std::string& text) { line.grace = DurationOrThrow("--grace", text); },
      "What its processes have before they are killed: 500ms, 10s, 2m; at most 10m (stop_grace_ms)");
  CLI::App* events =
      add("events", "What happened: processes that came and went, failures, hangs, the ends of sessions",
          Command::kEvents);
  events->add_flag("-f,--follow", line.follow, "Go on with what happens from now on, without a time limit");
  events->add_option_function<std::string>(
      "--since", [&line](const std::string& text) { line.since = DurationOrThrow("--since", text); },
      "Only what is at most this old: 90s, 10m, 2h");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return {std::nullopt, app.exit(error) == 0 ? kExitOk : kExitUsage};
  }
  line.timeout = absl::Seconds(timeout_s);
  return {line, kExitOk};
}

}  // namespace monarch::ctl
