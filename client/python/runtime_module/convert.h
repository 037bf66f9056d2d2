#pragma once

#include <string>
#include <vector>

#include "base/failure_event.h"
#include "base/ids.h"
#include "base/ndslice.h"
#include "client/python/runtime_module/python.h"
#include "message/value.h"

namespace monarch::python {

// Between Python objects and the plain types of base/ and message/. All need the GIL; a Python object of the
// wrong kind raises TypeError or ValueError.

// (host, proc, incarnation) and (host, proc, incarnation, actor).
nb::object FromProc(const ProcAddress& address);
nb::object FromActor(const ActorAddress& address);
ProcAddress ToProc(nb::handle object);
ActorAddress ToActor(nb::handle object);

// Text that may come from other processes: what is not UTF-8 is replaced.
nb::object FromText(const std::string& text);
std::string ToText(nb::handle object);
std::string ToBytes(nb::handle object);
std::vector<ProcAddress> ToProcs(nb::handle sequence);
Shape ToShape(nb::handle labels, nb::handle sizes);

// A dict with the event's fields, `kind` as its name, `cause` a list of such dicts, and `summary`, its first
// line.
nb::object FromEvent(const FailureEvent& event);
// Missing keys take the fields' defaults.
FailureEvent ToEvent(nb::handle dict);

// nil None, list list, map dict, array a memoryview of its shape.
nb::object FromValue(const Value& value);
Value ToMessageValue(nb::handle object, int depth = 0);

}  // namespace monarch::python
