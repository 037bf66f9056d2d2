#include "client/python/runtime_module/plain_pickle.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/types/span.h"

namespace monarch::python {
namespace {

// Of pickletools; what pickle.loads reads everywhere.
enum Opcode : uint8_t {
  kProto = 0x80,
  kStop = '.',
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 'J',
  kBinFloat = 'G',
  kShortBinBytes = 'C',
  kBinBytes = 'B',
  kShortBinUnicode = 0x8c,
  kBinUnicode = 'X',
  kEmptyDict = '}',
  kEmptyTuple = ')',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
};
constexpr uint8_t kTupleOf[] = {kEmptyTuple, kTuple1, kTuple2, kTuple3};
constexpr uint8_t kProtocol = 5;
constexpr Py_ssize_t kTupleSizeMax = 3;
// (args, kwargs) is one level, args another.
constexpr int kDepthMax = 3;
// Longer ones are better off with the pickler, which writes an object that occurs twice once.
constexpr size_t kTextBytesMax = 1024;

// Threading: under the GIL.
class PlainPickler {
 public:
  // False if it is not plain; then what was written is of no use.
  bool Write(PyObject* object) {
    Put(kProto);
    Put(kProtocol);
    return WriteObject(object, 0) && Put(kStop);
  }
  nb::object Bytes() const {
    return Own(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(bytes_.data()),
                                         static_cast<Py_ssize_t>(size_)));
  }

 private:
  // Exact types only: a subclass may pickle itself in its own way.
  bool WriteObject(PyObject* object, int depth) {
    if (object == Py_None) return Put(kNone);
    if (object == Py_True) return Put(kNewTrue);
    if (object == Py_False) return Put(kNewFalse);
    if (PyBytes_CheckExact(object)) {
      return PutText(kShortBinBytes, kBinBytes, PyBytes_AsString(object), PyBytes_Size(object));
    }
    if (PyUnicode_CheckExact(object)) return WriteText(object);
    if (PyLong_CheckExact(object)) return WriteInt(object);
    if (PyFloat_CheckExact(object)) return WriteFloat(object);
    if (PyTuple_CheckExact(object)) return WriteTuple(object, depth);
    return PyDict_CheckExact(object) && PyDict_Size(object) == 0 && Put(kEmptyDict);
  }

  bool WriteTuple(PyObject* tuple, int depth) {
    const Py_ssize_t size = PyTuple_Size(tuple);
    if (size > kTupleSizeMax || depth == kDepthMax) return false;
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (!WriteObject(PyTuple_GetItem(tuple, i), depth + 1)) return false;
    }
    return Put(kTupleOf[size]);
  }

  bool WriteText(PyObject* text) {
    Py_ssize_t length = 0;
    const char* data = PyUnicode_AsUTF8AndSize(text, &length);
    if (data == nullptr) PyErr_Clear();  // Lone surrogates.
    return data != nullptr && PutText(kShortBinUnicode, kBinUnicode, data, length);
  }

  bool WriteInt(PyObject* number) {
    int overflow = 0;
    const long value = PyLong_AsLongAndOverflow(number, &overflow);
    using Limits = std::numeric_limits<int32_t>;
    if (overflow != 0 || value < Limits::min() || value > Limits::max()) return false;
    const auto little_endian = static_cast<int32_t>(value);
    return Put(kBinInt) && Put(&little_endian, sizeof(little_endian));
  }

  bool WriteFloat(PyObject* number) {
    const uint64_t big_endian = __builtin_bswap64(std::bit_cast<uint64_t>(PyFloat_AsDouble(number)));
    return Put(kBinFloat) && Put(&big_endian, sizeof(big_endian));
  }

  bool PutText(Opcode short_opcode, Opcode opcode, const char* data, Py_ssize_t length) {
    const auto size = static_cast<size_t>(length);
    if (size > kTextBytesMax) return false;
    const auto little_endian = static_cast<uint32_t>(size);
    const bool is_short = size <= std::numeric_limits<uint8_t>::max();
    return Put(is_short ? short_opcode : opcode) &&
           Put(&little_endian, is_short ? 1 : sizeof(little_endian)) && Put(data, size);
  }

  bool Put(uint8_t byte) { return Put(&byte, 1); }
  bool Put(const void* bytes, size_t size) {
    if (size > bytes_.size() - size_) return false;
    std::memcpy(bytes_.data() + size_, bytes, size);
    size_ += size;
    return true;
  }

