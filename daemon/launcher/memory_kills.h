#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace monarch {

// Whether the kernel killed for lack of memory, and how that is known: words for people. Plain data.
struct MemoryVerdict {
  enum class Answer : uint8_t { kUnknown = 0, kNo = 1, kYes = 2 };  // wire values
  Answer answer = Answer::kUnknown;
  std::string why;
};

// Tells a kill for lack of memory from another SIGKILL by the kernel's own count: `oom_kill` of the cgroup
// that the victim was in, which rises before the signal is sent. A worker with a cgroup of its own that
// counts memory has a count of its own; rises that the worker itself survived are left out, for they ended
// its children. Else the one of the launcher's cgroup serves, which others may be in too: each rise since the
// launcher's start is taken for one worker. Threading: confined to the launcher's loop.
class MemoryKills {
 public:
  // `shared`: the file with the count of the launcher's cgroup; empty: there is none.
  explicit MemoryKills(std::string shared);
  static std::string FindShared();

  // The count in `cgroup`, a worker's own directory, has risen; the worker is `pid`, not reaped. If it was
  // not the one that was killed, what is counted so far says nothing of its end.
  void OnRise(const std::string& cgroup, pid_t pid);
  // Of a worker that SIGKILL has ended, once. `cgroup`: the directory of its own; empty: it has none.
  MemoryVerdict Judge(const std::string& cgroup);

 private:
  const std::string shared_;
  int64_t counted_;
  std::map<std::string, int64_t> survived_;  // by directory of a worker's own cgroup
};

// The number behind `oom_kill` in the text of memory.events (version 2) or memory.oom_control (version 1).
std::optional<int64_t> ParseOomKills(std::string_view text);
// Whether the text of /proc/PID/status says that SIGKILL has been sent to the process; it stays there until
// the process is gone.
bool ParseKillIsPending(std::string_view status);

}  // namespace monarch
