#include <map>
#include <set>

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
  void Deliver(const Frame& frame) {
    uint64_t& last = last_[{frame.header.sender, frame.header.receiver}];
    MONARCH_CHECK(frame.header.sequence == last + 1);
    last = frame.header.sequence;
    // The frame that was accepted, not another with its number.
    MONARCH_CHECK(frame.payload == std::to_string(frame.header.sequence));
  }
  uint64_t last(const FrameHeader& header) { return last_[{header.sender, header.receiver}]; }
  void Forget(const ProcAddress& proc) {
    std::erase_if(last_, [&](const auto& entry) {
      return entry.first.first.proc == proc || entry.first.second.proc == proc;
    });
  }

 private:
  std::map<std::pair<ActorAddress, ActorAddress>, uint64_t> last_;
};

ProcAddress Proc(uint8_t choice) {
  return {HostId({1, 2}), uint64_t{choice} % 3 + 1, uint32_t{choice} / 128};
}

}  // namespace
}  // namespace monarch

// Three bytes of input a step: what to do, for whom, with which number relative to the last one delivered.
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
    const uint64_t last = model.last(frame.header);
    // Mostly near the next one; at times far away or 0.
    const bool absolute = data[i] >= 224;
    const uint64_t sequence = absolute ? uint64_t{data[i + 2]} << (data[i] % 57) : last + data[i + 2] % 8;
    frame.header.sequence = sequence;
    frame.payload = std::to_string(sequence);
    const FrameHeader header = frame.header;

    const absl::Status status = sequencer.Accept(std::move(frame), [&](Frame f) { model.Deliver(f); });
    MONARCH_CHECK(sequencer.held() <= kHeldMax);
    if (sequence == 0) {
      MONARCH_CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    } else if (status.ok()) {
      // The next expected is never held back.
      MONARCH_CHECK(sequence != last + 1 || model.last(header) >= sequence);
    } else {
      MONARCH_CHECK(status.code() == absl::StatusCode::kResourceExhausted);
      MONARCH_CHECK(model.last(header) == last);
    }
  }
  for (uint8_t proc = 0; proc < 3; ++proc) {
    sequencer.Forget(Proc(proc));
    sequencer.Forget(Proc(proc + 129));
  }
  MONARCH_CHECK(sequencer.held() == 0);
  return 0;
}
