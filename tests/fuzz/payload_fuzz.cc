#include <vector>

#include "base/check.h"
#include "message/payload.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace monarch;  // NOLINT: the function is outside by its name
  std::vector<uint8_t> bytes(data, data + size);
  const auto view = PayloadView::Parse(absl::MakeSpan(bytes));
  if (!view.ok()) {
    MONARCH_CHECK(view.status().code() == absl::StatusCode::kInvalidArgument);
    return 0;
  }
  const uint8_t* at = bytes.data();
  const uint8_t* end = at + size;
  if (!view->meta.empty()) {
    const auto* meta = reinterpret_cast<const uint8_t*>(view->meta.data());
    MONARCH_CHECK(meta >= at && meta + view->meta.size() <= end);
    at = meta + view->meta.size();
  }
  std::vector<absl::Span<const uint8_t>> parts;
  for (const auto& part : view->parts) {
    MONARCH_CHECK(part.data() >= at && part.data() + part.size() <= end);
    at = part.data() + part.size();
    parts.emplace_back(part.data(), part.size());
  }
  if (view->meta.empty() && parts.empty()) return 0;
  // Written again it has the same layout; only the bytes in gaps may differ.
  const PayloadWriter writer(view->meta, parts);
  MONARCH_CHECK(writer.size() == size);
  std::vector<uint8_t> again(writer.size());
  writer.WriteTo(again.data());
  const auto view_again = PayloadView::Parse(absl::MakeSpan(again));
  MONARCH_CHECK(view_again.ok());
  MONARCH_CHECK(view_again->meta == view->meta);
  MONARCH_CHECK(view_again->parts.size() == parts.size());
  for (size_t i = 0; i < parts.size(); ++i) MONARCH_CHECK(view_again->parts[i] == parts[i]);
  return 0;
}
