#include <nanobind/nanobind.h>

#include <string>
#include <utility>
#include <vector>

#include "client/cpp/control/control_channel.h"
#include "client/python/runtime_module/convert.h"
#include "message/bytes.h"

namespace monarch::python {
namespace {

PyObject* control_error = nullptr;

[[noreturn]] void ThrowControl(const absl::Status& status) {
  const ControlFailure failure = ControlFailureOf(status);
  nb::object error = nb::borrow<nb::object>(control_error)(FromText(std::string(status.message())));
  error.attr("code") = FromText(absl::StatusCodeToString(status.code()));
  error.attr("message") = FromText(std::string(status.message()));
  error.attr("limit") = FromText(failure.limit);
  nb::list failures;
  for (const FailureEvent& event : failure.failures) failures.append(FromEvent(event));
  error.attr("failures") = failures;
  PyErr_SetObject(control_error, error.ptr());
  throw nb::python_error();
}

// Runs a request without the GIL.
template <typename F>
auto Request(F call) {
  auto answer = [&] {
    const ReleasedGil released;
    return call();
  }();
  if (!answer.ok()) ThrowControl(answer.status());
  return *std::move(answer);
}

std::vector<std::string> ToTexts(nb::handle sequence) {
  std::vector<std::string> out;
  for (nb::handle item : sequence) out.push_back(ToBytes(item));
  return out;
}

HostId ToHost(nb::handle bytes) {
  const std::string id = ToBytes(bytes);
  if (id.size() != kIdBytes) throw nb::value_error("a host id has 16 bytes");
  return HostId(LoadId(id.data()));
}

ProcessSpec ToSpec(nb::handle handle) {
  const auto dict = nb::borrow<nb::dict>(handle);
  ProcessSpec spec;
  spec.argv = ToTexts(dict["argv"]);
  spec.env = ToTexts(dict["env"]);
  spec.cwd = ToBytes(dict["cwd"]);
  spec.umask = nb::cast<uint32_t>(dict["umask"]);
  for (nb::handle limit : nb::object(dict["limits"])) {
    spec.limits.push_back(
        {nb::cast<int32_t>(limit[0]), nb::cast<uint64_t>(limit[1]), nb::cast<uint64_t>(limit[2])});
  }
  for (nb::handle cpu : nb::object(dict["cpus"])) spec.cpus.push_back(nb::cast<uint32_t>(cpu));
  spec.boot = ToBytes(dict["boot"]);
  if (dict.contains("inherit_env")) spec.inherit_env = nb::cast<bool>(dict["inherit_env"]);
  if (dict.contains("output_tag")) spec.output_tag = ToText(dict["output_tag"]);
  if (dict.contains("memory_max")) spec.memory_bytes_max = nb::cast<int64_t>(dict["memory_max"]);
  if (dict.contains("pids_max")) spec.pids_max = nb::cast<int64_t>(dict["pids_max"]);
  return spec;
}

// Asks Python for a socket; runs on the thread of the request, which does not hold the GIL.
absl::StatusOr<ScopedFd> OpenFd(const nb::object& open_fd) {
  const AcquiredGil acquired;
  try {
    return ScopedFd(nb::cast<int>(open_fd()));
  } catch (const nb::python_error& error) {
    return absl::UnavailableError(error.what());
  }
}

std::unique_ptr<ControlChannel> Make(nb::object open_fd, nb::handle token) {
  // Not released with the channel: that may happen on a thread without the GIL, or after the interpreter's
  // end.
  auto* kept = new nb::object(std::move(open_fd));
  const StartToken id(ValueOrThrow(Id128::FromHex(ToText(token))));
  return MakeControlChannel([kept] { return OpenFd(*kept); }, id);
}

nb::object SpawnProcs(ControlChannel& self, nb::handle mesh, nb::handle labels, nb::handle sizes,
                      nb::handle specs, nb::handle owner, int64_t phase_timeout_ms, nb::handle hosts,
                      nb::handle ranks, uint32_t incarnation) {
  SpawnRequest request;
  request.mesh = ToText(mesh);
  request.shape = ToShape(labels, sizes);
  for (nb::handle spec : specs) request.specs.push_back(ToSpec(spec));
  for (nb::handle host : hosts) request.hosts.push_back(ToHost(host));
  for (nb::handle rank : ranks) request.ranks.push_back(nb::cast<uint32_t>(rank));
  request.incarnation = incarnation;
  request.owner = ToActor(owner);
  request.phase_timeout = absl::Milliseconds(phase_timeout_ms);
  nb::list out;
  for (const SpawnedProc& proc : Request([&] { return self.SpawnProcs(request); })) {
    out.append(nb::make_tuple(FromProc(proc.address), proc.pid));
  }
  return out;
}

nb::object StopProcs(ControlChannel& self, nb::handle procs, int64_t grace_ms, int64_t kill_after_ms,
                     nb::handle reason) {
  const std::vector<ProcAddress> addresses = ToProcs(procs);
  const std::string text = ToText(reason);
  nb::list out;
  for (const FailureEvent& event : Request([&] {
         return self.StopProcs(addresses, absl::Milliseconds(grace_ms), absl::Milliseconds(kill_after_ms),
                               text);
       })) {
    out.append(FromEvent(event));
  }
  return out;
}

void SignalProcs(ControlChannel& self, nb::handle procs, int signal) {
  const std::vector<ProcAddress> addresses = ToProcs(procs);
  absl::Status status;
  {
    const ReleasedGil released;
    status = self.SignalProcs(addresses, signal);
  }
  if (!status.ok()) ThrowControl(status);
}

nb::object AttachHost(ControlChannel& self, nb::handle address, int64_t timeout_ms) {
  const std::string text = ToText(address);
  const AttachedHost host = Request([&] { return self.AttachHost(text, absl::Milliseconds(timeout_ms)); });
  char id[kIdBytes];
  StoreId(id, host.host);
  nb::dict out;
  out["host"] = nb::bytes(id, sizeof(id));
  out["host_name"] = FromText(host.name);
  out["address"] = FromText(host.address);
  return out;
}

void ShutdownHost(ControlChannel& self, nb::handle host, int64_t grace_ms, int64_t kill_after_ms) {
  const HostId id = ToHost(host);
  absl::Status status;
  {
    const ReleasedGil released;
    status = self.ShutdownHost(id, absl::Milliseconds(grace_ms), absl::Milliseconds(kill_after_ms));
  }
  if (!status.ok()) ThrowControl(status);
}

nb::object ListProcs(ControlChannel& self) {
  nb::list out;
  for (const ProcStatus& proc : Request([&] { return self.ListProcs(); })) {
    nb::dict entry;
    entry["address"] = FromProc(proc.address);
    entry["rank"] = nb::int_(proc.rank);
    entry["pid"] = nb::int_(proc.pid);
    entry["mesh"] = FromText(proc.mesh);
    entry["phase"] = FromText(proc.phase);
    entry["rank_label"] = FromText(proc.rank_label);
    out.append(entry);
  }
  return out;
}

nb::object ListActivities(ControlChannel& self) {
  nb::list out;
  for (const ActorActivity& one : Request([&] { return self.ListActivities(); })) {
    nb::dict entry;
    entry["actor"] = FromActor(one.actor);
    entry["pid"] = nb::int_(one.pid);
    entry["method"] = FromText(one.method);
    entry["age"] = nb::float_(absl::ToDoubleSeconds(one.age));
    entry["state"] = FromText(one.state);
    entry["wait_channel"] = FromText(one.wait_channel);
    out.append(entry);
  }
  return out;
}

// Python's view of a channel; kept to the end of the process like the runtime whose sockets it opens.
struct PyChannel {
  ControlChannel* channel;
};

}  // namespace
}  // namespace monarch::python

