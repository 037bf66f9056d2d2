#include "daemon/launcher/launcher_messages.h"

#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "message/utf8.h"

namespace monarch {
namespace {

// Resources of setrlimit end at 15; CPUs at 8191. A list beyond these is no honest one.
constexpr size_t kLimitsMax = 32;
constexpr size_t kCpusMax = 8192;
constexpr int64_t kUmaskMax = 0777;
constexpr int64_t kAbsenceMsMax = 7LL * 24 * 3600 * 1000;

absl::Status Bad(std::string_view key, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("launcher message: ", std::string(key), ": ", std::string(what)));
}

absl::Status Named(std::string_view key, const absl::Status& status) {
  return Bad(key, std::string(status.message()));
}

absl::StatusOr<int64_t> Int(const Value& body, std::string_view key) {
  absl::StatusOr<int64_t> value = body[key].AsInt();
  if (!value.ok()) return Named(key, value.status());
  return value;
}

absl::StatusOr<uint64_t> Size(const Value& body, std::string_view key) {
  MONARCH_ASSIGN_OR_RETURN(const int64_t value, Int(body, key));
  if (value < 0) return Bad(key, "negative");
  return static_cast<uint64_t>(value);
}

absl::StatusOr<int> SmallInt(const Value& value, std::string_view key) {
  const absl::StatusOr<int64_t> number = value.AsInt();
  if (!number.ok()) return Named(key, number.status());
  if (*number < 0 || *number > std::numeric_limits<int>::max()) return Bad(key, "out of range");
  return static_cast<int>(*number);
}

absl::StatusOr<std::string> Text(const Value& body, std::string_view key) {
  absl::StatusOr<std::string> value = body[key].AsString();
  if (!value.ok()) return Named(key, value.status());
  return value;
}

absl::StatusOr<std::string> OptionalText(const Value& body, std::string_view key) {
  if (body[key].is_nil()) return std::string();
  return Text(body, key);
}

absl::StatusOr<std::string> Bytes(const Value& body, std::string_view key) {
  absl::StatusOr<std::string> value = body[key].AsBytes();
  if (!value.ok()) return Named(key, value.status());
  return value;
}

// What becomes a C string, which would end at a zero byte.
absl::StatusOr<std::string> CText(const Value& value, std::string_view key) {
  absl::StatusOr<std::string> text = value.AsBytes();
  if (!text.ok()) return Named(key, text.status());
  if (text->find('\0') != std::string::npos) return Bad(key, "holds a zero byte");
  return text;
}

absl::StatusOr<std::vector<std::string>> CTexts(const Value& body, std::string_view key) {
  const Value::List* list = body[key].list();
  if (list == nullptr) return Bad(key, "not a list");
  std::vector<std::string> result;
  for (const Value& item : *list) {
    MONARCH_ASSIGN_OR_RETURN(std::string text, CText(item, key));
    result.push_back(std::move(text));
  }
  return result;
}

absl::StatusOr<ProcAddress> Proc(const Value& body, std::string_view key = "proc") {
  absl::StatusOr<ProcAddress> proc = ProcAddressFromValue(body[key]);
  if (!proc.ok()) return Named(key, proc.status());
  return proc;
}

absl::StatusOr<SessionId> Session(const Value& body) {
  const absl::StatusOr<Id128> id = Id128FromValue(body["session"]);
  if (!id.ok()) return Named("session", id.status());
  if (id->is_zero()) return Bad("session", "zero");
  return SessionId(*id);
}

absl::StatusOr<std::vector<ResourceLimit>> Limits(const Value& body) {
  std::vector<ResourceLimit> result;
  const Value& value = body["rlimits"];
  if (value.is_nil()) return result;
  const Value::List* list = value.list();
  if (list == nullptr || list->size() > kLimitsMax) return Bad("rlimits", "not a list, or too long");
  for (const Value& item : *list) {
    const Value::List* triple = item.list();
    if (triple == nullptr || triple->size() != 3) return Bad("rlimits", "not a list of three");
    ResourceLimit limit;
    MONARCH_ASSIGN_OR_RETURN(limit.resource, SmallInt((*triple)[0], "rlimits"));
    // -1 is "no limit" on the wire as in the kernel.
    MONARCH_ASSIGN_OR_RETURN(const int64_t soft, (*triple)[1].AsInt());
    MONARCH_ASSIGN_OR_RETURN(const int64_t hard, (*triple)[2].AsInt());
    limit.soft = static_cast<uint64_t>(soft);
    limit.hard = static_cast<uint64_t>(hard);
    result.push_back(limit);
  }
  return result;
}

absl::StatusOr<std::vector<int>> Cpus(const Value& body) {
  std::vector<int> result;
  const Value& value = body["cpus"];
  if (value.is_nil()) return result;
  const Value::List* list = value.list();
  if (list == nullptr || list->size() > kCpusMax) return Bad("cpus", "not a list, or too long");
  for (const Value& item : *list) {
    MONARCH_ASSIGN_OR_RETURN(const int cpu, SmallInt(item, "cpus"));
    result.push_back(cpu);
  }
  return result;
}

// The kernel's strings are bytes: an environment need not be UTF-8.
Value BytesList(const std::vector<std::string>& texts) {
  Value::List list;
  for (const std::string& text : texts) list.emplace_back(Value::Bytes{text});
  return list;
}

absl::StatusOr<ExitStatus> Cause(const Value& body) {
  ExitStatus status;
  MONARCH_ASSIGN_OR_RETURN(status.code, SmallInt(body["code"], "code"));
  MONARCH_ASSIGN_OR_RETURN(status.signal, SmallInt(body["signal"], "signal"));
  return status;
}

}  // namespace

