#include "client/cpp/runtime/runtime.h"

#include <nanobind/stl/string.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/limits.h"
#include "client/cpp/runtime/failure_detail.h"
#include "client/python/runtime_module/buffers.h"
#include "client/python/runtime_module/convert.h"
#include "client/python/runtime_module/objects.h"
#include "message/bytes.h"
#include "message/mesh_restarts.h"

namespace monarch::python {
namespace {

// The runtime as Python holds it. Never destroyed: its threads may still run when the interpreter takes
// modules down.
struct PyRuntime {
  std::shared_ptr<Runtime> runtime;
};

PyRuntime Keep(absl::StatusOr<std::unique_ptr<Runtime>> made) {
  auto* kept = new std::shared_ptr<Runtime>(ValueOrThrow(std::move(made)));
  return PyRuntime{*kept};
}

absl::Duration ToTimeout(nb::handle seconds) {
  if (seconds.is_none()) return absl::InfiniteDuration();
  return absl::Seconds(std::max(0.0, nb::cast<double>(seconds)));
}

// The main thread alone handles signals. One that comes between the interpreter's last look and the sleep
// ends no sleep, so it looks again after this time.
constexpr absl::Duration kMainThreadSleepMax = absl::Milliseconds(500);

absl::Duration SleepMax() {
  thread_local const bool is_main = gettid() == getpid();
  return is_main ? kMainThreadSleepMax : absl::InfiniteDuration();
}

// Calls `wait` with the time that is left, at most `sleep_max` at once, until it has something, the time is
// over, or a signal handler raises. `wait` runs without the GIL and returns a Status.
template <typename F>
absl::Status WaitInterruptibly(absl::Duration timeout, absl::Duration sleep_max, F wait) {
  const SystemClock clock;
  const absl::Duration deadline = timeout == absl::InfiniteDuration() ? timeout : clock.Now() + timeout;
  while (true) {
    absl::Status status;
    absl::Duration left = deadline;
    {
      const ReleasedGil released;
      if (deadline != absl::InfiniteDuration()) left = std::max(deadline - clock.Now(), absl::ZeroDuration());
      status = wait(std::min(left, sleep_max));
    }
    const bool is_over = absl::IsDeadlineExceeded(status) && left <= sleep_max;
    if (is_over || !(absl::IsCancelled(status) || absl::IsDeadlineExceeded(status))) return status;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

// Calls `send` again after a signal, which comes before anything was sent, unless the signal's handler
// raises.
template <typename F>
void SendInterruptibly(Outgoing payload, F send) {
  const SystemClock clock;
  payload.sleep_max = SleepMax();
  absl::Duration looked = absl::InfiniteDuration();
  while (true) {
    absl::Status status;
    {
      const ReleasedGil released;
      status = send(payload);
    }
    if (!absl::IsCancelled(status)) {
      ThrowIfError(status);
      return;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    // The first wait counts from its end, so that what needs no wait needs no clock.
    const absl::Duration now = clock.Now();
    if (looked != absl::InfiniteDuration()) payload.waited += now - looked;
    looked = now;
  }
}

// True: OK. False: the time is over.
bool InTime(const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) return false;
  ThrowIfError(status);
  return true;
}

std::string_view AsView(nb::handle bytes) {
  char* data = nullptr;
  Py_ssize_t length = 0;
  if (PyBytes_AsStringAndSize(bytes.ptr(), &data, &length) != 0) throw nb::python_error();
  return {data, static_cast<size_t>(length)};
}

bool Wait(const PyRuntime& self, const PyInbox& inbox, nb::handle timeout) {
  const absl::Duration limit = ToTimeout(timeout);
  return InTime(WaitInterruptibly(
      limit, SleepMax(), [&](absl::Duration left) { return self.runtime->Wait(inbox.inbox(), left); }));
}

constexpr uint8_t kTextTag = 5;  // of the value format
constexpr uint8_t kListTag = 7;

// The method in a call's meta, a list that begins with it (WIRE.md); no check of the rest.
std::string_view MethodOf(std::string_view meta) {
  constexpr size_t kHead = 1 + 4 + 1 + 4;  // list, its length, text, its length
  if (meta.size() < kHead || meta[0] != kListTag || meta[5] != kTextTag) return "?";
  return meta.substr(kHead, LoadLe<uint32_t>(meta.data() + 6));
}

// What an actor that got the message is at work on.
std::string_view ActivityOf(const Message& message) {
  switch (message.header.kind) {
    case FrameKind::kCall:
      return MethodOf(message.view.meta);
    case FrameKind::kActorFailed:
      return "__supervise__";
    case FrameKind::kStopActor:
      return "__cleanup__";
    default:
      return "";
  }
}

void NoteBegin(const PyRuntime& self, const Message& message) {
  if (const std::string_view what = ActivityOf(message); !what.empty())
    self.runtime->SetActivity(what, RecentNs());
}

// A call that was taken ahead begins, if it has not; `shown`: it is what its actor is seen to be at work on.
void CallRuns(const PyRuntime& self, Message& call, bool shown) {
  if (call.began_ns == 0) call.began_ns = RecentNs();
  if (shown) self.runtime->SetActivity(ActivityOf(call), call.began_ns);
}

// The next message; None if none came in time, or none will come. Takes what is there without giving the GIL
// away. For a mailbox (id 0) it says what its actor is at work on.
nb::object Receive(const PyRuntime& self, const PyInbox& inbox, nb::handle timeout) {
  for (bool waited = false;; waited = true) {
    std::optional<Message> message = inbox.inbox().TryPop();
    if (message.has_value()) {
      if (inbox.inbox().id() == 0) NoteBegin(self, *message);
      return nb::cast(*std::move(message));
    }
    if (waited && inbox.inbox().finished()) return nb::none();
    if (!waited && inbox.inbox().id() == 0) self.runtime->SetActivity("", 0);
    if (!Wait(self, inbox, timeout)) return nb::none();
  }
}

bool WaitNotifier(const PyRuntime& self, const PyNotifier& notifier, int epoll_fd, nb::handle timeout) {
  const absl::Duration limit = ToTimeout(timeout);
  return InTime(WaitInterruptibly(limit, SleepMax(), [&](absl::Duration left) {
    return self.runtime->WaitNotifier(*notifier.notifier, epoll_fd, left);
  }));
}

nb::object NextTask(const PyRuntime& self, nb::handle timeout) {
  std::optional<RuntimeTask> task;
  do {
    // A worker's main thread sleeps here, for as long as there is nothing to do.
    const absl::Status status =
        WaitInterruptibly(ToTimeout(timeout), absl::InfiniteDuration(), [&](absl::Duration left) {
          absl::StatusOr<RuntimeTask> next = self.runtime->NextTask(left);
          if (next.ok()) task = *std::move(next);
          return next.status();
        });
    if (!InTime(status)) return nb::none();
    // Here with the GIL: that is the answer.
    if (task->kind == RuntimeTask::Kind::kAskInterpreter) self.runtime->InterpreterCame();
  } while (task->kind == RuntimeTask::Kind::kAskInterpreter);
  return nb::cast(PyTask{self.runtime, *std::move(task)});
}

void Send(const PyRuntime& self, uint64_t sender, int kind, const PyTargets& targets, int payload_kind,
          nb::handle meta, nb::handle parts, const PyInbox* call) {
  const HeldBuffers buffers(parts);
  const Outgoing payload{static_cast<PayloadKind>(payload_kind), AsView(meta), buffers.spans()};
  Inbox* const inbox = call == nullptr ? nullptr : &call->inbox();
  SendInterruptibly(payload, [&](const Outgoing& payload) {
    return self.runtime->Send(sender, static_cast<FrameKind>(kind), targets.targets, payload, inbox);
  });
}

// Opens a call and sends it to all targets, for as many answers.
PyInbox Call(const PyRuntime& self, uint64_t caller, const PyTargets& targets, nb::handle meta,
             nb::handle parts) {
  PyInbox call(self.runtime, self.runtime->OpenCall(caller, targets.targets.size()), true);
  Send(self, caller, static_cast<int>(FrameKind::kCall), targets, static_cast<int>(PayloadKind::kPickle),
       meta, parts, &call);
  return call;
}

void Reply(const PyRuntime& self, const Message& request, int kind, int payload_kind, nb::handle meta,
           nb::handle parts) {
  const HeldBuffers buffers(parts);
  const Outgoing payload{static_cast<PayloadKind>(payload_kind), AsView(meta), buffers.spans()};
  absl::Status status;
  {
    const ReleasedGil released;
    status = self.runtime->Reply(request, static_cast<FrameKind>(kind), payload);
  }
  ThrowIfError(status);
}

void SendToPort(const PyRuntime& self, uint64_t sender, nb::handle receiver, uint64_t port, uint32_t rank,
                int kind, int payload_kind, nb::handle meta, nb::handle parts) {
  const HeldBuffers buffers(parts);
  const ActorAddress address = ToActor(receiver);
  const Outgoing payload{static_cast<PayloadKind>(payload_kind), AsView(meta), buffers.spans()};
  SendInterruptibly(payload, [&](const Outgoing& payload) {
    return self.runtime->SendToPort(sender, address, port, rank, static_cast<FrameKind>(kind), payload);
  });
}

void EndActor(const PyRuntime& self, uint64_t actor, nb::handle event) {
  FailureEvent ended = ToEvent(event);
  const ReleasedGil released;
  self.runtime->EndActor(actor, std::move(ended));
}

void SetEndpointNamer(const PyRuntime& self, nb::object namer) {
  // Kept for good: the runtime outlives the interpreter.
  self.runtime->SetEndpointNamer([kept = namer.release()]() -> std::string {
    const AcquiredGil acquired;
    try {
      return ToText(kept());
    } catch (nb::python_error&) {
      return "";
    }
  });
}

PyInbox AddActor(const PyRuntime& self, uint64_t actor, nb::handle name, nb::handle cls, nb::handle owner) {
  Runtime::ActorInfo info;
  info.name = info.mesh = ToText(name);
  info.actor_class = ToText(cls);
  info.owner = ToActor(owner);
  return {self.runtime, ValueOrThrow(self.runtime->AddActor(actor, info)), false};
}

void ShowRestarts(const PyRuntime& self, uint64_t actor, nb::dict shown) {
  MeshRestarts restarts;
  restarts.mesh = ToText(shown["mesh"]);
  restarts.of_procs = nb::cast<bool>(shown["of_procs"]);
  restarts.policy = ToText(shown["policy"]);
  restarts.incarnation = nb::cast<uint32_t>(shown["incarnation"]);
  restarts.restarts = nb::cast<uint32_t>(shown["restarts"]);
  restarts.given_up = nb::cast<bool>(shown["given_up"]);
  if (!shown["cause"].is_none()) restarts.cause = ToEvent(shown["cause"]);
  const ReleasedGil released;
  self.runtime->ShowRestarts(actor, restarts);
}

void AddOwnedMesh(const PyRuntime& self, uint64_t owner, nb::handle mesh, nb::handle cls, uint64_t actor,
                  nb::handle procs, nb::handle labels, nb::handle sizes, nb::handle actors) {
  OwnedMesh owned{owner, ToText(mesh), ToText(cls), actor, ToProcs(procs), ToShape(labels, sizes)};
  for (nb::handle id : actors) owned.actors.push_back(nb::cast<uint64_t>(id));
  const ReleasedGil released;
  self.runtime->AddOwnedMesh(owned);
}

nb::object DeathOf(const PyRuntime& self, nb::handle proc) {
  const absl::StatusOr<FailureEvent> event = self.runtime->DeathOf(ToProc(proc));
  if (absl::IsNotFound(event.status())) return nb::none();
  ThrowIfError(event.status());
  return FromEvent(*event);
}

nb::object DetailOf(const PyRuntime& self, nb::handle event, double timeout) {
  FailureEvent told = ToEvent(event);
  {
    const ReleasedGil released;
    told = monarch::WithDetail(self.runtime.get(), std::move(told), absl::Seconds(timeout));
  }
  return FromEvent(told);
}

nb::object LimitsOf(const PyRuntime& self) {
  nb::dict out;
  for (const LimitEntry& entry : LimitTable(self.runtime->limits())) {
    out[nb::str(entry.name.data(), entry.name.size())] = nb::int_(entry.value);
  }
  return out;
}

nb::object StatsOf(const PyRuntime& self) {
  const Runtime::Stats stats = self.runtime->stats();
  nb::dict out;
  out["frames_sent"] = nb::int_(stats.frames_sent);
  out["frames_received"] = nb::int_(stats.frames_received);
  out["ring_links"] = nb::int_(stats.ring_links);
  out["relay_links"] = nb::int_(stats.relay_links);
  out["futex_wakes"] = nb::int_(stats.futex_wakes);
  out["futex_waits"] = nb::int_(stats.futex_waits);
  out["bell_writes"] = nb::int_(stats.bell_writes);
  out["segment_bytes"] = nb::int_(stats.segment_bytes);
  out["pairs_to"] = nb::int_(stats.pairs_to);
  out["pairs_from"] = nb::int_(stats.pairs_from);
  return out;
}

PyRuntime StartClient(const std::string& address, const std::string& monarchd, const std::string& name,
                      int stdout_fd, int stderr_fd, int output_stream_fd) {
  ClientOptions options;
  options.address = address;
  options.monarchd_path = monarchd;
  options.name = name;
  options.stdout_fd = stdout_fd;
  options.stderr_fd = stderr_fd;
  options.output_stream_fd = output_stream_fd;
  absl::StatusOr<std::unique_ptr<Runtime>> made = absl::UnknownError("not started");
  {
    const ReleasedGil released;
    made = Runtime::StartClient(options);
  }
  // The start is bounded, and not ended by a signal. What the handler raises goes before an error of the
  // start.
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  return Keep(std::move(made));
}

PyRuntime StartWorker() {
  absl::StatusOr<std::unique_ptr<Runtime>> made = absl::UnknownError("not started");
  {
    const ReleasedGil released;
    made = Runtime::StartWorker();
  }
  return Keep(std::move(made));
}

nb::object HangOf(const PyTask& task) {
  if (!task.task.hang.has_value()) return nb::none();
  const HangNotice& notice = *task.task.hang;
  nb::dict out;
  out["event"] = FromEvent(notice.event);
  out["method"] = FromText(notice.hang.method);
  out["seconds"] = nb::float_(absl::ToDoubleSeconds(notice.hang.age));
  out["state"] = FromText(notice.hang.state);
  out["wait_channel"] = FromText(notice.hang.wait_channel);
  out["recovered"] = nb::bool_(notice.hang.recovered);
  return out;
}

void DefineTask(nb::module_& module) {
  nb::class_<PyTask>(module, "Task", nb::is_final(), "Work for the language layer.")
      .def_prop_ro("kind",
                   [](const PyTask& self) {
                     if (self.task.kind == RuntimeTask::Kind::kHang) return "hang";
                     return self.task.kind == RuntimeTask::Kind::kCreateActor ? "create" : "stop";
                   })
      .def_prop_ro("hang", HangOf)
      .def_prop_ro("actor", [](const PyTask& self) { return self.task.actor; })
      .def_prop_ro("create", [](const PyTask& self) { return self.task.create; })
      .def_prop_ro("mailbox",
                   [](const PyTask& self) { return PyInbox(self.runtime, self.task.mailbox, false); })
      .def_prop_ro("reason", [](const PyTask& self) { return FromText(self.task.reason); })
      .def_prop_ro("grace", [](const PyTask& self) { return absl::ToDoubleSeconds(self.task.grace); })
      .def_prop_ro("session_ends", [](const PyTask& self) { return self.task.session_ends; });
}

void DefineIdentity(nb::class_<PyRuntime>& runtime) {
  runtime.def_static("start_client", StartClient)
      .def_static("start_worker", StartWorker)
      .def_prop_ro("self_proc", [](const PyRuntime& self) { return FromProc(self.runtime->self()); })
      .def_prop_ro("session", [](const PyRuntime& self) { return self.runtime->session().ToHex(); })
      .def_prop_ro("control_token",
                   [](const PyRuntime& self) { return FromText(self.runtime->control_token().ToHex()); })
      .def_prop_ro("host_name", [](const PyRuntime& self) { return FromText(self.runtime->host_name()); })
      .def_prop_ro("boot",
                   [](const PyRuntime& self) {
                     const std::string boot = self.runtime->boot();
                     return Own(PyBytes_FromStringAndSize(boot.data(), static_cast<Py_ssize_t>(boot.size())));
                   })
      .def_prop_ro("limits", LimitsOf)
      .def("send_ready", [](const PyRuntime& self) { ThrowIfError(self.runtime->SendReady()); })
      .def("open_control",
           [](const PyRuntime& self) {
             absl::StatusOr<ScopedFd> fd = absl::UnknownError("not opened");
             {
               const ReleasedGil released;
               fd = self.runtime->OpenControl();
             }
             return ValueOrThrow(std::move(fd)).release();
           })
      .def("goodbye",
           [](const PyRuntime& self, double timeout) {
             absl::Status status;
             {
               const ReleasedGil released;
               status = self.runtime->Goodbye(absl::Seconds(timeout));
             }
             return InTime(status);
           })
      .def("death_of", DeathOf)
      .def("with_detail", DetailOf)
      .def("stats", StatsOf);
}

void DefineSleeping(nb::class_<PyRuntime>& runtime) {
  runtime.def("wait", Wait, nb::arg("inbox"), nb::arg("timeout").none())
      .def("receive", Receive, nb::arg("inbox"), nb::arg("timeout").none())
      .def("wait_notifier", WaitNotifier, nb::arg("notifier"), nb::arg("epoll_fd"), nb::arg("timeout").none())
      .def("wake_notifier",
           [](const PyRuntime& self, const PyNotifier& notifier) {
             self.runtime->WakeNotifier(*notifier.notifier);
           })
      .def("make_notifier", [](const PyRuntime& self) { return PyNotifier{self.runtime->MakeNotifier()}; })
      .def("add_bell_waiter", [](const PyRuntime& self) { self.runtime->AddBellWaiter(); })
      .def("remove_bell_waiter", [](const PyRuntime& self) { self.runtime->RemoveBellWaiter(); })
      .def("next_task", NextTask, nb::arg("timeout").none());
}

void DefineActors(nb::class_<PyRuntime>& runtime) {
  runtime
      .def("root_mailbox",
           [](const PyRuntime& self) { return PyInbox(self.runtime, self.runtime->root_mailbox(), false); })
      .def("next_actor_id", [](const PyRuntime& self) { return self.runtime->NextActorId(); })
      .def("bind_actor", [](const PyRuntime& self, uint64_t actor) { self.runtime->BindActor(actor); })
      .def("set_activity",
           [](const PyRuntime& self, nb::handle what) {
             const std::string_view text = AsView(what);
             self.runtime->SetActivity(text, text.empty() ? 0 : RecentNs());
           })
      .def("call_runs", CallRuns)
      .def("set_endpoint_namer", SetEndpointNamer)
      .def("end_actor", EndActor)
      .def("add_actor", AddActor)
      .def("show_restarts", ShowRestarts)
      .def("add_owned_mesh", AddOwnedMesh, nb::arg("owner"), nb::arg("mesh"), nb::arg("cls"),
           nb::arg("actor"), nb::arg("procs"), nb::arg("labels"), nb::arg("sizes"),
           nb::arg("actors") = nb::tuple())
      .def("remove_owned_mesh", [](const PyRuntime& self, uint64_t owner, uint64_t actor, nb::handle mesh) {
        self.runtime->RemoveOwnedMesh(owner, actor, ToText(mesh));
      });
}

void DefineSending(nb::class_<PyRuntime>& runtime) {
  runtime.def("reply", Reply)
      .def("call", Call)
      .def(
          "open_call",
          [](const PyRuntime& self, uint64_t caller, size_t answers, nb::handle timeout) {
            return PyInbox(self.runtime, self.runtime->OpenCall(caller, answers, ToTimeout(timeout)), true);
          },
          nb::arg("caller"), nb::arg("answers"), nb::arg("timeout") = nb::none())
      .def("send", Send, nb::arg("sender"), nb::arg("kind"), nb::arg("targets"), nb::arg("payload_kind"),
           nb::arg("meta"), nb::arg("parts"), nb::arg("call").none())
      .def("fail_call", [](const PyRuntime& self, const PyInbox& call, uint32_t rank,
                           nb::handle event) { self.runtime->FailCall(call.inbox(), rank, ToEvent(event)); })
      .def("cancel_call",
           [](const PyRuntime& self, const PyInbox& call) { self.runtime->CancelCall(call.inbox()); })
      .def("open_port",
           [](const PyRuntime& self, uint64_t owner) {
             return PyInbox(self.runtime, self.runtime->OpenPort(owner), true);
           })
      .def("send_to_port", SendToPort);
}

}  // namespace

void DefineRuntime(nb::module_& module) {
  DefineTask(module);
  nb::class_<PyRuntime> runtime(module, "Runtime", nb::is_final(),
                                "This process's part in the message plane.");
  DefineIdentity(runtime);
  DefineSleeping(runtime);
  DefineActors(runtime);
  DefineSending(runtime);
}

}  // namespace monarch::python
