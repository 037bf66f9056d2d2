#include "message/sequencer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace monarch {

absl::Status Sequencer::Accept(Frame frame, absl::FunctionRef<void(Frame)> deliver) {
  const uint64_t sequence = frame.header.sequence;
  if (sequence == 0) return absl::InvalidArgumentError("frame: sequence number 0");
  const std::pair key(frame.header.sender, frame.header.receiver);
  auto it = pairs_.find(key);
  const uint64_t next = it == pairs_.end() ? 1 : it->second.next;
  if (sequence < next) return absl::OkStatus();
  if (sequence > next && held_ >= limits_.held_frames_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "frame ", sequence, " of ", key.first.ToString(), " to ", key.second.ToString(), " is early (", next,
        " is next) and held_frames_max=", limits_.held_frames_max, " is reached"));
  }
  if (it == pairs_.end()) {
    if (pairs_.size() >= limits_.pairs_max) {
      return absl::ResourceExhaustedError(absl::StrCat("frame of ", key.first.ToString(), " to ",
                                                       key.second.ToString(),
                                                       ": pairs_max=", limits_.pairs_max, " is reached"));
    }
    it = pairs_.try_emplace(key).first;
  }

  Pair& pair = it->second;
  if (sequence > next) {
    held_ += pair.held.try_emplace(sequence, std::move(frame)).second ? 1 : 0;
    return absl::OkStatus();
  }
  ++pair.next;
  deliver(std::move(frame));
  while (!pair.held.empty() && pair.held.begin()->first == pair.next) {
    Frame released = std::move(pair.held.extract(pair.held.begin()).mapped());
    --held_;
    ++pair.next;
    deliver(std::move(released));
  }
  return absl::OkStatus();
}

void Sequencer::Forget(const ProcAddress& proc) {
  absl::erase_if(pairs_, [&](const auto& entry) {
    const auto& [sender, receiver] = entry.first;
    if (sender.proc != proc && receiver.proc != proc) return false;
    held_ -= entry.second.held.size();
    return true;
  });
}

}  // namespace monarch