Value ToBody(const LauncherSetup& setup) {
  return Value::Map{{"session", ToValue(setup.session)},
                    {"client_pid", setup.client_pid},
                    {"log_path", ToUtf8(setup.log_path)},
                    {"worker_log_bytes_max", setup.worker_log_bytes_max},
                    {"output_buffer_bytes_max", setup.output_buffer_bytes_max},
                    {"cgroup", setup.use_cgroup},
                    {"resume_path", Value::Bytes{setup.resume_path}},
                    {"resume_token", ToValue(setup.resume_token)},
                    {"absence_ms", setup.absence_ms}};
}

absl::StatusOr<LauncherSetup> ParseLauncherSetup(const Value& body) {
  LauncherSetup setup;
  MONARCH_ASSIGN_OR_RETURN(setup.session, Session(body));
  MONARCH_ASSIGN_OR_RETURN(setup.client_pid, Int(body, "client_pid"));
  MONARCH_ASSIGN_OR_RETURN(setup.log_path, OptionalText(body, "log_path"));
  MONARCH_ASSIGN_OR_RETURN(setup.worker_log_bytes_max, Size(body, "worker_log_bytes_max"));
  MONARCH_ASSIGN_OR_RETURN(setup.output_buffer_bytes_max, Size(body, "output_buffer_bytes_max"));
  if (!body["cgroup"].is_nil()) {
    const absl::StatusOr<bool> use_cgroup = body["cgroup"].AsBool();
    if (!use_cgroup.ok()) return Named("cgroup", use_cgroup.status());
    setup.use_cgroup = *use_cgroup;
  }
  if (!body["resume_path"].is_nil()) {
    MONARCH_ASSIGN_OR_RETURN(setup.resume_path, CText(body["resume_path"], "resume_path"));
  }
  if (setup.resume_path.empty()) return setup;
  MONARCH_ASSIGN_OR_RETURN(const Id128 token, Id128FromValue(body["resume_token"]));
  if (token.is_zero()) return Bad("resume_token", "zero");
  setup.resume_token = StartToken(token);
  MONARCH_ASSIGN_OR_RETURN(const int64_t absence_ms, Int(body, "absence_ms"));
  if (absence_ms < 0 || absence_ms > kAbsenceMsMax) return Bad("absence_ms", "out of range");
  setup.absence_ms = static_cast<uint64_t>(absence_ms);
  return setup;
}

