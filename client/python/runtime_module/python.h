#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace monarch::python {

namespace nb = nanobind;

// Gives the interpreter's lock away for a scope. A thread that wants it back when the interpreter is ending
// gets none: CPython before 3.14 unwinds it instead, which no C++ frame survives, so it stays here until the
// process is gone. Threading: confined to the thread that made it, which holds the lock.
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  ~ReleasedGil();
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

 private:
  PyThreadState* const state_;
};

// Takes the interpreter's lock for a scope, on a thread that may never have had it. At the interpreter's end
// as above. Threading: confined to the thread that made it.
class AcquiredGil {
 public:
  AcquiredGil();
  ~AcquiredGil() { PyGILState_Release(state_); }
  AcquiredGil(const AcquiredGil&) = delete;
  AcquiredGil& operator=(const AcquiredGil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Owns a new reference, as the C API returns it; null is the pending Python error.
nb::object Own(PyObject* object);

// Makes the module's StatusError; once, before anything can fail.
void DefineStatusError(nb::module_& module);
// Raises StatusError with the status' code and message. The GIL must be held.
[[noreturn]] void ThrowStatus(const absl::Status& status);
inline void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) ThrowStatus(status);
}
template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  if (!value.ok()) ThrowStatus(value.status());
  return *std::move(value);
}

}  // namespace monarch::python
