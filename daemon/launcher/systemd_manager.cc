#include "daemon/launcher/systemd_manager.h"

#include <dlfcn.h>
#include <signal.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

constexpr char kLibrary[] = "libsystemd.so.0";
constexpr char kName[] = "org.freedesktop.systemd1";
constexpr char kPath[] = "/org/freedesktop/systemd1";
constexpr char kInterface[] = "org.freedesktop.systemd1.Manager";
constexpr uint64_t kStopMaxUs = 10'000'000;

// The functions of libsystemd that are used. Plain data.
struct Library {
  decltype(&::sd_bus_open_system) sd_bus_open_system = nullptr;
  decltype(&::sd_bus_open_user) sd_bus_open_user = nullptr;
  decltype(&::sd_bus_flush_close_unref) sd_bus_flush_close_unref = nullptr;
  decltype(&::sd_bus_message_new_method_call) sd_bus_message_new_method_call = nullptr;
  decltype(&::sd_bus_message_append) sd_bus_message_append = nullptr;
  decltype(&::sd_bus_message_open_container) sd_bus_message_open_container = nullptr;
  decltype(&::sd_bus_message_close_container) sd_bus_message_close_container = nullptr;
  decltype(&::sd_bus_message_read) sd_bus_message_read = nullptr;
  decltype(&::sd_bus_message_unref) sd_bus_message_unref = nullptr;
  decltype(&::sd_bus_call) sd_bus_call = nullptr;
  decltype(&::sd_bus_call_method) sd_bus_call_method = nullptr;
  decltype(&::sd_bus_match_signal) sd_bus_match_signal = nullptr;
  decltype(&::sd_bus_process) sd_bus_process = nullptr;
  decltype(&::sd_bus_wait) sd_bus_wait = nullptr;
  decltype(&::sd_bus_get_property) sd_bus_get_property = nullptr;
  decltype(&::sd_bus_get_property_trivial) sd_bus_get_property_trivial = nullptr;
  decltype(&::sd_bus_get_property_string) sd_bus_get_property_string = nullptr;
  decltype(&::sd_bus_error_free) sd_bus_error_free = nullptr;
};

template <class Function>
void Load(void* handle, const char* name, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  if (*function == nullptr) *missing = name;
}

absl::StatusOr<Library> OpenLibrary() {
  // Never closed: it may have made thread-local data.
  void* const handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::UnavailableError(absl::StrCat("open ", kLibrary, ": ", dlerror()));
  Library library;
  std::string missing;
  Load(handle, "sd_bus_open_system", &library.sd_bus_open_system, &missing);
  Load(handle, "sd_bus_open_user", &library.sd_bus_open_user, &missing);
  Load(handle, "sd_bus_flush_close_unref", &library.sd_bus_flush_close_unref, &missing);
  Load(handle, "sd_bus_message_new_method_call", &library.sd_bus_message_new_method_call, &missing);
  Load(handle, "sd_bus_message_append", &library.sd_bus_message_append, &missing);
  Load(handle, "sd_bus_message_open_container", &library.sd_bus_message_open_container, &missing);
  Load(handle, "sd_bus_message_close_container", &library.sd_bus_message_close_container, &missing);
  Load(handle, "sd_bus_message_read", &library.sd_bus_message_read, &missing);
  Load(handle, "sd_bus_message_unref", &library.sd_bus_message_unref, &missing);
  Load(handle, "sd_bus_call", &library.sd_bus_call, &missing);
  Load(handle, "sd_bus_call_method", &library.sd_bus_call_method, &missing);
  Load(handle, "sd_bus_match_signal", &library.sd_bus_match_signal, &missing);
  Load(handle, "sd_bus_process", &library.sd_bus_process, &missing);
  Load(handle, "sd_bus_wait", &library.sd_bus_wait, &missing);
  Load(handle, "sd_bus_get_property", &library.sd_bus_get_property, &missing);
  Load(handle, "sd_bus_get_property_trivial", &library.sd_bus_get_property_trivial, &missing);
  Load(handle, "sd_bus_get_property_string", &library.sd_bus_get_property_string, &missing);
  Load(handle, "sd_bus_error_free", &library.sd_bus_error_free, &missing);
  if (!missing.empty()) return absl::UnavailableError(absl::StrCat(kLibrary, " lacks ", missing));
  return library;
}

