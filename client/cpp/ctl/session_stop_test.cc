#include "client/cpp/ctl/session_stop.h"

#include <catch2/catch.hpp>

namespace monarch::ctl {
namespace {

std::vector<Snapshot> Daemons() {
  std::vector<Snapshot> snapshots(2);
  const std::vector<std::vector<const char*>> ids = {{"0123aa", "0123bb"}, {"77cc"}};
  for (size_t i = 0; i < ids.size(); ++i) {
    for (const char* id : ids[i]) {
      v1::SessionInfo* session = snapshots[i].tree.add_sessions();
      session->set_session(id);
      session->set_name("train.py");
      session->set_client_pid(7);
    }
  }
  return snapshots;
}

TEST_CASE("FindSession.TheBeginningOfAnIdIsEnough") {
  const std::vector<Snapshot> snapshots = Daemons();
  const absl::StatusOr<FoundSession> found = FindSession("7", snapshots);
  REQUIRE(found.ok());
  CHECK(found->session->session() == "77cc");
  CHECK(found->daemon == &snapshots[1]);
  CHECK(FindSession("0123b", snapshots)->session->session() == "0123bb");
}

TEST_CASE("FindSession.SeveralAreListedAndNoneIsChosen") {
  const absl::Status status = FindSession("01", Daemons()).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() ==
        "several sessions begin with 01:\n  0123aa  train.py (client pid 7)\n  0123bb  train.py (client pid "
        "7)");
}

TEST_CASE("FindSession.WhatIsNotThereIsNotFound") {
  CHECK(absl::IsNotFound(FindSession("9", Daemons()).status()));
  CHECK(absl::IsNotFound(FindSession("", Daemons()).status()));
}

}  // namespace
}  // namespace monarch::ctl
