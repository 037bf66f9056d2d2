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
    "timeout (the others are shown all the same); 4 a daemon refused to answer; 5 why: no such failure is "
    "known.";

}  // namespace

Parsed ParseCommandLine(int argc, const char* const* argv) {
  CommandLine line;
  double timeout_s = absl::ToDoubleSeconds(line.timeout);
  CLI::App app("Shows what monarchd runs on this host.", "monarchctl");
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
  add("ps", "The processes of all sessions", Command::kPs);
  add("tree", "Sessions, their processes, and their actors below their owners", Command::kTree);
  add("why", "Why something failed: its causes, and the last words of the process", Command::kWhy)
      ->add_option(
          "TARGET", line.target,
          "A mesh (NAME), a member of it (NAME:RANK), or a process (PID); without it what failed last");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return {std::nullopt, app.exit(error) == 0 ? kExitOk : kExitUsage};
  }
  line.timeout = absl::Seconds(timeout_s);
  return {line, kExitOk};
}

}  // namespace monarch::ctl
