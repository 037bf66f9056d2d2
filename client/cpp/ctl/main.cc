#include <cstdio>
#include <string>
#include <vector>

#include "client/cpp/ctl/command_line.h"
#include "client/cpp/ctl/daemon_finder.h"
#include "client/cpp/ctl/daemon_query.h"
#include "client/cpp/ctl/exit_code.h"
#include "client/cpp/ctl/format.h"

namespace monarch::ctl {
namespace {

std::string Format(const CommandLine& line, const std::vector<Snapshot>& snapshots) {
  if (line.json) return FormatJson(snapshots, line.command != Command::kStatus);
  switch (line.command) {
    case Command::kStatus:
      return FormatStatus(snapshots);
    case Command::kPs:
      return FormatPs(snapshots);
    case Command::kTree:
      return FormatTree(snapshots);
  }
  return "";
}

int Main(int argc, const char* const* argv) {
  const Parsed parsed = ParseCommandLine(argc, argv);
  if (!parsed.line.has_value()) return parsed.exit_code;
  const CommandLine& line = *parsed.line;

  std::vector<DaemonPlace> places;
  if (line.address.empty()) {
    places = FindDaemons(FinderOptions::FromEnvironment());
  } else {
    absl::StatusOr<DaemonPlace> place = PlaceFromAddress(line.address);
    if (!place.ok()) {
      std::fprintf(stderr, "monarchctl: %s\n", std::string(place.status().message()).c_str());
      return kExitUsage;
    }
    places.push_back(*place);
  }
  if (places.empty() && !line.json) {
    std::fputs("monarchctl: no daemon is running for this user\n", stderr);
    return kExitNothing;
  }
  QueryOptions options;
  options.timeout = line.timeout;
  options.with_tree = line.command != Command::kStatus;
  const std::vector<Snapshot> snapshots = QueryDaemons(places, options);
  std::fputs(Format(line, snapshots).c_str(), stdout);
  return ExitCodeFor(snapshots);
}

}  // namespace
}  // namespace monarch::ctl

int main(int argc, char** argv) { return monarch::ctl::Main(argc, argv); }
