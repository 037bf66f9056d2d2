#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "message/sequencer.h"

namespace monarch {
namespace {

constexpr size_t kHeldMax = 16;
constexpr size_t kPairsMax = 6;

// What reached whom; knows nothing of the sequencer's insides.
// Threading: confined to its caller.
class Model {
 public:
  struct Pair {
    uint64_t last = 0;
    bool open = false;  // begun and not ended
  };

  void Deliver(const Frame& frame) {
    const FrameHeader& header = frame.header;
    Pair& pair = pairs_[{header.sender, header.receiver}];
    MONARCH_CHECK(pair.open ? header.sequence == pair.last + 1 : (header.flags & kFlagFirst) != 0);
    pair.last = header.sequence;
    // After the largest number there is none.
    pair.open = (header.flags & kFlagLast) == 0 && header.sequence + 1 != 0;
    ++delivered_;
    // The frame that was accepted, not another with its number.
    MONARCH_CHECK(frame.payload == std::to_string(header.sequence));
  }
  Pair pair(const FrameHeader& header) { return pairs_[{header.sender, header.receiver}]; }
  size_t delivered() const { return delivered_; }
  size_t open() const {
    return static_cast<size_t>(
        std::count_if(pairs_.begin(), pairs_.end(), [](const auto& entry) { return entry.second.open; }));
  }
  void Forget(const ProcAddress& proc) {
    std::erase_if(pairs_, [&](const auto& entry) {
      return entry.first.first.proc == proc || entry.first.second.proc == proc;
    });
  }

 private:
  std::map<std::pair<ActorAddress, ActorAddress>, Pair> pairs_;
  size_t delivered_ = 0;
};

ProcAddress Proc(uint8_t choice) {
  return {HostId({1, 2}), uint64_t{choice} % 3 + 1, uint32_t{choice} / 128};
}

}  // namespace
}  // namespace monarch

// Three bytes of input a step: what to do, for whom, with which flags and number relative to the last one
// delivered.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace monarch;  // NOLINT: the function is outside by its name
  Sequencer sequencer({.held_frames_max = kHeldMax, .pairs_max = kPairsMax});
  Model model;
  for (size_t i = 0; i + 3 <= size; i += 3) {
    if (data[i] % 16 == 15) {
      sequencer.Forget(Proc(data[i + 1]));
      model.Forget(Proc(data[i + 1]));
      continue;
    }
    Frame frame;
    frame.header.sender = {Proc(data[i + 1]), data[i] % 3u};
    frame.header.receiver = {Proc(0), data[i] % 2u};
    const Model::Pair before = model.pair(frame.header);
    // Mostly near the next one; at times far away or 0.
    const bool absolute = data[i] >= 224;
    const uint64_t sequence =
        absolute ? uint64_t{data[i + 2]} << (data[i] % 57) : before.last + data[i + 2] % 8;
    frame.header.sequence = sequence;
    frame.header.flags = (data[i + 2] & 0x40 ? kFlagFirst : 0) | (data[i + 2] & 0x80 ? kFlagLast : 0);
    frame.payload = std::to_string(sequence);
    const size_t delivered = model.delivered();

    const absl::Status status = sequencer.Accept(std::move(frame), [&](Frame f) { model.Deliver(f); });
    MONARCH_CHECK(sequencer.held() <= kHeldMax);
    MONARCH_CHECK(sequencer.pairs() <= kPairsMax);
    // Nothing is kept but of open pairs and for held frames.
    MONARCH_CHECK(sequencer.pairs() <= model.open() + sequencer.held());
    if (sequence == 0) {
      MONARCH_CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    } else if (status.ok()) {
      // The next expected is never held back.
      MONARCH_CHECK(!before.open || sequence != before.last + 1 || model.delivered() > delivered);
    } else {
      MONARCH_CHECK(status.code() == absl::StatusCode::kResourceExhausted);
      MONARCH_CHECK(model.delivered() == delivered);
    }
  }
  for (uint8_t proc = 0; proc < 3; ++proc) {
    sequencer.Forget(Proc(proc));
    sequencer.Forget(Proc(proc + 129));
  }
  MONARCH_CHECK(sequencer.held() == 0);
  MONARCH_CHECK(sequencer.pairs() == 0);
  return 0;
}
