#include "client/python/runtime_module/buffers.h"
#include "client/python/runtime_module/convert.h"
#include "client/python/runtime_module/objects.h"
#include "message/control_message.h"

namespace monarch::python {
namespace {

nb::object MetaOf(const Message& message) {
  if (message.view.meta.empty()) return nb::none();
  return FromValue(ValueOrThrow(DecodeValue(message.view.meta)));
}

// Below, a copy costs less than an object that exports the bytes where they lie.
constexpr size_t kCopiedBytesMax = 1024;

nb::object PartsOf(const Message& message) {
  nb::list parts;
  if (message.view.parts.size() == 1 && message.view.parts.front().size() <= kCopiedBytesMax) {
    const absl::Span<uint8_t> part = message.view.parts.front();
    parts.append(Own(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(part.data()),
                                               static_cast<Py_ssize_t>(part.size()))));
    return parts;
  }
  for (const absl::Span<uint8_t>& part : message.view.parts) parts.append(ViewOf(message.payload, part));
  return parts;
}

}  // namespace

void DefineMessage(nb::module_& module) {
  nb::class_<Message>(module, "Message", nb::is_final(), "A message as handed to an actor, a call or a port.")
      .def_prop_ro("kind", [](const Message& m) { return static_cast<int>(m.header.kind); })
      .def_prop_ro("payload_kind", [](const Message& m) { return static_cast<int>(m.header.payload_kind); })
      .def_prop_ro("sender", [](const Message& m) { return FromActor(m.header.sender); })
      .def_prop_ro("receiver", [](const Message& m) { return FromActor(m.header.receiver); })
      .def_prop_ro("call_id", [](const Message& m) { return m.header.call_id; })
      .def_prop_ro("port_id", [](const Message& m) { return m.header.port_id; })
      .def_prop_ro("rank", [](const Message& m) { return m.header.rank; })
      .def_prop_ro("is_late", &Message::IsLate)
      .def_rw("cancelled", &Message::cancelled)
      .def_prop_ro("meta", MetaOf)
      .def_prop_ro("meta_bytes",
                   [](const Message& m) {
                     return Own(PyBytes_FromStringAndSize(m.view.meta.data(),
                                                          static_cast<Py_ssize_t>(m.view.meta.size())));
                   })
      .def_prop_ro("parts", PartsOf)
      .def_prop_ro("event",
                   [](const Message& m) { return FromEvent(ValueOrThrow(DecodeFailureEvent(m.view.meta))); });
}

}  // namespace monarch::python
