#include "daemon/service/host_service.h"

#include <sys/sysinfo.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/version.h"
#include "daemon/daemon_context.h"
#include "daemon/protocol.h"
#include "daemon/service/unary_answer.h"
#include "proto/id_conversion.h"

namespace monarch {

grpc::ServerUnaryReactor* HostService::GetHost(grpc::CallbackServerContext* context,
                                               const v1::GetHostRequest*, v1::GetHostResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  *response = host_;
  UnaryAnswer(reactor).Finish(absl::OkStatus());
  return reactor;
}

v1::GetHostResponse DescribeHost(const DaemonContext& context) {
  v1::GetHostResponse host;
  host.set_host(ToProtoBytes(context.host));
  host.set_host_name(context.host_name);
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id);
  host.set_boot_id(boot_id);
  host.set_version(kVersion);
  host.set_protocol(static_cast<uint32_t>(kNativeProtocol));
  host.set_daemon_pid(getpid());
  host.set_is_private(context.is_private);
  host.set_cpus(static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_ONLN)));
  struct sysinfo info = {};
  if (sysinfo(&info) == 0) host.set_memory_bytes(uint64_t{info.totalram} * info.mem_unit);
  return host;
}

}  // namespace monarch