Value ToBody(const LaunchRequest& launch) {
  Value::List limits;
  for (const ResourceLimit& limit : launch.limits) {
    limits.emplace_back(Value::List{limit.resource, limit.soft, limit.hard});
  }
  Value::Map body{{"proc", ToValue(launch.proc)},
                  {"argv", BytesList(launch.argv)},
                  {"env", BytesList(launch.env)},
                  {"cwd", Value::Bytes{launch.cwd}},
                  {"rlimits", std::move(limits)},
                  {"cpus", Value::List(launch.cpus.begin(), launch.cpus.end())},
                  {"token", Value::Bytes{launch.token}},
                  {"boot", Value::Bytes{launch.boot}},
                  {"label", ToUtf8(launch.label)},
                  {"output_tag", ToUtf8(launch.output_tag)},
                  {"memory_bytes_max", launch.cgroup_limits.memory_bytes_max},
                  {"pids_max", launch.cgroup_limits.pids_max}};
  if (launch.umask) body["umask"] = *launch.umask;
  return body;
}

absl::StatusOr<LaunchRequest> ParseLaunchRequest(const Value& body) {
  LaunchRequest launch;
  MONARCH_ASSIGN_OR_RETURN(launch.proc, Proc(body));
  MONARCH_ASSIGN_OR_RETURN(launch.argv, CTexts(body, "argv"));
  if (launch.argv.empty()) return Bad("argv", "empty");
  MONARCH_ASSIGN_OR_RETURN(launch.env, CTexts(body, "env"));
  if (!body["cwd"].is_nil()) {
    MONARCH_ASSIGN_OR_RETURN(launch.cwd, CText(body["cwd"], "cwd"));
  }
  if (!body["umask"].is_nil()) {
    MONARCH_ASSIGN_OR_RETURN(const int64_t mask, Int(body, "umask"));
    if (mask < 0 || mask > kUmaskMax) return Bad("umask", "out of range");
    launch.umask = static_cast<uint32_t>(mask);
  }
  MONARCH_ASSIGN_OR_RETURN(launch.limits, Limits(body));
  MONARCH_ASSIGN_OR_RETURN(launch.cpus, Cpus(body));
  MONARCH_ASSIGN_OR_RETURN(launch.token, Bytes(body, "token"));
  MONARCH_ASSIGN_OR_RETURN(launch.boot, Bytes(body, "boot"));
  MONARCH_ASSIGN_OR_RETURN(launch.label, OptionalText(body, "label"));
  MONARCH_ASSIGN_OR_RETURN(launch.output_tag, OptionalText(body, "output_tag"));
  if (launch.output_tag.find_first_of(" \n") != std::string::npos) return Bad("output_tag", "has a blank");
  MONARCH_ASSIGN_OR_RETURN(launch.cgroup_limits.memory_bytes_max, Size(body, "memory_bytes_max"));
  MONARCH_ASSIGN_OR_RETURN(launch.cgroup_limits.pids_max, Size(body, "pids_max"));
  return launch;
}

Value ToBody(const LaunchFailure& failure) {
  return Value::Map{{"proc", ToValue(failure.proc)},
                    {"step", failure.step},
                    {"error", failure.error},
                    {"message", ToUtf8(failure.message)}};
}

absl::StatusOr<LaunchFailure> ParseLaunchFailure(const Value& body) {
  LaunchFailure failure;
  MONARCH_ASSIGN_OR_RETURN(failure.proc, Proc(body));
  MONARCH_ASSIGN_OR_RETURN(failure.step, Text(body, "step"));
  MONARCH_ASSIGN_OR_RETURN(failure.error, SmallInt(body["error"], "error"));
  MONARCH_ASSIGN_OR_RETURN(failure.message, Text(body, "message"));
  return failure;
}

Value ToBody(const WorkerDying& dying) {
  return Value::Map{
      {"proc", ToValue(dying.proc)}, {"code", dying.cause.code}, {"signal", dying.cause.signal}};
}

