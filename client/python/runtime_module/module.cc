#include "base/version.h"
#include "client/cpp/runtime/crash_handler.h"
#include "client/python/runtime_module/buffers.h"
#include "client/python/runtime_module/convert.h"
#include "client/python/runtime_module/objects.h"
#include "client/python/runtime_module/plain_pickle.h"
#include "message/control_message.h"
#include "message/frame.h"

namespace monarch::python {
namespace {

void DefineConstants(nb::module_& module) {
  const auto set = [&module](const char* name, auto value) {
    module.attr(name) = nb::int_(static_cast<int>(value));
  };
  set("CREATE", FrameKind::kCreate);
  set("CALL", FrameKind::kCall);
  set("REPLY", FrameKind::kReply);
  set("EXCEPTION", FrameKind::kException);
  set("FAILURE", FrameKind::kFailure);
  set("PORT_MESSAGE", FrameKind::kPortMessage);
  set("STOP_ACTOR", FrameKind::kStopActor);
  set("ACTOR_FAILED", FrameKind::kActorFailed);
  set("CANCEL", FrameKind::kCancel);
  set("NONE", PayloadKind::kNone);
  set("VALUE", PayloadKind::kValue);
  set("PICKLE", PayloadKind::kPickle);
  set("ROOT_ACTOR", kRootActor);
  module.attr("VERSION") = nb::str(kVersion);
}

}  // namespace
}  // namespace monarch::python

NB_MODULE(_runtime, module) {
  using namespace monarch::python;
  // Objects that live to the end of the process (the runtime, an actor's mailbox) are no leaks worth a
  // report.
  nb::set_leak_warnings(false);
  DefineStatusError(module);
  DefineConstants(module);
  DefinePart(module);
  DefineMessage(module);
  DefineInbox(module);
  DefineRuntime(module);
  DefinePlainPickle(module);
  module.def("await_crash", [] {
    const ReleasedGil released;
    monarch::AwaitCrash();
  });
  module.def("install_crash_handler", [] { ThrowIfError(monarch::InstallCrashHandler()); });
  module.def("encode_value", [](nb::handle value) {
    const absl::StatusOr<std::string> bytes = monarch::EncodeValue(ToMessageValue(value));
    if (!bytes.ok()) throw nb::value_error(std::string(bytes.status().message()).c_str());
    return Own(PyBytes_FromStringAndSize(bytes->data(), static_cast<Py_ssize_t>(bytes->size())));
  });
  module.def("encode_event", [](nb::handle event) {
    const std::string bytes = monarch::EncodeFailureEvent(ToEvent(event));
    return Own(PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
  });
  module.def("decode_value",
             [](nb::handle data) { return FromValue(ValueOrThrow(monarch::DecodeValue(ToBytes(data)))); });
}
