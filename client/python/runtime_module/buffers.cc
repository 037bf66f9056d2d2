#include "client/python/runtime_module/buffers.h"

#include <utility>

// Exported by every interpreter since 3.3, but declared for the stable ABI from 3.11 on; hence by their
// symbols.
extern "C" {
int MonarchGetBuffer(PyObject* object, monarch::python::BufferView* view,
                     int flags) __asm__("PyObject_GetBuffer");
void MonarchReleaseBuffer(monarch::python::BufferView* view) __asm__("PyBuffer_Release");
int MonarchFillInfo(monarch::python::BufferView* view, PyObject* object, void* data, Py_ssize_t length,
                    int read_only, int flags) __asm__("PyBuffer_FillInfo");
}

namespace monarch::python {
namespace {

// Py_bf_getbuffer; taken by PyType_FromSpec since 3.9.
constexpr int kGetBufferSlot = 1;
constexpr int kSimple = 0;  // PyBUF_SIMPLE: contiguous bytes

int GetPartBuffer(PyObject* self, BufferView* view, int flags) {
  // Gives TypeError's place to a pending error if `self` is no Part, which only a bug can make.
  const Part* part = nb::inst_ptr<Part>(self);
  return MonarchFillInfo(view, self, part->bytes.data(), static_cast<Py_ssize_t>(part->bytes.size()),
                         part->owner != nullptr && part->owner->shared() ? 1 : 0, flags);
}

PyType_Slot part_slots[] = {{kGetBufferSlot, reinterpret_cast<void*>(GetPartBuffer)}, {0, nullptr}};

}  // namespace

void DefinePart(nb::module_& module) {
  nb::class_<Part>(module, "Part", nb::type_slots(part_slots), nb::is_final(),
                   "One part of a received payload; supports the buffer protocol.")
      .def("__len__", [](const Part& part) { return part.bytes.size(); });
}

nb::object ViewOf(std::shared_ptr<PayloadBytes> owner, absl::Span<uint8_t> bytes) {
  const nb::object part = nb::cast(Part{std::move(owner), bytes});
  return Own(PyMemoryView_FromObject(part.ptr()));
}

HeldBuffers::HeldBuffers(nb::handle sequence) {
  const Py_ssize_t count = PySequence_Size(sequence.ptr());
  if (count < 0) throw nb::python_error();
  views_.reserve(static_cast<size_t>(count));
  spans_.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_GetItem(sequence.ptr(), i);
    BufferView view{};
    const int got = item == nullptr ? -1 : MonarchGetBuffer(item, &view, kSimple);
    Py_XDECREF(item);  // The view holds it.
    if (got != 0) {
      ReleaseAll();
      throw nb::python_error();
    }
    views_.push_back(view);
    spans_.emplace_back(static_cast<const uint8_t*>(view.data), static_cast<size_t>(view.length));
  }
}

HeldBuffers::~HeldBuffers() { ReleaseAll(); }

void HeldBuffers::ReleaseAll() {
  for (BufferView& view : views_) MonarchReleaseBuffer(&view);
  views_.clear();
}

}  // namespace monarch::python