absl::StatusOr<WorkerDying> ParseWorkerDying(const Value& body) {
  WorkerDying dying;
  MONARCH_ASSIGN_OR_RETURN(dying.proc, Proc(body));
  MONARCH_ASSIGN_OR_RETURN(dying.cause, Cause(body));
  return dying;
}

Value ToBody(const WorkerExit& exit) {
  return Value::Map{{"proc", ToValue(exit.proc)},
                    {"code", exit.status.code},
                    {"signal", exit.status.signal},
                    {"core", exit.status.core},
                    {"stderr", ToUtf8(exit.stderr_tail)},
                    {"backtrace", ToUtf8(exit.backtrace)},
                    {"memory_kill", static_cast<int>(exit.memory_kill.answer)},
                    {"memory_note", ToUtf8(exit.memory_kill.why)},
                    {"maxrss_kib", exit.maxrss_kib}};
}

absl::StatusOr<WorkerExit> ParseWorkerExit(const Value& body) {
  WorkerExit exit;
  MONARCH_ASSIGN_OR_RETURN(exit.proc, Proc(body));
  MONARCH_ASSIGN_OR_RETURN(exit.status, Cause(body));
  const absl::StatusOr<bool> core = body["core"].AsBool();
  if (!core.ok()) return Named("core", core.status());
  exit.status.core = *core;
  MONARCH_ASSIGN_OR_RETURN(exit.stderr_tail, Text(body, "stderr"));
  MONARCH_ASSIGN_OR_RETURN(exit.backtrace, Text(body, "backtrace"));
  MONARCH_ASSIGN_OR_RETURN(const int64_t answer, Int(body, "memory_kill"));
  if (answer < 0 || answer > static_cast<int64_t>(MemoryVerdict::Answer::kYes))
    return absl::InvalidArgumentError(absl::StrCat("memory_kill: ", answer));
  exit.memory_kill.answer = static_cast<MemoryVerdict::Answer>(answer);
  MONARCH_ASSIGN_OR_RETURN(exit.memory_kill.why, Text(body, "memory_note"));
  MONARCH_ASSIGN_OR_RETURN(exit.maxrss_kib, Int(body, "maxrss_kib"));
  return exit;
}

Value ToBody(const WorkerBoot& boot) {
  return Value::Map{{"session", ToValue(boot.session)},
                    {"proc", ToValue(boot.proc)},
                    {"token", Value::Bytes{boot.token}},
                    {"boot", Value::Bytes{boot.boot}}};
}

absl::StatusOr<WorkerBoot> ParseWorkerBoot(const Value& body) {
  WorkerBoot boot;
  MONARCH_ASSIGN_OR_RETURN(boot.session, Session(body));
  MONARCH_ASSIGN_OR_RETURN(boot.proc, Proc(body));
  MONARCH_ASSIGN_OR_RETURN(boot.token, Bytes(body, "token"));
  MONARCH_ASSIGN_OR_RETURN(boot.boot, Bytes(body, "boot"));
  return boot;
}

Value ToBody(const RingNotice& ring) {
  return Value::Map{
      {"a", ToValue(ring.a)}, {"a_bit", ring.bit_in_a}, {"b", ToValue(ring.b)}, {"b_bit", ring.bit_in_b}};
}

absl::StatusOr<RingNotice> ParseRingNotice(const Value& body) {
  RingNotice ring;
  MONARCH_ASSIGN_OR_RETURN(ring.a, Proc(body, "a"));
  MONARCH_ASSIGN_OR_RETURN(const int bit_in_a, SmallInt(body["a_bit"], "a_bit"));
  MONARCH_ASSIGN_OR_RETURN(ring.b, Proc(body, "b"));
  MONARCH_ASSIGN_OR_RETURN(const int bit_in_b, SmallInt(body["b_bit"], "b_bit"));
  ring.bit_in_a = static_cast<uint32_t>(bit_in_a);
  ring.bit_in_b = static_cast<uint32_t>(bit_in_b);
  return ring;
}

}  // namespace monarch
