#include "daemon/activity_state.h"

#include <catch2/catch.hpp>

#include "absl/time/time.h"

namespace monarch {
namespace {

ActivityFacts Facts(int ran_ms, int waited_ms, int asked_ms = 0, char state = 'S') {
  ActivityFacts facts;
  facts.process_state = state;
  facts.window = absl::Milliseconds(200);
  facts.ran = absl::Milliseconds(ran_ms);
  facts.waited_for_cpu = absl::Milliseconds(waited_ms);
  facts.interpreter_asked = absl::Milliseconds(asked_ms);
  return facts;
}

TEST_CASE("ActivityState.AStoppedProcessIsThatWhateverElseWasSeen") {
  CHECK(StateOf(Facts(0, 0, 0, 'T')) == ActivityState::kStopped);
  CHECK(StateOf(Facts(200, 0, 0, 't')) == ActivityState::kStopped);
  CHECK(StateOf(Facts(0, 200, 5000, 'T')) == ActivityState::kStopped);
}

TEST_CASE("ActivityState.WaitingForACpuIsStarvedAlsoIfTheInterpreterDoesNotAnswer") {
  CHECK(StateOf(Facts(50, 150)) == ActivityState::kStarved);
  CHECK(StateOf(Facts(0, 200, 5000)) == ActivityState::kStarved);
}

TEST_CASE("ActivityState.AnInterpreterThatDoesNotComeIsHeldByWhoComputesOrSleeps") {
  CHECK(StateOf(Facts(200, 0, 200)) == ActivityState::kInterpreterHeld);
  CHECK(StateOf(Facts(0, 0, 200)) == ActivityState::kInterpreterHeld);
  CHECK(StateOf(Facts(200, 0, 20)) == ActivityState::kComputing);
}

TEST_CASE("ActivityState.HalfOfTheTimeDecidesBetweenComputingAndWaiting") {
  CHECK(StateOf(Facts(100, 0)) == ActivityState::kComputing);
  CHECK(StateOf(Facts(50, 60)) == ActivityState::kComputing);
  CHECK(StateOf(Facts(99, 0)) == ActivityState::kWaiting);
  CHECK(StateOf(Facts(0, 0)) == ActivityState::kWaiting);
}

TEST_CASE("ActivityState.WithoutTheKernelsCountsNothingIsSaidButAStop") {
  ActivityFacts facts;
  facts.window = absl::Milliseconds(200);
  CHECK(StateOf(facts) == ActivityState::kUnknown);
  facts.process_state = 'T';
  CHECK(StateOf(facts) == ActivityState::kStopped);
}

}  // namespace
}  // namespace monarch
