#include "client/python/runtime_module/convert.h"

#include <algorithm>
#include <array>
#include <utility>

namespace monarch::python {
namespace {

constexpr size_t kIdBytes = 16;

uint64_t BigEndian(const char* bytes) {
  uint64_t out = 0;
  for (int i = 0; i < 8; ++i) out = out << 8 | static_cast<uint8_t>(bytes[i]);
  return out;
}

void PutBigEndian(uint64_t value, char* bytes) {
  for (int i = 7; i >= 0; --i, value >>= 8) bytes[i] = static_cast<char>(value);
}

uint64_t ToUint64(nb::handle object) {
  const uint64_t value = PyLong_AsUnsignedLongLong(object.ptr());
  if (value == static_cast<uint64_t>(-1) && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}

int64_t ToInt64(nb::handle object) {
  const int64_t value = PyLong_AsLongLong(object.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}

// Borrowed.
PyObject* Item(nb::handle tuple, Py_ssize_t index) {
  PyObject* item = PyTuple_GetItem(tuple.ptr(), index);
  if (item == nullptr) throw nb::python_error();
  return item;
}

nb::object FromHost(const HostId& host, std::array<char, kIdBytes>& bytes) {
  PutBigEndian(host.high, bytes.data());
  PutBigEndian(host.low, bytes.data() + 8);
  return Own(PyBytes_FromStringAndSize(bytes.data(), kIdBytes));
}

FailureKind ToKind(const std::string& name) {
  for (int kind = 0; kind <= static_cast<int>(FailureKind::kStartFailed); ++kind) {
    if (FailureKindName(static_cast<FailureKind>(kind)) == name) return static_cast<FailureKind>(kind);
  }
  throw nb::value_error(("no such kind of failure: " + name).c_str());
}

// Borrowed; null if the key is missing or None.
PyObject* Get(nb::handle dict, const char* key) {
  PyObject* item = PyDict_GetItemString(dict.ptr(), key);
  return item == Py_None ? nullptr : item;
}

void GetText(nb::handle dict, const char* key, std::string& out) {
  if (PyObject* item = Get(dict, key)) out = ToText(item);
}

template <typename T>
void GetInt(nb::handle dict, const char* key, T& out) {
  if (PyObject* item = Get(dict, key)) out = static_cast<T>(ToInt64(item));
}

struct Format {
  std::string_view dtype;
  const char* format;
};
// memoryview has no half floats: their bits.
constexpr Format kFormats[] = {{"f2", "H"}, {"f4", "f"}, {"f8", "d"}, {"i1", "b"}, {"i2", "h"}, {"i4", "i"},
                               {"i8", "q"}, {"u1", "B"}, {"u2", "H"}, {"u4", "I"}, {"u8", "Q"}, {"b1", "?"}};

nb::object FromArray(const Value::Array& array) {
  const nb::object bytes =
      Own(PyBytes_FromStringAndSize(array.data.data(), static_cast<Py_ssize_t>(array.data.size())));
  const nb::object view = Own(PyMemoryView_FromObject(bytes.ptr()));
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                   [&](const Format& format) { return format.dtype == array.dtype; });
  if (found == std::end(kFormats)) throw nb::value_error("an array of an unknown type");
  nb::list shape;
  for (const uint64_t size : array.shape) shape.append(nb::int_(size));
  return view.attr("cast")(found->format, shape);
}

}  // namespace

nb::object FromProc(const ProcAddress& address) {
  std::array<char, kIdBytes> bytes;
  const nb::object host = FromHost(address.host, bytes);
  return Own(
      Py_BuildValue("(OKI)", host.ptr(), static_cast<unsigned long long>(address.proc), address.incarnation));
}

nb::object FromActor(const ActorAddress& address) {
  std::array<char, kIdBytes> bytes;
  const nb::object host = FromHost(address.proc.host, bytes);
  return Own(Py_BuildValue("(OKIK)", host.ptr(), static_cast<unsigned long long>(address.proc.proc),
                           address.proc.incarnation, static_cast<unsigned long long>(address.actor)));
}

ProcAddress ToProc(nb::handle object) {
  ProcAddress address;
  const std::string host = ToBytes(Item(object, 0));
  if (host.size() != kIdBytes) throw nb::value_error("a host is 16 bytes");
  address.host.high = BigEndian(host.data());
  address.host.low = BigEndian(host.data() + 8);
  address.proc = ToUint64(Item(object, 1));
  address.incarnation = static_cast<uint32_t>(ToUint64(Item(object, 2)));
  return address;
}

ActorAddress ToActor(nb::handle object) { return {ToProc(object), ToUint64(Item(object, 3))}; }

nb::object FromText(const std::string& text) {
  return Own(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

std::string ToText(nb::handle object) {
  // Lone surrogates, as in paths that are not UTF-8, must not make a report fail.
  const nb::object bytes = Own(PyUnicode_AsEncodedString(object.ptr(), "utf-8", "backslashreplace"));
  return ToBytes(bytes);
}

std::string ToBytes(nb::handle object) {
  char* data = nullptr;
  Py_ssize_t length = 0;
  if (PyBytes_AsStringAndSize(object.ptr(), &data, &length) != 0) throw nb::python_error();
  return std::string(data, static_cast<size_t>(length));
}

std::vector<ProcAddress> ToProcs(nb::handle sequence) {
  std::vector<ProcAddress> procs;
  for (nb::handle proc : sequence) procs.push_back(ToProc(proc));
  return procs;
}

Shape ToShape(nb::handle labels, nb::handle sizes) {
  std::vector<std::string> names;
  std::vector<size_t> numbers;
  for (nb::handle label : labels) names.push_back(ToText(label));
  for (nb::handle size : sizes) numbers.push_back(ToUint64(size));
  NDSlice slice = ValueOrThrow(NDSlice::RowMajor(std::move(numbers)));
  return ValueOrThrow(Shape::Create(std::move(names), std::move(slice)));
}

nb::object FromEvent(const FailureEvent& event) {
  nb::list cause;
  for (const FailureEvent& inner : event.cause) cause.append(FromEvent(inner));
  nb::dict out;
  out["kind"] = FromText(std::string(FailureKindName(event.kind)));
  out["mesh"] = FromText(event.mesh);
  out["rank"] = nb::int_(event.rank);
  out["rank_label"] = FromText(event.rank_label);
  out["actor_class"] = FromText(event.actor_class);
  out["actor"] = FromActor(event.actor);
  out["host_name"] = FromText(event.host_name);
  out["pid"] = nb::int_(event.pid);
  out["code"] = nb::int_(event.code);
  out["unix_ms"] = nb::int_(event.unix_ms);
  out["phase"] = FromText(event.phase);
  out["reason"] = FromText(event.reason);
  out["stderr_tail"] = FromText(event.stderr_tail);
  out["traceback"] = FromText(event.traceback);
  out["backtrace"] = FromText(event.backtrace);
  out["cause"] = cause;
  out["summary"] = FromText(event.Summary());
  return out;
}

FailureEvent ToEvent(nb::handle dict) {
  if (!PyDict_Check(dict.ptr())) throw nb::type_error("a failure event is a dict");
  FailureEvent event;
  std::string kind;
  GetText(dict, "kind", kind);
  if (!kind.empty()) event.kind = ToKind(kind);
  GetText(dict, "mesh", event.mesh);
  GetInt(dict, "rank", event.rank);
  GetText(dict, "rank_label", event.rank_label);
  GetText(dict, "actor_class", event.actor_class);
  if (PyObject* actor = Get(dict, "actor")) event.actor = ToActor(actor);
  GetText(dict, "host_name", event.host_name);
  GetInt(dict, "pid", event.pid);
  GetInt(dict, "code", event.code);
  GetInt(dict, "unix_ms", event.unix_ms);
  GetText(dict, "phase", event.phase);
  GetText(dict, "reason", event.reason);
  GetText(dict, "stderr_tail", event.stderr_tail);
  GetText(dict, "traceback", event.traceback);
  GetText(dict, "backtrace", event.backtrace);
  if (PyObject* cause = Get(dict, "cause")) {
    for (nb::handle inner : nb::borrow<nb::object>(cause)) event.cause.push_back(ToEvent(inner));
  }
  return event;
}

nb::object FromValue(const Value& value) {
  switch (value.type()) {
    case Value::Type::kNil:
      return nb::none();
    case Value::Type::kBool:
      return nb::bool_(*value.AsBool());
    case Value::Type::kInt:
      return nb::int_(*value.AsInt());
    case Value::Type::kFloat:
      return nb::float_(*value.AsFloat());
    case Value::Type::kString:
      return FromText(*value.string());
    case Value::Type::kBytes: {
      const std::string& data = value.bytes()->data;
      return Own(PyBytes_FromStringAndSize(data.data(), static_cast<Py_ssize_t>(data.size())));
    }
    case Value::Type::kList: {
      nb::list out;
      for (const Value& item : *value.list()) out.append(FromValue(item));
      return out;
    }
    case Value::Type::kMap: {
      nb::dict out;
      for (const auto& [key, item] : *value.map()) out[FromText(key)] = FromValue(item);
      return out;
    }
    case Value::Type::kArray:
      return FromArray(*value.array());
  }
  return nb::none();
}

Value ToMessageValue(nb::handle object, int depth) {
  // A list may hold itself.
  if (depth > kValueDepthMax) throw nb::value_error("not a value: nested too deep, or in itself");
  PyObject* const ptr = object.ptr();
  if (ptr == Py_None) return Value();
  if (ptr == Py_True || ptr == Py_False) return Value(ptr == Py_True);
  if (PyLong_Check(ptr)) return Value(ToInt64(object));
  if (PyFloat_Check(ptr)) return Value(PyFloat_AsDouble(ptr));
  if (PyUnicode_Check(ptr)) return Value(ToText(object));
  if (PyBytes_Check(ptr)) return Value(Value::Bytes{ToBytes(object)});
  if (PyList_Check(ptr) || PyTuple_Check(ptr)) {
    Value::List list;
    for (nb::handle item : nb::borrow<nb::object>(ptr)) list.push_back(ToMessageValue(item, depth + 1));
    return Value(std::move(list));
  }
  if (PyDict_Check(ptr)) {
    Value::Map map;
    for (auto [key, item] : nb::borrow<nb::dict>(ptr))
      map.emplace(ToText(key), ToMessageValue(item, depth + 1));
    return Value(std::move(map));
  }
  throw nb::type_error("not a value: None, bool, int, float, str, bytes, list, tuple and dict are");
}

}  // namespace monarch::python
