#include "message/sequencer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <random>

namespace monarch {
namespace {

ActorAddress Actor(uint64_t proc, uint64_t actor) { return {{HostId({1, 2}), proc, 1}, actor}; }

Frame FrameOf(uint64_t sequence, uint64_t proc = 1, uint64_t actor = 5) {
  Frame frame;
  frame.header.sender = Actor(proc, actor);
  frame.header.receiver = Actor(9, 1);
  frame.header.sequence = sequence;
  frame.header.flags = sequence == 1 ? kFlagFirst : 0;
  frame.payload = std::to_string(sequence);
  return frame;
}

Frame FlaggedFrame(uint64_t sequence, uint16_t flags) {
  Frame frame = FrameOf(sequence);
  frame.header.flags = flags;
  return frame;
}

// Threading: confined to its test.
struct Harness {
  Sequencer sequencer;
  std::vector<uint64_t> delivered;

  explicit Harness(Sequencer::Limits limits = {}) : sequencer(limits) {}
  absl::Status Accept(Frame frame) {
    return sequencer.Accept(std::move(frame), [&](Frame f) {
      CHECK(f.payload == std::to_string(f.header.sequence));
      delivered.push_back(f.header.sequence);
    });
  }
};

using Numbers = std::vector<uint64_t>;

TEST_CASE("SequencerDeliversInOrderAtOnce") {
  Harness h;
  for (uint64_t i = 1; i <= 3; ++i) CHECK(h.Accept(FrameOf(i)).ok());
  CHECK(h.delivered == Numbers{1, 2, 3});
  CHECK(h.sequencer.held() == 0);
}

TEST_CASE("SequencerHoldsEarlyFramesUntilTheGapIsFilled") {
  Harness h;
  CHECK(h.Accept(FrameOf(3)).ok());
  CHECK(h.Accept(FrameOf(2)).ok());
  CHECK(h.Accept(FrameOf(5)).ok());
  CHECK(h.delivered.empty());
  CHECK(h.sequencer.held() == 3);
  CHECK(h.sequencer.HoldsFrom(FrameOf(1).header.sender.proc));
  CHECK_FALSE(h.sequencer.HoldsFrom(FrameOf(1).header.receiver.proc));
  CHECK(h.Accept(FrameOf(1)).ok());
  CHECK(h.delivered == Numbers{1, 2, 3});
  CHECK(h.sequencer.held() == 1);
  CHECK(h.Accept(FrameOf(4)).ok());
  CHECK(h.delivered == Numbers{1, 2, 3, 4, 5});
  CHECK(h.sequencer.held() == 0);
}

TEST_CASE("SequencerDropsDuplicates") {
  Harness h;
  CHECK(h.Accept(FrameOf(1)).ok());
  CHECK(h.Accept(FrameOf(1)).ok());
  CHECK(h.Accept(FrameOf(3)).ok());
  CHECK(h.Accept(FrameOf(3)).ok());
  CHECK(h.sequencer.held() == 1);
  CHECK(h.Accept(FrameOf(2)).ok());
  CHECK(h.Accept(FrameOf(2)).ok());
  CHECK(h.delivered == Numbers{1, 2, 3});
}

TEST_CASE("SequencerKeepsPairsApart") {
  Harness h;
  CHECK(h.Accept(FrameOf(1, 1, 5)).ok());
  CHECK(h.Accept(FrameOf(1, 1, 6)).ok());
  CHECK(h.Accept(FrameOf(1, 2, 5)).ok());
  Frame other_receiver = FrameOf(1);
  other_receiver.header.receiver = Actor(9, 2);
  CHECK(h.Accept(other_receiver).ok());
  Frame other_incarnation = FrameOf(1);
  other_incarnation.header.sender.proc.incarnation = 2;
  CHECK(h.Accept(other_incarnation).ok());
  CHECK(h.delivered.size() == 5);
}

TEST_CASE("SequencerRefusesSequenceZero") {
  Harness h;
  CHECK(h.Accept(FrameOf(0)).code() == absl::StatusCode::kInvalidArgument);
  CHECK(h.delivered.empty());
}

TEST_CASE("SequencerHoldsNoMoreThanItsLimit") {
  Harness h({.held_frames_max = 2, .pairs_max = 10});  // reorder_frames_max
  CHECK(h.Accept(FrameOf(3, 1)).ok());
  CHECK(h.Accept(FrameOf(3, 2)).ok());
  CHECK(h.Accept(FrameOf(4, 1)).code() == absl::StatusCode::kResourceExhausted);
  CHECK(h.Accept(FrameOf(9, 3)).code() == absl::StatusCode::kResourceExhausted);
  CHECK(h.sequencer.held() == 2);
  // The next expected needs no room.
  CHECK(h.Accept(FrameOf(1, 1)).ok());
  CHECK(h.Accept(FrameOf(2, 1)).ok());
  CHECK(h.delivered == Numbers{1, 2, 3});
  CHECK(h.sequencer.held() == 1);
}

TEST_CASE("SequencerKnowsNoMorePairsThanItsLimit") {
  Harness h({.held_frames_max = 10, .pairs_max = 2});
  CHECK(h.Accept(FrameOf(1, 1)).ok());
  CHECK(h.Accept(FrameOf(1, 2)).ok());
  CHECK(h.Accept(FrameOf(1, 3)).code() == absl::StatusCode::kResourceExhausted);
  CHECK(h.Accept(FrameOf(2, 1)).ok());
  h.sequencer.Forget(Actor(2, 0).proc);
  CHECK(h.Accept(FrameOf(1, 3)).ok());
}

TEST_CASE("SequencerKeepsNothingOfAPairThatHasEnded") {
  Harness h;
  CHECK(h.Accept(FrameOf(1)).ok());
  CHECK(h.sequencer.pairs() == 1);
  CHECK(h.Accept(FlaggedFrame(2, kFlagLast)).ok());
  CHECK(h.sequencer.pairs() == 0);
  // One that begins and ends a pair leaves nothing either.
  CHECK(h.Accept(FlaggedFrame(3, kFlagFirst | kFlagLast)).ok());
  CHECK(h.sequencer.pairs() == 0);
  CHECK(h.Accept(FlaggedFrame(4, kFlagFirst)).ok());
  CHECK(h.Accept(FrameOf(5)).ok());
  CHECK(h.delivered == Numbers{1, 2, 3, 4, 5});
}

TEST_CASE("SequencerKeepsTheOrderOverAnEndAndANewBeginning") {
  // What was lost on the way and is sent again comes last.
  const Frame frames[] = {FrameOf(1),
                          FrameOf(2),
                          FlaggedFrame(3, kFlagLast),
                          FlaggedFrame(7, kFlagFirst),
                          FlaggedFrame(8, 0),
                          FlaggedFrame(9, kFlagLast)};
  for (size_t lost = 0; lost < std::size(frames); ++lost) {
    Harness h;
    for (size_t i = 0; i < std::size(frames); ++i) {
      if (i != lost) CHECK(h.Accept(frames[i]).ok());
    }
    CHECK(h.delivered.size() == lost);
    CHECK(h.Accept(frames[lost]).ok());
    CHECK(h.delivered == Numbers{1, 2, 3, 7, 8, 9});
    CHECK(h.sequencer.pairs() == 0);
    CHECK(h.sequencer.held() == 0);
  }
}

TEST_CASE("SequencerNamesTheProcsWithNumbersToAnActor") {
  Harness h;
  CHECK(h.Accept(FrameOf(1, 1, 5)).ok());
  CHECK(h.Accept(FrameOf(1, 1, 6)).ok());
  CHECK(h.Accept(FrameOf(1, 2, 5)).ok());
  CHECK(h.sequencer.SendersTo(Actor(9, 1)) == std::set{Actor(1, 0).proc, Actor(2, 0).proc});
  CHECK(h.sequencer.SendersTo(Actor(9, 2)).empty());
}

TEST_CASE("SequencerForgetsWhatADeadProcSent") {
  Harness h;
  CHECK(h.Accept(FrameOf(3, 1, 5)).ok());
  CHECK(h.Accept(FrameOf(3, 1, 6)).ok());
  CHECK(h.Accept(FrameOf(3, 2, 5)).ok());
  h.sequencer.Forget(Actor(1, 0).proc);
  CHECK(h.sequencer.held() == 1);
  CHECK(h.Accept(FrameOf(1, 2)).ok());
  CHECK(h.Accept(FrameOf(2, 2)).ok());
  CHECK(h.delivered == Numbers{1, 2, 3});
  h.sequencer.Forget(Actor(9, 0).proc);  // the receiver's
  CHECK(h.sequencer.held() == 0);
}

TEST_CASE("SequencerBearsTheLargestNumber") {
  Harness h;
  CHECK(h.Accept(FrameOf(std::numeric_limits<uint64_t>::max())).ok());
  CHECK(h.Accept(FrameOf(1)).ok());
  CHECK(h.delivered == Numbers{1});
  CHECK(h.sequencer.held() == 1);
}

TEST_CASE("SequencerRestoresAnyOrder") {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Harness h;
    Numbers order(200);
    for (size_t i = 0; i < order.size(); ++i) order[i] = i / 2 + 1;  // each twice
    std::shuffle(order.begin(), order.end(), random);
    for (uint64_t sequence : order) CHECK(h.Accept(FrameOf(sequence)).ok());
    REQUIRE(h.delivered.size() == 100);
    CHECK(std::is_sorted(h.delivered.begin(), h.delivered.end()));
    CHECK(h.sequencer.held() == 0);
  }
}

}  // namespace
}  // namespace monarch
