#include "base/ndslice.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace monarch {
namespace {

enum class Strides { kRectangular, kOrdered };

absl::Status Invalid(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("slice: ", why));
}

// Dimensions by stride, the largest first. Of equal strides, which only a dimension of size 1 can have, that
// one comes last, where it takes no part of a rank.
std::vector<size_t> DimsByStride(const std::vector<size_t>& sizes, const std::vector<size_t>& strides) {
  std::vector<size_t> dims(sizes.size());
  std::iota(dims.begin(), dims.end(), size_t{0});
  std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) {
    return std::pair(strides[a], sizes[a]) > std::pair(strides[b], sizes[b]);
  });
  return dims;
}

// Each size at least 1; the number of ranks and the largest rank fit a size_t.
absl::Status CheckBounds(size_t offset, const std::vector<size_t>& sizes,
                         const std::vector<size_t>& strides) {
  if (sizes.size() != strides.size()) {
    return Invalid(absl::StrCat(sizes.size(), " sizes but ", strides.size(), " strides"));
  }
  size_t count = 1;
  size_t last = offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return Invalid(absl::StrCat("size of dimension ", i, " is 0"));
    size_t reach = 0;
    if (__builtin_mul_overflow(count, sizes[i], &count) ||
        __builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return Invalid("too large");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStrides(Strides rule, const std::vector<size_t>& sizes,
                          const std::vector<size_t>& strides) {
  std::vector<size_t> dims = DimsByStride(sizes, strides);
  std::erase_if(dims, [&](size_t dim) { return sizes[dim] == 1; });
  size_t reach = 0;    // the largest sum the dimensions so far can give
  size_t smaller = 1;  // the stride before
  size_t extent = 1;   // and what its dimension covers
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
    const size_t stride = strides[*dim];
    if (stride <= reach) return Invalid("strides are too small: two coordinates give one rank");
    if (rule == Strides::kRectangular && (stride % smaller != 0 || stride < extent)) {
      return Invalid("strides are not rectangular");
    }
    reach += (sizes[*dim] - 1) * stride;
    smaller = stride;
    // Past the end of the numbers nothing larger can follow, and the bounds have ruled out that something
    // does.
    if (__builtin_mul_overflow(sizes[*dim], stride, &extent)) extent = SIZE_MAX;
  }
  return absl::OkStatus();
}

absl::Status CheckSlice(Strides rule, size_t offset, const std::vector<size_t>& sizes,
                        const std::vector<size_t>& strides) {
  MONARCH_RETURN_IF_ERROR(CheckBounds(offset, sizes, strides));
  return CheckStrides(rule, sizes, strides);
}

}  // namespace

NDSlice::NDSlice(size_t offset, std::vector<size_t> sizes, std::vector<size_t> strides)
    : offset_(offset), sizes_(std::move(sizes)), strides_(std::move(strides)) {}

absl::StatusOr<NDSlice> NDSlice::Create(size_t offset, std::vector<size_t> sizes,
                                        std::vector<size_t> strides) {
  MONARCH_RETURN_IF_ERROR(CheckSlice(Strides::kRectangular, offset, sizes, strides));
  return NDSlice(offset, std::move(sizes), std::move(strides));
}

absl::StatusOr<NDSlice> NDSlice::Restore(size_t offset, std::vector<size_t> sizes,
                                         std::vector<size_t> strides) {
  MONARCH_RETURN_IF_ERROR(CheckSlice(Strides::kOrdered, offset, sizes, strides));
  return NDSlice(offset, std::move(sizes), std::move(strides));
}

absl::StatusOr<NDSlice> NDSlice::RowMajor(std::vector<size_t> sizes, size_t offset) {
  std::vector<size_t> strides(sizes.size());
  size_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    if (__builtin_mul_overflow(stride, sizes[i], &stride)) return Invalid("too large");
  }
  return Create(offset, std::move(sizes), std::move(strides));
}

size_t NDSlice::size() const {
  return std::accumulate(sizes_.begin(), sizes_.end(), size_t{1}, std::multiplies<size_t>());
}

