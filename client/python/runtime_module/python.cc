#include "client/python/runtime_module/python.h"

#include <cxxabi.h>
#include <unistd.h>

namespace monarch::python {
namespace {

// Held by the module too; static because exceptions are raised where no module is at hand.
PyObject* status_error = nullptr;

}  // namespace

ReleasedGil::~ReleasedGil() {
  try {
    PyEval_RestoreThread(state_);
  } catch (const abi::__forced_unwind&) {
    while (true) pause();
  }
}

AcquiredGil::AcquiredGil() {
  try {
    state_ = PyGILState_Ensure();
  } catch (const abi::__forced_unwind&) {
    while (true) pause();
  }
}

nb::object Own(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal<nb::object>(object);
}

void DefineStatusError(nb::module_& module) {
  status_error = PyErr_NewExceptionWithDoc("monarch._runtime.StatusError",
                                           "A status that is not OK. `code` is its name, `message` its text.",
                                           PyExc_RuntimeError, nullptr);
  if (status_error == nullptr) throw nb::python_error();
  module.attr("StatusError") = nb::borrow<nb::object>(status_error);
}

void ThrowStatus(const absl::Status& status) {
  const std::string code = absl::StatusCodeToString(status.code());
  const std::string message(status.message());
  nb::object error = Own(PyObject_CallFunction(status_error, "s", (code + ": " + message).c_str()));
  error.attr("code") = nb::str(code.c_str(), code.size());
  error.attr("message") =
      Own(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
  PyErr_SetObject(status_error, error.ptr());
  throw nb::python_error();
}

}  // namespace monarch::python
