#include "daemon/host_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

absl::Status Bad(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("address '", absl::string_view(text.data(), text.size()),
                                                 "': ", absl::string_view(why.data(), why.size())));
}

bool TakePrefix(std::string_view prefix, std::string_view* text) {
  if (text->substr(0, prefix.size()) != prefix) return false;
  text->remove_prefix(prefix.size());
  return true;
}

bool ToNumber(std::string_view text, uint32_t max, uint32_t* number) {
  return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), number) && *number <= max;
}

bool HasScheme(std::string_view text) {
  for (const char* scheme : {"tcp://", "tcp!", "ipc://", "unix:", "unix!"}) {
    if (TakePrefix(scheme, &text)) return true;
  }
  return false;
}

// The part that is meant: of DIAL@BIND one of the two, of SERVICE@ADDRESS the address.
std::string_view Meant(std::string_view text, HostAddress::Side side) {
  const bool begins = HasScheme(text);
  for (size_t at = text.find('@'); at != std::string_view::npos; at = text.find('@', at + 1)) {
    const std::string_view rest = text.substr(at + 1);
    if (!HasScheme(rest)) continue;
    return begins && side == HostAddress::Side::kDial ? text.substr(0, at) : Meant(rest, side);
  }
  return text;
}

bool IsLoopback(const std::string& numeric) {
  in_addr v4 = {};
  in6_addr v6 = {};
  if (inet_pton(AF_INET, numeric.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  return inet_pton(AF_INET6, numeric.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

absl::Status ParseTcp(std::string_view rest, HostAddress* out) {
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return Bad(out->text, "a port is wanted: tcp://127.0.0.1:PORT");
  std::string_view port = rest.substr(colon + 1);
  std::string host(rest.substr(0, colon));
  uint32_t number = 0;
  if (TakePrefix("fd", &port)) {
    if (!ToNumber(port, 1 << 20, &number)) return Bad(out->text, "no file descriptor's number behind 'fd'");
    out->kind = HostAddress::Kind::kListeningFd;
    out->fd = static_cast<int>(number);
    return absl::OkStatus();
  }
  if (!ToNumber(port, 65535, &number)) return Bad(out->text, "the port is no number from 0 to 65535");
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  char own[256] = {};
  if (host == "localhost" || (gethostname(own, sizeof(own) - 1) == 0 && host == own)) host = "127.0.0.1";
  if (!IsLoopback(host)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "address '", out->text, "': daemons speak TCP on loopback only in this version, for mutual ",
        "TLS is not there yet; use ipc:// or tcp://127.0.0.1:PORT"));
  }
  out->kind = HostAddress::Kind::kTcp;
  out->name = std::move(host);
  out->port = static_cast<uint16_t>(number);
  return absl::OkStatus();
}

absl::Status ParseUnix(std::string_view rest, bool names_are_abstract, HostAddress* out) {
  const bool marked = TakePrefix("@", &rest);
  if (rest.empty()) return Bad(out->text, "a path or a name is wanted");
  if (rest.size() >= sizeof(sockaddr_un::sun_path)) return Bad(out->text, "longer than a Unix socket's name");
  if (rest.find('\0') != std::string_view::npos) return Bad(out->text, "holds a zero byte");
  const bool has_slash = rest.find('/') != std::string_view::npos;
  out->kind =
      marked || (names_are_abstract && !has_slash) ? HostAddress::Kind::kAbstract : HostAddress::Kind::kPath;
  out->name = std::string(rest);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HostAddress> HostAddress::Parse(std::string_view text, Side side) {
  HostAddress out;
  out.text = std::string(text);
  std::string_view rest = Meant(text, side);
  if (TakePrefix("tcp://", &rest) || TakePrefix("tcp!", &rest)) {
    MONARCH_RETURN_IF_ERROR(ParseTcp(rest, &out));
  } else if (TakePrefix("ipc://", &rest)) {
    MONARCH_RETURN_IF_ERROR(ParseUnix(rest, true, &out));
  } else if (TakePrefix("unix:", &rest) || TakePrefix("unix!", &rest)) {
    MONARCH_RETURN_IF_ERROR(ParseUnix(rest, false, &out));
  } else {
    return Bad(text,
               "daemons serve tcp://127.0.0.1:PORT, tcp://HOST:fdN, ipc://PATH, ipc://@NAME, unix:PATH");
  }
  if (side == Side::kDial && out.kind == Kind::kListeningFd)
    return Bad(text, "an inherited socket can be listened on, not connected to");
  return out;
}

absl::StatusOr<HostAddress::Socket> HostAddress::ToSocket() const {
  Socket out;
  switch (kind) {
    case Kind::kPath:
    case Kind::kAbstract: {
      auto* address = reinterpret_cast<sockaddr_un*>(&out.address);
      address->sun_family = AF_UNIX;
      const size_t at = kind == Kind::kAbstract ? 1 : 0;
      std::memcpy(address->sun_path + at, name.data(), name.size());
      // An abstract name is as long as the address says; a path's zero byte counts.
      out.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + 1);
      return out;
    }
    case Kind::kTcp: {
      auto* v4 = reinterpret_cast<sockaddr_in*>(&out.address);
      if (inet_pton(AF_INET, name.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        out.size = sizeof(sockaddr_in);
        return out;
      }
      auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.address);
      if (inet_pton(AF_INET6, name.c_str(), &v6->sin6_addr) != 1) return Bad(text, "no numeric address");
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons(port);
      out.size = sizeof(sockaddr_in6);
      return out;
    }
    case Kind::kListeningFd:
      break;
  }
  return Bad(text, "an inherited socket has no address to connect to");
}

}  // namespace monarch
