#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdlib>
#include <sstream>
#include <string>

// Leaves out the test cases that MONARCH_DISABLED_CASES names, as `//package:target::Case` with '|' between
// them;
// ./tools/test fills it from tests/disabled_tests.txt.
int main(int argc, char** argv) {
  Catch::Session session;
  if (const int error = session.applyCommandLine(argc, argv); error != 0) return error;
  const char* names = std::getenv("MONARCH_DISABLED_CASES");
  const char* target = std::getenv("TEST_TARGET");
  if (names != nullptr && target != nullptr) {
    const std::string prefix = std::string(target) + "::";
    std::istringstream all(names);
    for (std::string name; std::getline(all, name, '|');) {
      if (name.compare(0, prefix.size(), prefix) == 0) {
        session.configData().testsOrTags.push_back("~\"" + name.substr(prefix.size()) + "\"");
      }
    }
  }
  return session.run();
}
