#include "tests/sim/world.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <cstdio>

#include "absl/strings/str_format.h"
#include "message/memfd.h"

namespace monarch::sim {
namespace {

constexpr size_t kSegmentBytes = 1 << 20;

}  // namespace

World::World(uint64_t seed)
    : start_(clock_.Now()),
      random_(seed),
      outside_(&clock_, &random_),
      doorbell_(*Doorbell::Create()),
      segment_(*CreateSealedMemfd("sim-segment", kSegmentBytes)),
      null_(open("/dev/null", O_RDWR | O_CLOEXEC)),
      forever_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

std::string World::Stamp() const { return absl::StrFormat("%10.4f", absl::ToDoubleSeconds(Now() - start_)); }

void World::Echo(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

}  // namespace monarch::sim
