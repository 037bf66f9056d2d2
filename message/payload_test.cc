#include "message/payload.h"

#include <catch2/catch.hpp>
#include <limits>

#include "absl/strings/escaping.h"
#include "message/bytes.h"

namespace monarch {
namespace {

std::vector<uint8_t> Write(std::string_view meta, const std::vector<std::string>& parts) {
  std::vector<absl::Span<const uint8_t>> spans;
  for (const std::string& part : parts) {
    spans.emplace_back(reinterpret_cast<const uint8_t*>(part.data()), part.size());
  }
  const PayloadWriter writer(meta, spans);
  std::vector<uint8_t> out(writer.size(), 0xEE);
  writer.WriteTo(out.data());
  return out;
}

std::string PartText(const PayloadView& view, size_t i) {
  return std::string(reinterpret_cast<const char*>(view.parts[i].data()), view.parts[i].size());
}

void CheckRefused(std::vector<uint8_t> bytes) {
  const auto view = PayloadView::Parse(absl::MakeSpan(bytes));
  REQUIRE_FALSE(view.ok());
  CHECK(view.status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("PayloadBytesAreGolden") {
  const std::vector<uint8_t> bytes = Write("abc", {"xy", std::string(4096, 'p')});
  REQUIRE(bytes.size() == 64 + 4096);
  CHECK(absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), 66}) ==
        "030000000200000002000000000000000010000000000000616263000000000078790000000000000000000000000000"
        "000000000000000000000000000000007070");
}

TEST_CASE("PayloadRoundTrips") {
  const std::vector<std::vector<std::string>> cases = {{},
                                                       {""},
                                                       {"", "", "x"},
                                                       {"abcde", ""},
                                                       {std::string(4095, 'a'), std::string(4096, 'b'), "c"},
                                                       {std::string(100'000, 'd'), std::string(5000, 'e')}};
  for (const auto& parts : cases) {
    std::vector<uint8_t> bytes = Write("meta!", parts);
    const auto view = PayloadView::Parse(absl::MakeSpan(bytes));
    REQUIRE(view.ok());
    CHECK(view->meta == "meta!");
    REQUIRE(view->parts.size() == parts.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      CHECK(PartText(*view, i) == parts[i]);
      const size_t at = view->parts[i].data() - bytes.data();
      CHECK(at % (parts[i].size() >= 4096 ? 64 : 8) == 0);
    }
  }
}

TEST_CASE("PayloadOfNothingIsEmpty") {
  CHECK(PayloadWriter("", {}).size() == 0);
  const auto view = PayloadView::Parse({});
  REQUIRE(view.ok());
  CHECK(view->meta.empty());
  CHECK(view->parts.empty());
  // The same, spelled out.
  std::vector<uint8_t> zeros(8);
  CHECK(PayloadView::Parse(absl::MakeSpan(zeros)).ok());
}

TEST_CASE("PayloadRefusesEveryTruncation") {
  const std::vector<uint8_t> bytes = Write("meta", {"abc", std::string(4096, 'b')});
  for (size_t size = 1; size < bytes.size(); ++size) CheckRefused({bytes.begin(), bytes.begin() + size});
}

TEST_CASE("PayloadRefusesTrailingBytes") {
  std::vector<uint8_t> bytes = Write("meta", {"abc"});
  bytes.push_back(0);
  CheckRefused(bytes);
}

TEST_CASE("PayloadRefusesAbsurdCountsAndLengths") {
  const std::vector<uint8_t> good = Write("meta", {"abc", "def"});
  auto with_u32 = [&](size_t at, uint32_t value) {
    std::vector<uint8_t> bytes = good;
    StoreLe<uint32_t>(bytes.data() + at, value);
    return bytes;
  };
  auto with_u64 = [&](size_t at, uint64_t value) {
    std::vector<uint8_t> bytes = good;
    StoreLe<uint64_t>(bytes.data() + at, value);
    return bytes;
  };
  CheckRefused(with_u32(0, 0xFFFFFFFF));
  CheckRefused(with_u32(0, 1000));
  CheckRefused(with_u32(4, 0xFFFFFFFF));
  CheckRefused(with_u32(4, 1000));
  CheckRefused(with_u64(8, 1000));
  CheckRefused(with_u64(16, 1000));
  // Sums that would wrap around.
  CheckRefused(with_u64(8, std::numeric_limits<uint64_t>::max()));
  CheckRefused(with_u64(8, std::numeric_limits<uint64_t>::max() - 40));
  CheckRefused(with_u64(16, std::numeric_limits<uint64_t>::max() - 47));
}

TEST_CASE("PayloadHoldsAtMost65536Parts") {
  std::vector<uint8_t> bytes(8 + 8 * kPayloadPartsMax);
  StoreLe<uint32_t>(bytes.data() + 4, kPayloadPartsMax);
  const auto view = PayloadView::Parse(absl::MakeSpan(bytes));
  REQUIRE(view.ok());
  CHECK(view->parts.size() == kPayloadPartsMax);
  bytes.resize(bytes.size() + 8);
  StoreLe<uint32_t>(bytes.data() + 4, kPayloadPartsMax + 1);
  CheckRefused(bytes);
}

}  // namespace
}  // namespace monarch
