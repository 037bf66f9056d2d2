#include "message/payload.h"

#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "message/bytes.h"

namespace monarch {
namespace {

constexpr size_t kHeadBytes = 8;
constexpr size_t kLengthBytes = 8;
constexpr uint64_t kLargePartBytes = 4096;

uint64_t AlignedFor(uint64_t offset, uint64_t part_length) {
  const uint64_t alignment = part_length >= kLargePartBytes ? 64 : 8;
  return (offset + alignment - 1) & ~(alignment - 1);
}

absl::Status Bad(absl::string_view what, uint64_t found) {
  return absl::InvalidArgumentError(absl::StrCat("payload: ", what, ": ", found));
}

}  // namespace

PayloadWriter::PayloadWriter(std::string_view meta, absl::Span<const absl::Span<const uint8_t>> parts)
    : meta_(meta), parts_(parts), size_(0) {
  MONARCH_CHECK(meta.size() <= kPayloadMetaBytesMax);
  MONARCH_CHECK(parts.size() <= kPayloadPartsMax);
  if (meta.empty() && parts.empty()) return;
  size_ = kHeadBytes + parts.size() * kLengthBytes + meta.size();
  for (const auto& part : parts) size_ = AlignedFor(size_, part.size()) + part.size();
}

void PayloadWriter::WriteTo(uint8_t* out) const {
  if (size_ == 0) return;
  StoreLe<uint32_t>(out, static_cast<uint32_t>(meta_.size()));
  StoreLe<uint32_t>(out + 4, static_cast<uint32_t>(parts_.size()));
  size_t at = kHeadBytes;
  for (const auto& part : parts_) {
    StoreLe<uint64_t>(out + at, part.size());
    at += kLengthBytes;
  }
  if (!meta_.empty()) std::memcpy(out + at, meta_.data(), meta_.size());
  at += meta_.size();
  for (const auto& part : parts_) {
    const size_t begin = AlignedFor(at, part.size());
    std::memset(out + at, 0, begin - at);
    if (!part.empty()) std::memcpy(out + begin, part.data(), part.size());
    at = begin + part.size();
  }
}

absl::StatusOr<PayloadView> PayloadView::Parse(absl::Span<uint8_t> bytes) {
  PayloadView view;
  if (bytes.empty()) return view;
  if (bytes.size() < kHeadBytes) return Bad("truncated, bytes", bytes.size());
  const auto meta_length = LoadLe<uint32_t>(bytes.data());
  const auto count = LoadLe<uint32_t>(bytes.data() + 4);
  // The bytes may lie in memory that the sender can still write: each length is read once, and the compiler
  // may not read it again after the check.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (count > kPayloadPartsMax) return Bad("too many parts", count);
  const size_t table_end = kHeadBytes + size_t{count} * kLengthBytes;
  if (table_end > bytes.size()) return Bad("part count beyond the end", count);
  if (meta_length > bytes.size() - table_end) return Bad("meta length beyond the end", meta_length);
  view.meta = std::string_view(reinterpret_cast<const char*>(bytes.data()) + table_end, meta_length);
  view.parts.reserve(count);
  uint64_t at = table_end + meta_length;
  for (uint32_t i = 0; i < count; ++i) {
    const auto length = LoadLe<uint64_t>(bytes.data() + kHeadBytes + i * kLengthBytes);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    at = AlignedFor(at, length);
    if (at > bytes.size() || length > bytes.size() - at) return Bad("part length beyond the end", length);
    view.parts.push_back(bytes.subspan(at, length));
    at += length;
  }
  if (at != bytes.size()) return Bad("trailing bytes", bytes.size() - at);
  return view;
}

}  // namespace monarch