NB_MODULE(_control, module) {
  using namespace monarch::python;
  nb::set_leak_warnings(false);
  DefineStatusError(module);
  control_error = PyErr_NewExceptionWithDoc("monarch._control.ControlError", "A refused or failed request.",
                                            PyExc_RuntimeError, nullptr);
  if (control_error == nullptr) throw nb::python_error();
  module.attr("ControlError") = nb::borrow<nb::object>(control_error);
  nb::class_<PyChannel>(module, "Channel", nb::is_final(),
                        "A connection to the daemon, opened when one is needed.")
      .def("__init__",
           [](PyChannel* self, nb::object open_fd, nb::handle token) {
             new (self) PyChannel{Make(std::move(open_fd), token).release()};
           })
      .def(
          "spawn_procs",
          [](PyChannel& self, nb::handle mesh, nb::handle labels, nb::handle sizes, nb::handle specs,
             nb::handle owner, int64_t phase_timeout_ms, nb::handle hosts, nb::handle ranks,
             uint32_t incarnation) {
            return SpawnProcs(*self.channel, mesh, labels, sizes, specs, owner, phase_timeout_ms, hosts,
                              ranks, incarnation);
          },
          nb::arg("mesh"), nb::arg("labels"), nb::arg("sizes"), nb::arg("specs"), nb::arg("owner"),
          nb::arg("phase_timeout_ms"), nb::arg("hosts") = nb::tuple(), nb::arg("ranks") = nb::tuple(),
          nb::arg("incarnation") = 1)
      .def("attach_host", [](PyChannel& self, nb::handle address,
                             int64_t timeout_ms) { return AttachHost(*self.channel, address, timeout_ms); })
      .def("shutdown_host",
           [](PyChannel& self, nb::handle host, int64_t grace_ms, int64_t kill_after_ms) {
             ShutdownHost(*self.channel, host, grace_ms, kill_after_ms);
           })
      .def("stop_procs",
           [](PyChannel& self, nb::handle procs, int64_t grace_ms, int64_t kill_after_ms, nb::handle reason) {
             return StopProcs(*self.channel, procs, grace_ms, kill_after_ms, reason);
           })
      .def("signal_procs",
           [](PyChannel& self, nb::handle procs, int signal) { SignalProcs(*self.channel, procs, signal); })
      .def("list_procs", [](PyChannel& self) { return ListProcs(*self.channel); })
      .def("list_activities", [](PyChannel& self) { return ListActivities(*self.channel); })
      .def("close", [](PyChannel& self) {
        const ReleasedGil released;
        self.channel->Close();
      });
}
