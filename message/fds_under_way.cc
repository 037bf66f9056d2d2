#include "message/fds_under_way.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "message/packet_socket.h"

namespace monarch {
namespace {

constexpr int kNotUnderWay = 100;

int InChild(absl::FunctionRef<int(absl::FunctionRef<void()> release)> body) {
  // The limit on fds under way is that of open files, for who has no capabilities.
  __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  const rlimit files = {64, 64};
  if (syscall(SYS_capset, &head, none) != 0 || setrlimit(RLIMIT_NOFILE, &files) != 0) return kNotUnderWay;
  auto unread = PacketSocket::Pair();
  if (!unread.ok()) return kNotUnderWay;
  const std::vector<int> fds(PacketSocket::kPacketFdsMax, unread->first.fd());
  absl::StatusOr<bool> sent = true;
  for (int i = 0; i < 32 && sent.ok(); ++i) sent = unread->first.TrySend("x", fds);
  if (!absl::IsResourceExhausted(sent.status())) return kNotUnderWay;
  return body([&] { unread->second = PacketSocket(); });
}

}  // namespace

int RunWithManyFdsUnderWay(absl::FunctionRef<int(absl::FunctionRef<void()> release)> body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(InChild(body));
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

}  // namespace monarch
