#include "client/cpp/runtime/inbox.h"

#include <optional>
#include <vector>

#include "client/python/runtime_module/convert.h"
#include "client/python/runtime_module/objects.h"

namespace monarch::python {
namespace {

nb::object TryPop(const PyInbox& self) {
  std::optional<Message> message = self.inbox().TryPop();
  if (!message.has_value()) return nb::none();
  return nb::cast(*std::move(message));
}

PyTargets MakeTargets(nb::handle actors, nb::handle ranks) {
  PyTargets out;
  for (nb::handle actor : actors) out.targets.push_back({ToActor(actor), 0});
  size_t index = 0;
  for (nb::handle rank : ranks) {
    if (index == out.targets.size()) break;
    out.targets[index++].rank = nb::cast<uint32_t>(rank);
  }
  if (index != out.targets.size()) throw nb::value_error("as many ranks as actors");
  return out;
}

}  // namespace

void DefineInbox(nb::module_& module) {
  nb::class_<PyNotifier>(module, "Notifier", nb::is_final(), "Tells an event loop which inboxes have news.")
      .def("take",
           [](const PyNotifier& self) {
             nb::list cookies;
             for (const uint64_t cookie : self.notifier->Take()) cookies.append(nb::int_(cookie));
             return cookies;
           })
      .def("event_fd", [](const PyNotifier& self) { return ValueOrThrow(self.notifier->EventFd()); });

  nb::class_<PyInbox>(module, "Inbox", nb::is_final(), "Messages for one receiver.")
      .def_prop_ro("id", [](const PyInbox& self) { return self.inbox().id(); })
      .def("try_pop", TryPop)
      .def("is_cancelled",
           [](const PyInbox& self, const Message& call) { return self.inbox().IsCancelled(call); })
      .def("finished", [](const PyInbox& self) { return self.inbox().finished(); })
      .def("__len__", [](const PyInbox& self) { return self.inbox().size(); })
      .def("set_any_answer_ends_wait", [](const PyInbox& self) { self.inbox().SetAnyAnswerEndsWait(); })
      .def("set_others_answer", [](const PyInbox& self) { self.inbox().SetOthersAnswer(); })
      .def(
          "set_notifier",
          [](const PyInbox& self, const PyNotifier* notifier, uint64_t cookie) {
            self.inbox().SetNotifier(notifier == nullptr ? nullptr : notifier->notifier, cookie);
          },
          nb::arg("notifier").none(), nb::arg("cookie"));

  nb::class_<PyTargets>(module, "Targets", nb::is_final(), "A prepared list of receivers.")
      .def("__init__", [](PyTargets* self, nb::handle actors,
                          nb::handle ranks) { new (self) PyTargets(MakeTargets(actors, ranks)); })
      .def("__len__", [](const PyTargets& self) { return self.targets.size(); })
      .def("one", [](const PyTargets& self, size_t index) {
        if (index >= self.targets.size()) throw nb::index_error("no such target");
        PyTargets out;
        out.targets.push_back(self.targets[index]);
        return out;
      });
}

}  // namespace monarch::python