// One connection, and what the last call on it went wrong with. Threading: confined to one thread.
class Bus {
 public:
  explicit Bus(const Library& library) : sd(library) {}
  ~Bus() {
    sd.sd_bus_error_free(&error);
    if (bus != nullptr) sd.sd_bus_flush_close_unref(bus);
  }
  absl::Status Open(SystemdManager::Scope scope) {
    const int opened =
        scope == SystemdManager::Scope::kUser ? sd.sd_bus_open_user(&bus) : sd.sd_bus_open_system(&bus);
    if (opened >= 0) return absl::OkStatus();
    return absl::UnavailableError(ErrnoStatus("connect to the D-Bus of systemd", -opened).message());
  }
  absl::Status Failed(const std::string& what, int result) const {
    if (error.message != nullptr) return absl::UnavailableError(absl::StrCat(what, ": ", error.message));
    return ErrnoStatus(what, -result);
  }

  const Library& sd;
  sd_bus* bus = nullptr;
  sd_bus_error error = SD_BUS_ERROR_NULL;
};

// A message under construction, or an answer. Threading: confined to one thread.
class Message {
 public:
  explicit Message(const Library& library) : sd_(library) {}
  ~Message() {
    if (message != nullptr) sd_.sd_bus_message_unref(message);
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  // Appends, unless something before it went wrong.
  template <class... Values>
  void Add(const char* types, Values... values) {
    if (result >= 0) result = sd_.sd_bus_message_append(message, types, values...);
  }
  void Enter(char type, const char* contents) {
    if (result >= 0) result = sd_.sd_bus_message_open_container(message, type, contents);
  }
  void Leave() {
    if (result >= 0) result = sd_.sd_bus_message_close_container(message);
  }
  template <class... Values>
  void Property(const char* name, const char* type, Values... values) {
    Enter('r', "sv");
    Add("s", name);
    Enter('v', type);
    Add(type, values...);
    Leave();
    Leave();
  }
  void Strings(const char* name, const std::vector<std::string>& strings) {
    Enter('r', "sv");
    Add("s", name);
    Enter('v', "as");
    AddStrings(strings);
    Leave();
    Leave();
  }
  void AddStrings(const std::vector<std::string>& strings) {
    Enter('a', "s");
    for (const std::string& one : strings) Add("s", one.c_str());
    Leave();
  }

  sd_bus_message* message = nullptr;
  int result = 0;

 private:
  const Library& sd_;
};

// Waits for the end of a job. Threading: confined to one thread; stays where it is while the bus has it.
class JobWait {
 public:
  explicit JobWait(Bus* bus) : bus_(*bus) {}
  // Before the job is asked for.
  absl::Status Listen() {
    const int added = bus_.sd.sd_bus_match_signal(bus_.bus, nullptr, kName, kPath, kInterface, "JobRemoved",
                                                  &JobWait::OnRemoved, this);
    return added >= 0 ? absl::OkStatus() : bus_.Failed("listen to systemd", added);
  }
  // Its result: "done", "failed", ...
  absl::StatusOr<std::string> Result(const std::string& job, absl::Duration timeout) {
    job_ = job;
    const absl::Duration deadline = SystemClock().Now() + timeout;
    while (result_.empty()) {
      for (const auto& [path, result] : ended_) {
        if (path == job_) result_ = result;
      }
      if (!result_.empty()) break;
      const int processed = bus_.sd.sd_bus_process(bus_.bus, nullptr);
      if (processed < 0) return bus_.Failed("wait for systemd", processed);
      if (processed > 0) continue;
      const absl::Duration left = deadline - SystemClock().Now();
      if (left <= absl::ZeroDuration())
        return absl::DeadlineExceededError(
            absl::StrCat("systemd has not finished after ", absl::FormatDuration(timeout)));
      const int waited =
          bus_.sd.sd_bus_wait(bus_.bus, static_cast<uint64_t>(absl::ToInt64Microseconds(left)));
      if (waited < 0 && waited != -EINTR) return bus_.Failed("wait for systemd", waited);
    }
    return result_;
  }

