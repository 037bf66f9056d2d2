#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "message/utf8.h"
#include "message/value.h"

namespace monarch {
namespace {

void AppendEscaped(std::string* out, uint8_t byte) { absl::StrAppendFormat(out, "\\x%02x", byte); }

// What text and bytes escape alike. False: the byte is not one of these.
bool AppendCommonEscape(std::string* out, char c, char quote) {
  switch (c) {
    case '\\':
      *out += "\\\\";
      return true;
    case '\n':
      *out += "\\n";
      return true;
    case '\r':
      *out += "\\r";
      return true;
    case '\t':
      *out += "\\t";
      return true;
    default:
      break;
  }
  if (c == quote) {
    *out += '\\';
    *out += c;
    return true;
  }
  const auto byte = static_cast<uint8_t>(c);
  if (byte < 0x20 || byte == 0x7F) {
    AppendEscaped(out, byte);
    return true;
  }
  return false;
}

char QuoteFor(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  return has_single && !has_double ? '"' : '\'';
}

void AppendText(std::string* out, std::string_view text) {
  const char quote = QuoteFor(text);
  *out += quote;
  while (!text.empty()) {
    const size_t length = Utf8CharacterLength(text);
    if (length == 0) {
      AppendEscaped(out, static_cast<uint8_t>(text[0]));
      text.remove_prefix(1);
      continue;
    }
    // U+0080 to U+009F are control characters: a log must not carry them to a terminal.
    if (length == 2 && text[0] == '\xC2' && static_cast<uint8_t>(text[1]) < 0xA0) {
      AppendEscaped(out, static_cast<uint8_t>(text[1]));
    } else if (length > 1 || !AppendCommonEscape(out, text[0], quote)) {
      *out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  *out += quote;
}

void AppendBytes(std::string* out, std::string_view bytes) {
  const char quote = QuoteFor(bytes);
  *out += 'b';
  *out += quote;
  for (char c : bytes) {
    if (AppendCommonEscape(out, c, quote)) continue;
    if (static_cast<uint8_t>(c) >= 0x80) {
      AppendEscaped(out, static_cast<uint8_t>(c));
    } else {
      *out += c;
    }
  }
  *out += quote;
}

// The shortest digits that read back as the same number, laid out as Python does: with an exponent only below
// 1e-4 and from 1e16 on.
void AppendFloat(std::string* out, double number) {
  if (std::isnan(number)) {
    *out += "nan";
    return;
  }
  if (std::isinf(number)) {
    *out += number < 0 ? "-inf" : "inf";
    return;
  }
  char buffer[64];
  const auto scientific =
      std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific);
  *scientific.ptr = '\0';
  const int exponent = std::atoi(std::string_view(buffer).find('e') + buffer + 1);
  if (exponent < -4 || exponent >= 16) {
    out->append(buffer, scientific.ptr);
    return;
  }
  const auto fixed = std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::fixed);
  const std::string_view digits(buffer, fixed.ptr - buffer);
  *out += digits;
  if (digits.find('.') == std::string_view::npos) *out += ".0";
}

// Without the data: it may be large, and logs are for people.
void AppendArray(std::string* out, const Value::Array& array) {
  *out += "array(shape=(";
  for (size_t i = 0; i < array.shape.size(); ++i) {
    absl::StrAppend(out, i == 0 ? "" : " ", array.shape[i], i + 1 < array.shape.size() ? "," : "");
  }
  absl::StrAppend(out, array.shape.size() == 1 ? "," : "", "), dtype=");
  AppendText(out, array.dtype);
  *out += ')';
}

void AppendRepr(std::string* out, const Value& value) {
  switch (value.type()) {
    case Value::Type::kNil:
      *out += "None";
      return;
    case Value::Type::kBool:
      *out += *value.AsBool() ? "True" : "False";
      return;
    case Value::Type::kInt:
      absl::StrAppend(out, *value.AsInt());
      return;
    case Value::Type::kFloat:
      AppendFloat(out, *value.AsFloat());
      return;
    case Value::Type::kString:
      AppendText(out, *value.string());
      return;
    case Value::Type::kBytes:
      AppendBytes(out, value.bytes()->data);
      return;
    case Value::Type::kArray:
      AppendArray(out, *value.array());
      return;
    case Value::Type::kList: {
      std::string_view separator = "[";
      for (const Value& element : *value.list()) {
        *out += separator;
        AppendRepr(out, element);
        separator = ", ";
      }
      *out += value.list()->empty() ? "[]" : "]";
      return;
    }
    case Value::Type::kMap: {
      std::string_view separator = "{";
      for (const auto& [key, element] : *value.map()) {
        *out += separator;
        AppendText(out, key);
        *out += ": ";
        AppendRepr(out, element);
        separator = ", ";
      }
      *out += value.map()->empty() ? "{}" : "}";
      return;
    }
  }
}

}  // namespace

std::string Value::ToString() const {
  std::string out;
  AppendRepr(&out, *this);
  return out;
}

}  // namespace monarch