absl::StatusOr<size_t> NDSlice::RankAt(size_t index) const {
  const size_t count = size();
  if (index >= count) return absl::OutOfRangeError(absl::StrCat("slice: index ", index, " of ", count));
  size_t rank = offset_;
  for (size_t i = sizes_.size(); i-- > 0;) {
    rank += index % sizes_[i] * strides_[i];
    index /= sizes_[i];
  }
  return rank;
}

absl::StatusOr<size_t> NDSlice::RankOf(absl::Span<const size_t> coordinates) const {
  if (coordinates.size() != sizes_.size()) {
    return Invalid(absl::StrCat(coordinates.size(), " coordinates for ", sizes_.size(), " dimensions"));
  }
  size_t rank = offset_;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (coordinates[i] >= sizes_[i]) {
      return absl::OutOfRangeError(
          absl::StrCat("slice: coordinate ", coordinates[i], " of dimension ", i, " with size ", sizes_[i]));
    }
    rank += coordinates[i] * strides_[i];
  }
  return rank;
}

absl::StatusOr<std::vector<size_t>> NDSlice::CoordinatesOf(size_t rank) const {
  const absl::Status missing =
      absl::NotFoundError(absl::StrCat("slice: rank ", rank, " is not in ", ToString()));
  if (rank < offset_) return missing;
  size_t rest = rank - offset_;
  std::vector<size_t> coordinates(sizes_.size(), 0);
  // A stride is larger than all that smaller ones can reach, so the largest part that fits is the only
  // choice.
  for (const size_t dim : DimsByStride(sizes_, strides_)) {
    if (sizes_[dim] == 1) continue;
    coordinates[dim] = rest / strides_[dim];
    if (coordinates[dim] >= sizes_[dim]) return missing;
    rest %= strides_[dim];
  }
  if (rest != 0) return missing;
  return coordinates;
}

absl::StatusOr<size_t> NDSlice::IndexOf(size_t rank) const {
  MONARCH_ASSIGN_OR_RETURN(const std::vector<size_t> coordinates, CoordinatesOf(rank));
  size_t index = 0;
  for (size_t i = 0; i < sizes_.size(); ++i) index = index * sizes_[i] + coordinates[i];
  return index;
}

std::vector<size_t> NDSlice::Ranks() const {
  std::vector<size_t> ranks = {offset_};
  ranks.reserve(size());
  // Each dimension, the last first, repeats what the inner ones gave.
  for (size_t i = sizes_.size(); i-- > 0;) {
    const size_t inner = ranks.size();
    for (size_t c = 1; c < sizes_[i]; ++c) {
      for (size_t k = 0; k < inner; ++k) ranks.push_back(ranks[k] + c * strides_[i]);
    }
  }
  return ranks;
}

absl::StatusOr<NDSlice> NDSlice::At(size_t dim, size_t index) const {
  if (dim >= sizes_.size()) {
    return absl::OutOfRangeError(absl::StrCat("slice: dimension ", dim, " of ", sizes_.size()));
  }
  if (index >= sizes_[dim]) {
    return absl::OutOfRangeError(
        absl::StrCat("slice: index ", index, " of dimension ", dim, " with size ", sizes_[dim]));
  }
  NDSlice result = *this;
  result.offset_ += index * strides_[dim];
  result.sizes_.erase(result.sizes_.begin() + static_cast<std::ptrdiff_t>(dim));
  result.strides_.erase(result.strides_.begin() + static_cast<std::ptrdiff_t>(dim));
  return result;
}

