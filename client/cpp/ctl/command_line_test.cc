#include "client/cpp/ctl/command_line.h"

#include <catch2/catch.hpp>
#include <vector>

#include "client/cpp/ctl/exit_code.h"

namespace monarch::ctl {
namespace {

Parsed Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "monarchctl");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

TEST_CASE("CommandLine.TakesFlagsBeforeAndAfterTheCommand") {
  const Parsed before = Parse({"--address", "unix:/run/x", "--timeout", "0.5", "ps"});
  REQUIRE(before.line.has_value());
  CHECK(before.line->command == Command::kPs);
  CHECK(before.line->address == "unix:/run/x");
  CHECK(before.line->timeout == absl::Milliseconds(500));
  CHECK_FALSE(before.line->json);

  const Parsed after = Parse({"tree", "--json", "--address", "unix:/run/x", "--timeout", "2"});
  REQUIRE(after.line.has_value());
  CHECK(after.line->command == Command::kTree);
  CHECK(after.line->address == "unix:/run/x");
  CHECK(after.line->timeout == absl::Seconds(2));
  CHECK(after.line->json);
}

TEST_CASE("CommandLine.DefaultsToFiveSecondsAndAllDaemons") {
  const Parsed parsed = Parse({"status"});
  REQUIRE(parsed.line.has_value());
  CHECK(parsed.line->timeout == absl::Seconds(5));
  CHECK(parsed.line->address.empty());
}

TEST_CASE("CommandLine.EventsOfSomeAgeAndThoseToCome") {
  Parsed parsed = Parse({"events"});
  REQUIRE(parsed.line.has_value());
  CHECK(parsed.line->since == absl::InfiniteDuration());
  CHECK_FALSE(parsed.line->follow);
  parsed = Parse({"events", "-f", "--since", "10m"});
  REQUIRE(parsed.line.has_value());
  CHECK(parsed.line->command == Command::kEvents);
  CHECK(parsed.line->since == absl::Minutes(10));
  CHECK(parsed.line->follow);
}

TEST_CASE("CommandLine.WrongUsageEndsWithTwo") {
  const std::vector<std::vector<const char*>> lines = {
      {},
      {"frobnicate"},
      {"status", "--frobnicate"},
      {"status", "--timeout", "0"},
      {"status", "--timeout", "soon"},
      {"status", "ps"},
      {"events", "--since", "yesterday"},
      {"events", "--since", "-5m"},
      {"ps", "--follow"},
  };
  for (const auto& line : lines) {
    const Parsed parsed = Parse(line);
    CHECK_FALSE(parsed.line.has_value());
    CHECK(parsed.exit_code == kExitUsage);
  }
}

TEST_CASE("CommandLine.HelpAndVersionEndWithZero") {
  for (const char* flag : {"--help", "--version"}) {
    const Parsed parsed = Parse({flag});
    CHECK_FALSE(parsed.line.has_value());
    CHECK(parsed.exit_code == kExitOk);
  }
}

}  // namespace
}  // namespace monarch::ctl