 private:
  static int OnRemoved(sd_bus_message* message, void* self, sd_bus_error*) {
    auto* const wait = static_cast<JobWait*>(self);
    uint32_t id = 0;
    const char* path = nullptr;
    const char* unit = nullptr;
    const char* result = nullptr;
    // The job may end before its path is known here.
    if (wait->bus_.sd.sd_bus_message_read(message, "uoss", &id, &path, &unit, &result) >= 0)
      wait->ended_.emplace_back(path, result);
    return 0;
  }

  Bus& bus_;
  std::string job_;
  std::string result_;
  std::vector<std::pair<std::string, std::string>> ended_;
};

class DBusSystemdManager final : public SystemdManager {
 public:
  DBusSystemdManager(const Library& library, Scope scope) : library_(library), scope_(scope) {}
  absl::StatusOr<pid_t> Start(const TransientService& service, absl::Duration timeout) override;
  absl::Status Stop(const std::string& unit, absl::Duration timeout) override;
  absl::StatusOr<std::string> JobOf(pid_t pid) override;

 private:
  void Describe(const TransientService& service, Message* call) const;

  const Library library_;
  const Scope scope_;
};

void DBusSystemdManager::Describe(const TransientService& service, Message* call) const {
  call->Add("ss", service.name.c_str(), "fail");
  call->Enter('a', "(sv)");
  call->Property("Description", "s", service.description.c_str());
  call->Property("Slice", "s", service.slice.c_str());
  if (scope_ == Scope::kSystem) call->Property("User", "s", absl::StrCat(service.uid).c_str());
  call->Property("Type", "s", "exec");
  call->Property("Delegate", "b", 1);
  call->Property("KillMode", "s", "control-group");
  call->Property("TimeoutStopUSec", "t", kStopMaxUs);
  // One worker that runs out of memory is no reason to end the others.
  call->Property("OOMPolicy", "s", "continue");
  call->Property("TasksMax", "t", std::numeric_limits<uint64_t>::max());
  call->Property("CollectMode", "s", "inactive-or-failed");
  call->Property("WorkingDirectory", "s", "/");
  if (service.stdin_fd >= 0) call->Property("StandardInputFileDescriptor", "h", service.stdin_fd);
  call->Strings("Environment", service.env);
  call->Enter('r', "sv");
  call->Add("s", "ExecStart");
  call->Enter('v', "a(sasb)");
  call->Enter('a', "(sasb)");
  call->Enter('r', "sasb");
  call->Add("s", service.argv.at(0).c_str());
  call->AddStrings(service.argv);
  call->Add("b", 0);
  for (int level = 0; level < 5; ++level) call->Leave();  // with the array of properties
  call->Add("a(sa(sv))", 0);
}

absl::StatusOr<pid_t> DBusSystemdManager::Start(const TransientService& service, absl::Duration timeout) {
  const std::string what = absl::StrCat("start ", service.name);
  Bus bus(library_);
  MONARCH_RETURN_IF_ERROR(bus.Open(scope_));
  JobWait wait(&bus);
  MONARCH_RETURN_IF_ERROR(wait.Listen());
  Message call(library_);
  call.result = library_.sd_bus_message_new_method_call(bus.bus, &call.message, kName, kPath, kInterface,
                                                        "StartTransientUnit");
  if (call.result >= 0) Describe(service, &call);
  if (call.result < 0) return bus.Failed(what, call.result);
  Message answer(library_);
  const auto limit = static_cast<uint64_t>(absl::ToInt64Microseconds(timeout));
  const int called = library_.sd_bus_call(bus.bus, call.message, limit, &bus.error, &answer.message);
  if (called < 0) return bus.Failed(what, called);
  const char* job = nullptr;
  if (const int read = library_.sd_bus_message_read(answer.message, "o", &job); read < 0)
    return bus.Failed(what, read);
  MONARCH_ASSIGN_OR_RETURN(const std::string result, wait.Result(job, timeout));
  if (result != "done") {
    return absl::UnavailableError(
        absl::StrCat(what, ": systemd says ", result, "; more: journalctl -u ", service.name));
  }
  Message found(library_);
  const int got = library_.sd_bus_call_method(bus.bus, kName, kPath, kInterface, "GetUnit", &bus.error,
                                              &found.message, "s", service.name.c_str());
  const char* unit = nullptr;
  if (got < 0 || library_.sd_bus_message_read(found.message, "o", &unit) < 0)
    return bus.Failed(absl::StrCat(what, ": it has ended already"), got);
  uint32_t pid = 0;
  const int pid_got = library_.sd_bus_get_property_trivial(
      bus.bus, kName, unit, "org.freedesktop.systemd1.Service", "MainPID", &bus.error, 'u', &pid);
  if (pid_got < 0 || pid == 0)
    return bus.Failed(absl::StrCat(what, ": it has no process"), pid_got < 0 ? pid_got : -ESRCH);
  return static_cast<pid_t>(pid);
}

absl::Status DBusSystemdManager::Stop(const std::string& unit, absl::Duration timeout) {
  const std::string what = absl::StrCat("stop ", unit);
  Bus bus(library_);
  MONARCH_RETURN_IF_ERROR(bus.Open(scope_));
  JobWait wait(&bus);
  MONARCH_RETURN_IF_ERROR(wait.Listen());
  Message answer(library_);
  const int called = library_.sd_bus_call_method(bus.bus, kName, kPath, kInterface, "StopUnit", &bus.error,
                                                 &answer.message, "ss", unit.c_str(), "replace");
  if (called == -ENOENT) return absl::OkStatus();
  if (called < 0) return bus.Failed(what, called);
  const char* job = nullptr;
  if (const int read = library_.sd_bus_message_read(answer.message, "o", &job); read < 0)
    return bus.Failed(what, read);
  return wait.Result(job, timeout).status();
}

absl::StatusOr<std::string> DBusSystemdManager::JobOf(pid_t pid) {
  Bus bus(library_);
  MONARCH_RETURN_IF_ERROR(bus.Open(scope_));
  Message found(library_);
  const int called = library_.sd_bus_call_method(bus.bus, kName, kPath, kInterface, "GetUnitByPID",
                                                 &bus.error, &found.message, "u", static_cast<uint32_t>(pid));
  const char* unit = nullptr;
  if (called < 0) return bus.Failed("find this process's unit", called);
  if (const int read = library_.sd_bus_message_read(found.message, "o", &unit); read < 0)
    return bus.Failed("find this process's unit", read);
  Message property(library_);
  const int got = library_.sd_bus_get_property(bus.bus, kName, unit, "org.freedesktop.systemd1.Unit", "Job",
                                               &bus.error, &property.message, "(uo)");
  uint32_t number = 0;
  const char* job = nullptr;
  if (got < 0) return bus.Failed("look for a job", got);
  if (const int read = library_.sd_bus_message_read(property.message, "(uo)", &number, &job); read < 0)
    return bus.Failed("look for a job", read);
  if (number == 0) return std::string();
  char* type = nullptr;
  const int typed = library_.sd_bus_get_property_string(bus.bus, kName, job, "org.freedesktop.systemd1.Job",
                                                        "JobType", &bus.error, &type);
  if (typed < 0) return bus.Failed("look at a job", typed);
  std::string out(type);
  free(type);
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SystemdManager>> SystemdManager::Open(Scope scope) {
  // The same look as sd_booted(3).
  if (access("/run/systemd/system", F_OK) != 0)
    return absl::UnavailableError("systemd does not run here: no /run/systemd/system");
  MONARCH_ASSIGN_OR_RETURN(const Library library, OpenLibrary());
  Bus bus(library);
  MONARCH_RETURN_IF_ERROR(bus.Open(scope));
  return std::unique_ptr<SystemdManager>(std::make_unique<DBusSystemdManager>(library, scope));
}

}  // namespace monarch