absl::StatusOr<NDSlice> NDSlice::Select(size_t dim, size_t begin, size_t end, size_t step) const {
  if (dim >= sizes_.size()) {
    return absl::OutOfRangeError(absl::StrCat("slice: dimension ", dim, " of ", sizes_.size()));
  }
  if (step == 0) return Invalid("step is 0");
  if (begin >= sizes_[dim] || end > sizes_[dim]) {
    return absl::OutOfRangeError(
        absl::StrCat("slice: range ", begin, " to ", end, " of dimension ", dim, " with size ", sizes_[dim]));
  }
  if (begin >= end) return Invalid(absl::StrCat("nothing selected from ", begin, " to ", end));
  NDSlice result = *this;
  result.offset_ += begin * strides_[dim];
  result.sizes_[dim] = (end - begin - 1) / step + 1;
  // A dimension of size 1 takes any stride; keeping the old one spares an overflow when the step is huge.
  if (result.sizes_[dim] > 1) result.strides_[dim] *= step;
  return result;
}

bool NDSlice::IsContiguous() const {
  size_t expected = 1;
  for (size_t i = sizes_.size(); i-- > 0;) {
    if (sizes_[i] == 1) continue;
    if (strides_[i] != expected) return false;
    expected *= sizes_[i];
  }
  return true;
}

std::string NDSlice::ToString() const {
  return absl::StrCat("Slice { offset: ", offset_, ", sizes: [", absl::StrJoin(sizes_, ", "), "], strides: [",
                      absl::StrJoin(strides_, ", "), "] }");
}

Shape::Shape(std::vector<std::string> labels, NDSlice slice)
    : labels_(std::move(labels)), slice_(std::move(slice)) {}

absl::StatusOr<Shape> Shape::Create(std::vector<std::string> labels, NDSlice slice) {
  if (labels.size() != slice.num_dims()) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape: ", labels.size(), " labels for ", slice.num_dims(), " dimensions"));
  }
  std::set<std::string_view> seen;
  for (const std::string& label : labels) {
    if (label.empty()) return absl::InvalidArgumentError("shape: empty label");
    if (!seen.insert(label).second) {
      return absl::InvalidArgumentError(absl::StrCat("shape: label ", label, " appears twice"));
    }
  }
  return Shape(std::move(labels), std::move(slice));
}

std::optional<size_t> Shape::DimOf(const std::string& label) const {
  const auto found = std::find(labels_.begin(), labels_.end(), label);
  if (found == labels_.end()) return std::nullopt;
  return static_cast<size_t>(found - labels_.begin());
}

absl::StatusOr<Shape> Shape::At(const std::string& label, size_t index) const {
  const std::optional<size_t> dim = DimOf(label);
  if (!dim) return absl::NotFoundError(absl::StrCat("shape: no dimension ", label, " in ", ToString()));
  MONARCH_ASSIGN_OR_RETURN(NDSlice slice, slice_.At(*dim, index));
  std::vector<std::string> labels = labels_;
  labels.erase(labels.begin() + static_cast<std::ptrdiff_t>(*dim));
  return Shape(std::move(labels), std::move(slice));
}

absl::StatusOr<Shape> Shape::Select(const std::string& label, size_t begin, size_t end, size_t step) const {
  const std::optional<size_t> dim = DimOf(label);
  if (!dim) return absl::NotFoundError(absl::StrCat("shape: no dimension ", label, " in ", ToString()));
  MONARCH_ASSIGN_OR_RETURN(NDSlice slice, slice_.Select(*dim, begin, end, step));
  return Shape(labels_, std::move(slice));
}

std::string Shape::PointLabel(size_t index) const {
  if (labels_.empty()) return "";
  std::vector<std::string> parts(labels_.size());
  for (size_t i = labels_.size(); i-- > 0;) {
    const size_t size = slice_.sizes()[i];
    parts[i] = absl::StrCat("'", labels_[i], "': ", index % size, "/", size);
    index /= size;
  }
  return absl::StrCat("{", absl::StrJoin(parts, ", "), "}");
}

std::string Shape::ToString() const {
  std::vector<std::string> parts;
  for (size_t i = 0; i < labels_.size(); ++i)
    parts.push_back(absl::StrCat(labels_[i], "=", slice_.sizes()[i]));
  return absl::StrCat("{", absl::StrJoin(parts, ","), "}");
}

}  // namespace monarch
