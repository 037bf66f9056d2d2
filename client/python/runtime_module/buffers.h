#pragma once

#include <memory>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "client/cpp/runtime/inbox.h"
#include "client/python/runtime_module/python.h"

namespace monarch::python {

// One part of a received payload: exports the bytes where they lie (the buffer protocol) and keeps them
// alive. Threading: under the GIL.
struct Part {
  std::shared_ptr<PayloadBytes> owner;
  absl::Span<uint8_t> bytes;
};

void DefinePart(nb::module_& module);
// A memoryview over a new Part; read-only if other receivers see the same bytes.
nb::object ViewOf(std::shared_ptr<PayloadBytes> owner, absl::Span<uint8_t> bytes);

// Python's Py_buffer. The stable ABI has it from 3.11 on; its layout has been this one since 3.3.
struct BufferView {
  void* data;
  PyObject* object;
  Py_ssize_t length;
  Py_ssize_t item_size;
  int read_only;
  int dimensions;
  char* format;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  Py_ssize_t* suboffsets;
  void* internal;
};

// The bytes of objects with the buffer protocol, held in place while they are sent.
// Threading: made and destroyed under the GIL; spans may be read without it.
class HeldBuffers {
 public:
  // Raises BufferError for what is not contiguous, TypeError for what has no buffer.
  explicit HeldBuffers(nb::handle sequence);
  ~HeldBuffers();
  HeldBuffers(const HeldBuffers&) = delete;
  HeldBuffers& operator=(const HeldBuffers&) = delete;
  absl::Span<const absl::Span<const uint8_t>> spans() const { return spans_; }

 private:
  void ReleaseAll();
  // A plain call has one.
  absl::InlinedVector<BufferView, 1> views_;
  absl::InlinedVector<absl::Span<const uint8_t>, 1> spans_;
};

}  // namespace monarch::python
