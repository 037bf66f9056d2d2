#include "daemon/proc_table.h"

#include <catch2/catch.hpp>

#include "daemon/native_connection.h"

namespace monarch {
namespace {

ProcRecord RecordOf(uint64_t proc) {
  ProcRecord record;
  record.description.address = ProcAddress{HostId(Id128{1, 1}), proc, 1};
  return record;
}

void Kill(ProcTable& table, uint64_t proc) {
  FailureEvent event;
  event.code = static_cast<int32_t>(proc);
  table.Find(proc)->death = event;
}

}  // namespace

TEST_CASE("FindsOnlyTheSameIncarnation") {
  ProcTable table(4);
  table.Add(RecordOf(1));
  ProcAddress address = RecordOf(1).description.address;
  CHECK(table.Find(address) != nullptr);
  address.incarnation = 2;
  CHECK(table.Find(address) == nullptr);
}

TEST_CASE("EndIsKnownFromDeathOn") {
  ProcTable table(4);
  table.Add(RecordOf(1));
  const ProcAddress address = RecordOf(1).description.address;
  CHECK(table.EndOf(address) == nullptr);
  Kill(table, 1);
  REQUIRE(table.EndOf(address) != nullptr);
  table.Bury(1);
  CHECK(table.Find(1) == nullptr);
  REQUIRE(table.EndOf(address) != nullptr);
  CHECK(table.EndOf(address)->code == 1);
}

TEST_CASE("OldestTombstonesAreForgotten") {
  ProcTable table(2);
  for (uint64_t proc = 1; proc <= 3; ++proc) {
    table.Add(RecordOf(proc));
    Kill(table, proc);
    table.Bury(proc);
  }
  CHECK(table.EndOf(RecordOf(1).description.address) == nullptr);
  CHECK(table.EndOf(RecordOf(3).description.address) != nullptr);
}

}  // namespace monarch
