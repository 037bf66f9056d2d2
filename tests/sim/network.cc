#include "tests/sim/network.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace monarch::sim {
namespace {

constexpr size_t kReadBytes = 16 * 1024;
// On the way in one direction; then the sender's socket fills up.
constexpr size_t kBytesMax = 256 * 1024;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  MONARCH_CHECK(path.size() < sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

ScopedFd NewSocket() {
  ScopedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  MONARCH_CHECK(fd.valid());
  return fd;
}

}  // namespace

Network::Network(World* world, std::string dir) : world_(world), dir_(std::move(dir)) {}

Network::~Network() {
  while (!wires_.empty()) Break(wires_.begin()->first);
  for (const auto& [pair, fd] : listeners_) {
    world_->outside().Unwatch(fd.get());
    unlink(DialPath(pair.first, pair.second).c_str());
  }
}

std::string Network::ListenPath(int host) const { return absl::StrCat(dir_, "/", host); }

std::string Network::DialPath(int from, int to) {
  const std::string path = absl::StrCat(dir_, "/", from, "-", to);
  ScopedFd& fd = listeners_[{from, to}];
  if (fd.valid()) return path;
  fd = NewSocket();
  const sockaddr_un address = AddressOf(path);
  MONARCH_CHECK(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  MONARCH_CHECK(listen(fd.get(), 64) == 0);
  MONARCH_CHECK(
      world_->outside().WatchFd(fd.get(), EPOLLIN, [this, from, to](uint32_t) { OnDial(from, to); }).ok());
  return path;
}

void Network::OnDial(int from, int to) {
  ScopedFd dialler(accept4(listeners_.at({from, to}).get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!dialler.valid()) return;
  const Pair& pair = PairOf(from, to);
  auto shared = std::make_shared<ScopedFd>(std::move(dialler));
  world_->After(world_->random().Between(pair.least, pair.most),
                [this, from, to, shared] { Open(from, to, std::move(*shared)); });
}

void Network::Open(int from, int to, ScopedFd dialler) {
  if (off_.contains(from)) return;
  if (off_.contains(to) || PairOf(from, to).partitioned) {
    // Its packets are lost and sent again, until somebody gives up.
    auto shared = std::make_shared<ScopedFd>(std::move(dialler));
    return world_->After(absl::Milliseconds(200),
                         [this, from, to, shared] { Open(from, to, std::move(*shared)); });
  }
  char gone = 0;
  if (recv(dialler.get(), &gone, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return;
  ScopedFd dialled = NewSocket();
  const sockaddr_un address = AddressOf(ListenPath(to));
  if (connect(dialled.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return;
  const uint64_t id = next_wire_++;
  Wire& wire = wires_[id];
  wire.from = from;
  wire.to = to;
  wire.fds[0] = std::move(dialler);
  wire.fds[1] = std::move(dialled);
  for (const int end : {0, 1}) {
    MONARCH_CHECK(world_->outside()
                      .WatchFd(wire.fds[end].get(), EPOLLIN,
                               [this, id, end](uint32_t events) { OnReady(id, end, events); })
                      .ok());
  }
}

void Network::OnReady(uint64_t id, int end, uint32_t events) {
  if ((events & EPOLLOUT) != 0) Pump(id, 1 - end);
  if (wires_.contains(id) && (events & ~EPOLLOUT) != 0) Read(id, end);
}

void Network::Read(uint64_t id, int end) {
  Wire& wire = wires_.at(id);
  Direction& way = wire.ways[end];
  if (way.ended) {
    // Its other end is closed altogether, which no watch can leave out. What it sent is still on the way.
    world_->outside().Unwatch(wire.fds[end].get());
    wire.closed[end] = true;
    return;
  }
  std::string bytes(kReadBytes, '\0');
  const ssize_t got = recv(wire.fds[end].get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const int sender = end == 0 ? wire.from : wire.to;
  if (wire.orphaned || off_.contains(sender)) {
    // To a host that knows nothing of it any more: it answers, once it is there, that there is none.
    const int other = end == 0 ? wire.to : wire.from;
    if (got <= 0 || (!off_.contains(other) && !PairOf(wire.from, wire.to).partitioned)) Break(id);
    return;
  }
  const Pair& pair = PairOf(wire.from, wire.to);
  bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  way.ended = bytes.empty();
  absl::Duration at = world_->Now() + world_->random().Between(pair.least, pair.most);
  if (!way.pieces.empty()) at = std::max(at, way.pieces.back().at);
  // In two parts, now and then: a stream has no packets.
  const size_t cut = bytes.size() > 1 && world_->random().Chance(10)
                         ? 1 + world_->random().Below(bytes.size() - 1)
                         : bytes.size();
  way.bytes += bytes.size();
  if (cut < bytes.size()) {
    way.pieces.push_back({at, bytes.substr(0, cut)});
    at += world_->random().Between(pair.least, pair.most);
  }
  way.pieces.push_back({at, cut < bytes.size() ? bytes.substr(cut) : std::move(bytes)});
  UpdateWatch(wire, end);
  world_->After(way.pieces.front().at - world_->Now(), [this, id, end] {
    if (wires_.contains(id)) Pump(id, end);
  });
}

void Network::Pump(uint64_t id, int way_index) {
  Wire& wire = wires_.at(id);
  if (wire.held && way_index == 1) return;
  if (wire.orphaned || PairOf(wire.from, wire.to).partitioned) return;
  Direction& way = wire.ways[way_index];
  const int target = wire.fds[1 - way_index].get();
  while (!way.pieces.empty()) {
    Piece& piece = way.pieces.front();
    if (piece.at > world_->Now()) {
      world_->After(piece.at - world_->Now(), [this, id, way_index] {
        if (wires_.contains(id)) Pump(id, way_index);
      });
      break;
    }
    if (piece.bytes.empty()) {
      shutdown(target, SHUT_WR);
      way.finished = true;
      way.pieces.clear();
      break;
    }
    const ssize_t sent = send(target, piece.bytes.data(), piece.bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) {
      way.ended = way.finished = true;
      way.pieces.clear();
    }
    if (sent <= 0) break;
    way.bytes -= static_cast<size_t>(sent);
    piece.bytes.erase(0, static_cast<size_t>(sent));
    if (!piece.bytes.empty()) break;
    way.pieces.pop_front();
  }
  if (wire.ways[0].finished && wire.ways[1].finished) return Break(id);
  UpdateWatch(wire, 0);
  UpdateWatch(wire, 1);
}

void Network::UpdateWatch(Wire& wire, int end) {
  if (wire.orphaned || wire.closed[end]) return;
  uint32_t events = 0;
  if (!wire.ways[end].ended && wire.ways[end].bytes < kBytesMax) events |= EPOLLIN;
  const Direction& incoming = wire.ways[1 - end];
  if (!incoming.pieces.empty() && !incoming.pieces.front().bytes.empty() &&
      incoming.pieces.front().at <= world_->Now() && !wire.held && !PairOf(wire.from, wire.to).partitioned)
    events |= EPOLLOUT;
  MONARCH_CHECK(world_->outside().UpdateWatch(wire.fds[end].get(), events).ok());
}

void Network::Break(uint64_t id) {
  const auto found = wires_.find(id);
  for (const ScopedFd& fd : found->second.fds) world_->outside().Unwatch(fd.get());
  wires_.erase(found);
}

void Network::BreakWhere(const std::function<bool(const Wire&)>& wanted) {
  std::vector<uint64_t> doomed;
  for (const auto& [id, wire] : wires_) {
    if (wanted(wire)) doomed.push_back(id);
  }
  for (const uint64_t id : doomed) Break(id);
}

void Network::Partition(int a, int b) {
  PairOf(a, b).partitioned = true;
  for (auto& [id, wire] : wires_) {
    UpdateWatch(wire, 0);
    UpdateWatch(wire, 1);
  }
}

void Network::Heal(int a, int b) {
  PairOf(a, b).partitioned = false;
  std::vector<uint64_t> ids;
  for (const auto& [id, wire] : wires_) ids.push_back(id);
  for (const uint64_t id : ids) {
    for (const int way : {0, 1}) {
      if (wires_.contains(id)) Pump(id, way);
    }
  }
}

void Network::Release(uint64_t number) {
  wires_.at(number).held = false;
  Pump(number, 1);
}

void Network::Cut(int a, int b) {
  BreakWhere([a, b](const Wire& wire) {
    return (wire.from == a && wire.to == b) || (wire.from == b && wire.to == a);
  });
}

void Network::PowerOff(int host) {
  off_.insert(host);
  for (auto& [id, wire] : wires_) {
    if (wire.from != host && wire.to != host) continue;
    wire.orphaned = true;
    for (Direction& way : wire.ways) way.pieces.clear();
    const int dead = wire.from == host ? 0 : 1;
    world_->outside().Unwatch(wire.fds[dead].get());
    wire.closed[dead] = true;
    // What the others send goes nowhere; it is read, so that they do not learn of it by a full buffer.
    if (!wire.closed[1 - dead])
      MONARCH_CHECK(world_->outside().UpdateWatch(wire.fds[1 - dead].get(), EPOLLIN).ok());
  }
  BreakWhere([](const Wire& wire) { return wire.orphaned && wire.closed[0] && wire.closed[1]; });
}

void Network::PowerOn(int host) { off_.erase(host); }

void Network::SetDelay(int a, int b, absl::Duration least, absl::Duration most) {
  PairOf(a, b).least = least;
  PairOf(a, b).most = most;
}

}  // namespace monarch::sim
