// What a daemon finds when it starts: state files in its run directory, and what launchers kept for it.
#include <fcntl.h>

#include <vector>

#include "base/check.h"
#include "base/scoped_fd.h"
#include "daemon/adoption.h"
#include "daemon/session_book.h"
#include "daemon/state_file.h"

namespace monarch {
namespace {

constexpr size_t kFdsMax = 6;

// What the book takes, it writes, and takes again unchanged.
template <typename T>
void RoundTrip(const T& taken) {
  const BookEntry entry = EntryOf(taken);
  SessionBook again;
  MONARCH_CHECK(again.Add(entry.body, {}).ok());
}

void AddToBook(const Value& value) {
  for (size_t count = 0; count <= kFdsMax; ++count) {
    std::vector<ScopedFd> fds;
    for (size_t i = 0; i < count; ++i) fds.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    SessionBook book;
    const absl::Status added = book.Add(value, std::move(fds));
    if (!added.ok()) continue;
    for (const auto& [id, spawn] : book.spawns) RoundTrip(spawn);
    for (const ActorRecord& actor : book.actors) RoundTrip(actor);
    for (const KeptHang& hang : book.hangs) RoundTrip(hang);
    for (const KeptEnd& end : book.ends) MONARCH_CHECK(!EntryOf(1, end).body.empty());
    for (const FailureEvent& event : book.failures) MONARCH_CHECK(!FailureEntry(1, event).body.empty());
    for (const ProcRecord& record : book.procs) {
      MONARCH_CHECK(!record.introduced());  // /dev/null is nobody's memory.
      static_cast<void>(FateOf(book, record, true));
    }
  }
}

void Read(const Value& value) {
  const absl::StatusOr<LauncherState> state = LauncherStateFromValue(value);
  if (state.ok()) {
    const absl::StatusOr<LauncherState> again = LauncherStateFromValue(ToValue(*state));
    MONARCH_CHECK(again.ok());
    MONARCH_CHECK(ToValue(*again) == ToValue(*state));
  }
  const HostState next = NextHostState(value, "boot");
  MONARCH_CHECK(next.generation >= 0);
  AddToBook(value);
}

}  // namespace
}  // namespace monarch

// A file; and, since no mutation has the right checksum, the value that it might hold.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace monarch;  // NOLINT: the function is outside by its name
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<Value> file = DecodeState(bytes);
  if (file.ok()) {
    MONARCH_CHECK(*DecodeState(*EncodeState(*file)) == *file);
    Read(*file);
  }
  const absl::StatusOr<Value> value = DecodeValue(bytes);
  if (value.ok()) Read(*value);
  return 0;
}