  std::array<uint8_t, 4096> bytes_;  // NOLINT: only the first size_ are ever read
  size_t size_ = 0;
};

// Reads what PlainPickler wrote. Threading: under the GIL.
class PlainUnpickler {
 public:
  explicit PlainUnpickler(absl::Span<const uint8_t> bytes) : rest_(bytes) {}

  // Null if there is anything else in it, or anything wrong with it.
  nb::object Read() {
    if (Take(1) != kProto || Take(1) != kProtocol) return {};
    while (!failed_) {
      const auto opcode = static_cast<uint8_t>(Take(1));
      if (opcode == kStop) {
        return !failed_ && rest_.empty() && size_ == 1 ? std::move(stack_[0]) : nb::object();
      }
      ReadObject(opcode);
    }
    return {};
  }

 private:
  void ReadObject(uint8_t opcode) {
    switch (opcode) {
      case kNone:
        return Push(nb::none());
      case kNewTrue:
        return Push(nb::bool_(true));
      case kNewFalse:
        return Push(nb::bool_(false));
      case kBinInt:
        return Push(Own(PyLong_FromLong(static_cast<int32_t>(Take(4)))));
      case kBinFloat:
        return Push(Own(PyFloat_FromDouble(std::bit_cast<double>(__builtin_bswap64(Take(8))))));
      case kShortBinBytes:
      case kBinBytes:
        return ReadBytes(Take(opcode == kBinBytes ? 4 : 1));
      case kShortBinUnicode:
      case kBinUnicode:
        return ReadText(Take(opcode == kBinUnicode ? 4 : 1));
      case kEmptyDict:
        return Push(nb::dict());
      case kEmptyTuple:
        return MakeTuple(0);
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return MakeTuple(opcode - kTuple1 + 1U);
      default:
        failed_ = true;
    }
  }

  // A little-endian number of at most 8 bytes.
  uint64_t Take(size_t size) {
    uint64_t value = 0;
    if (size > rest_.size()) {
      failed_ = true;
      return value;
    }
    std::memcpy(&value, rest_.data(), size);
    rest_.remove_prefix(size);
    return value;
  }

  void ReadBytes(uint64_t size) {
    if (size > rest_.size()) failed_ = true;
    if (failed_) return;
    Push(Own(PyBytes_FromStringAndSize(Chars(), static_cast<Py_ssize_t>(size))));
    rest_.remove_prefix(size);
  }

  void ReadText(uint64_t size) {
    if (size > rest_.size()) failed_ = true;
    if (failed_) return;
    PyObject* text = PyUnicode_DecodeUTF8(Chars(), static_cast<Py_ssize_t>(size), nullptr);
    if (text == nullptr) {
      PyErr_Clear();
      failed_ = true;
      return;
    }
    Push(nb::steal<nb::object>(text));
    rest_.remove_prefix(size);
  }

  void MakeTuple(size_t size) {
    if (size > size_) failed_ = true;
    if (failed_) return;
    const nb::object tuple = Own(PyTuple_New(static_cast<Py_ssize_t>(size)));
    size_ -= size;
    for (size_t i = 0; i < size; ++i) {
      PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), stack_[size_ + i].release().ptr());
    }
    Push(tuple);
  }

  void Push(nb::object object) {
    if (size_ == stack_.size()) failed_ = true;
    if (!failed_) stack_[size_++] = std::move(object);
  }

  const char* Chars() const { return reinterpret_cast<const char*>(rest_.data()); }

  absl::Span<const uint8_t> rest_;
  std::array<nb::object, 16> stack_;
  size_t size_ = 0;
  bool failed_ = false;
};

nb::object LoadsPlain(nb::handle data, nb::handle otherwise) {
  if (PyBytes_CheckExact(data.ptr())) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(PyBytes_AsString(data.ptr()));
    PlainUnpickler unpickler({bytes, static_cast<size_t>(PyBytes_Size(data.ptr()))});
    if (nb::object loaded = unpickler.Read(); loaded.is_valid()) return loaded;
  }
  return otherwise(data);
}

}  // namespace

void DefinePlainPickle(nb::module_& module) {
  module.def("loads_plain", LoadsPlain);
  module.def(
      "dumps_plain",
      [](nb::handle object) {
        PlainPickler pickler;
        return pickler.Write(object.ptr()) ? pickler.Bytes() : nb::none();
      },
      nb::arg("object").none());
}

}  // namespace monarch::python
