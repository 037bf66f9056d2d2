#include "daemon/launcher/keepsakes.h"

#include <fcntl.h>

#include <catch2/catch.hpp>
#include <utility>

namespace monarch {
namespace {

const HostId kHost = HostId::Random();
const ProcAddress kProc{kHost, 7, 1};
const ProcAddress kOther{kHost, 8, 1};

struct Told {
  ControlType type;
  std::string key;
  size_t fds;
  ProcAddress proc;
};

std::vector<Told> TellAll(const Keepsakes& kept) {
  std::vector<Told> told;
  kept.TellAll([&](const ControlMessage& message, const std::vector<ScopedFd>& fds) {
    told.push_back({message.type, message.body["key"].AsString().value_or(""), fds.size(),
                    ProcAddressFromValue(message.body["proc"]).value_or(ProcAddress())});
  });
  return told;
}

Value Entry(const std::string& key) { return Value::Map{{"key", key}}; }

ControlMessage News(ControlType type, const ProcAddress& proc) {
  return {type, 0, Value::Map{{"proc", ToValue(proc)}}};
}

TEST_CASE("what is kept is told by key, then the news of each process in its order") {
  Keepsakes kept(10);
  kept.AddNews(kProc, News(ControlType::kLaunched, kProc));
  kept.AddNews(kOther, News(ControlType::kLaunched, kOther));
  kept.AddNews(kProc, News(ControlType::kExited, kProc));
  std::vector<ScopedFd> fds;
  fds.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  REQUIRE(kept.Keep(Entry("b"), {}).ok());
  REQUIRE(kept.Keep(Entry("a"), std::move(fds)).ok());
  const std::vector<Told> told = TellAll(kept);
  REQUIRE(told.size() == 5);
  CHECK(told[0].key == "a");
  CHECK(told[0].fds == 1);
  CHECK(told[1].key == "b");
  CHECK(told[2].proc == kProc);
  CHECK(told[3].type == ControlType::kExited);
  CHECK(told[4].proc == kOther);
  CHECK(TellAll(kept).size() == 5);
}

TEST_CASE("an entry is replaced, with its fds, by one of the same key") {
  Keepsakes kept(1);
  std::vector<ScopedFd> fds;
  fds.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int fd = fds[0].get();
  REQUIRE(kept.Keep(Entry("a"), std::move(fds)).ok());
  REQUIRE(kept.Keep(Entry("a"), {}).ok());
  REQUIRE(TellAll(kept).size() == 1);
  CHECK(TellAll(kept)[0].fds == 0);
  CHECK(fcntl(fd, F_GETFD) == -1);
}

TEST_CASE("one entry too many is refused, and the others stay") {
  Keepsakes kept(2);
  REQUIRE(kept.Keep(Entry("a"), {}).ok());
  REQUIRE(kept.Keep(Entry("b"), {}).ok());
  CHECK(absl::IsResourceExhausted(kept.Keep(Entry("c"), {})));
  REQUIRE(kept.Forget(Entry("a")).ok());
  CHECK(kept.Keep(Entry("c"), {}).ok());
  CHECK_FALSE(kept.Keep(Value(Value::Map{}), {}).ok());
  CHECK(TellAll(kept).size() == 2);
}

TEST_CASE("a process's news goes when its end was dealt with, with its entry or without") {
  Keepsakes kept(2);
  kept.AddNews(kProc, News(ControlType::kExited, kProc));
  REQUIRE(kept.Keep(Entry("a"), {}).ok());
  REQUIRE(kept.Forget(Entry("a")).ok());
  CHECK(TellAll(kept).size() == 1);
  REQUIRE(kept.Forget(Value::Map{{"key", "none"}, {"proc", ToValue(kProc)}}).ok());
  CHECK(TellAll(kept).empty());
}

}  // namespace
}  // namespace monarch
