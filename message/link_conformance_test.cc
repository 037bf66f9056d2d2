#include "message/link_conformance.h"

#include <fcntl.h>
#include <poll.h>

#include <catch2/catch.hpp>
#include <utility>

#include "absl/time/time.h"
#include "message/memfd.h"
#include "message/packet_socket.h"
#include "message/ring.h"
#include "message/ring_link.h"
#include "message/socket_link.h"

namespace monarch {
namespace {

constexpr int kLongMs = 30'000;
constexpr uint32_t kWord = 1;

ScopedFd Dup(int fd) { return ScopedFd(fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

bool Poll(int fd, short events) {
  pollfd entry = {fd, events, 0};
  return poll(&entry, 1, kLongMs) == 1;
}

class RingRig : public LinkRig {
 public:
  RingRig() {
    auto memfd = CreateSealedMemfd("test-ring", kRingMemfdBytes);
    REQUIRE(memfd.ok());
    auto mapping = Mapping::Map(memfd->get(), kRingMemfdBytes);
    REQUIRE(mapping.ok());
    mapping_ = *std::move(mapping);
    raw_ = std::make_unique<RingProducer>(mapping_.data());
    for (const int side : {0, 1}) {
      auto doorbell = Doorbell::Create();
      REQUIRE(doorbell.ok());
      doorbells_[side] = std::make_shared<Doorbell>(*std::move(doorbell));
    }
    for (const int side : {0, 1}) {
      auto link = RingLink::Create(Dup(memfd->get()), doorbells_[1 - side], {side, 5});
      REQUIRE(link.ok());
      links_[side] = *std::move(link);
    }
  }
  Link& left() override { return *links_[0]; }
  Link& right() override { return *links_[1]; }
  bool AwaitRoom() override {
    doorbells_[0]->PrepareWait(kWord);
    if (links_[0]->RequestRoomSignal(kWord))
      return doorbells_[0]->CommitWait(kWord, absl::Milliseconds(kLongMs)).ok();
    doorbells_[0]->CancelWait(kWord);
    return true;
  }
  bool AwaitFrames() override {
    const bool rung = Poll(doorbells_[1]->bell(), POLLIN);
    doorbells_[1]->ClearBell();
    return rung;
  }
  void Inject(std::string_view bytes) override {
    REQUIRE(*raw_->TryPush({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, {}));
  }

 private:
  Mapping mapping_;
  std::unique_ptr<RingProducer> raw_;
  std::shared_ptr<Doorbell> doorbells_[2];
  std::unique_ptr<RingLink> links_[2];
};

class SocketRig : public LinkRig {
 public:
  SocketRig() {
    auto pair = PacketSocket::Pair();
    REQUIRE(pair.ok());
    raw_ = PacketSocket(Dup(pair->first.fd()));
    right_fd_ = pair->second.fd();
    left_ = MakeSocketLink(std::move(pair->first));
    right_ = MakeSocketLink(std::move(pair->second));
  }
  Link& left() override { return *left_; }
  Link& right() override { return *right_; }
  bool AwaitRoom() override { return !left_->RequestRoomSignal(kWord) || Poll(raw_.fd(), POLLOUT); }
  bool AwaitFrames() override { return Poll(right_fd_, POLLIN); }
  void Inject(std::string_view bytes) override { REQUIRE(*raw_.TrySend(bytes)); }

 private:
  PacketSocket raw_;
  int right_fd_ = -1;
  std::unique_ptr<Link> left_;
  std::unique_ptr<Link> right_;
};

TEST_CASE("RingLinkConforms") {
  CheckLinkConformance([] { return std::make_unique<RingRig>(); });
}

TEST_CASE("SocketLinkConforms") {
  CheckLinkConformance([] { return std::make_unique<SocketRig>(); });
}

}  // namespace
}  // namespace monarch
