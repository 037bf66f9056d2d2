#include "message/sequencer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace monarch {

bool Sequencer::IsNext(const Pair& pair, const FrameHeader& header) {
  if (pair.next != 0) return header.sequence == pair.next;
  // Of several beginnings the lowest is the one that comes next.
  const bool lowest = pair.held.empty() || header.sequence <= pair.held.begin()->first;
  return (header.flags & kFlagFirst) != 0 && lowest;
}

void Sequencer::Release(Pair* pair, Frame frame, absl::FunctionRef<void(Frame)> deliver) {
  while (true) {
    pair->next = (frame.header.flags & kFlagLast) != 0 ? 0 : frame.header.sequence + 1;
    deliver(std::move(frame));
    if (pair->held.empty() || !IsNext(*pair, pair->held.begin()->second.header)) return;
    frame = std::move(pair->held.extract(pair->held.begin()).mapped());
    CountHeld(frame.header.sender.proc, -1);
  }
}

absl::Status Sequencer::Accept(Frame frame, absl::FunctionRef<void(Frame)> deliver) {
  const uint64_t sequence = frame.header.sequence;
  if (sequence == 0) return absl::InvalidArgumentError("frame: sequence number 0");
  const std::pair key(frame.header.sender, frame.header.receiver);
  auto it = pairs_.find(key);
  if (it != pairs_.end() && sequence < it->second.next) return absl::OkStatus();
  const bool begins = (frame.header.flags & kFlagFirst) != 0;
  const bool is_next = it == pairs_.end() ? begins : IsNext(it->second, frame.header);
  if (!is_next && held_ >= limits_.held_frames_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("frame ", sequence, " of ", key.first.ToString(), " to ", key.second.ToString(),
                     " is early and reorder_frames_max=", limits_.held_frames_max, " is reached"));
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
  if (is_next) {
    Release(&pair, std::move(frame), deliver);
  } else if (pair.held.try_emplace(sequence, std::move(frame)).second) {
    CountHeld(key.first.proc, 1);
  }
  if (pair.next == 0 && pair.held.empty()) pairs_.erase(it);
  return absl::OkStatus();
}

std::set<ProcAddress> Sequencer::SendersTo(const ActorAddress& receiver) const {
  std::set<ProcAddress> procs;
  for (const auto& [key, pair] : pairs_) {
    if (key.second == receiver) procs.insert(key.first.proc);
  }
  return procs;
}

void Sequencer::CountHeld(const ProcAddress& sender, int change) {
  held_ += static_cast<size_t>(change);
  const auto it = held_from_.try_emplace(sender, 0).first;
  it->second += change;
  if (it->second == 0) held_from_.erase(it);
}

void Sequencer::Forget(const ProcAddress& proc) {
  absl::erase_if(pairs_, [&](const auto& entry) {
    const auto& [sender, receiver] = entry.first;
    if (sender.proc != proc && receiver.proc != proc) return false;
    if (!entry.second.held.empty()) CountHeld(sender.proc, -static_cast<int>(entry.second.held.size()));
    return true;
  });
}

}  // namespace monarch
