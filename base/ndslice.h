#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace monarch {

// A strided set of ranks: rank(c) = offset + sum(c[i] * strides[i]) for 0 <= c[i] < sizes[i]; row-major
// order. Zero dimensions: the one rank `offset`. Threading: immutable value.
class NDSlice {
 public:
  NDSlice() = default;  // the one rank 0

  // InvalidArgument if lengths differ, a size is 0, the product overflows, or the strides are not
  // rectangular: each distinct coordinate must give a distinct rank and, sorted by stride, a stride must be a
  // multiple of the next smaller one and at least as large as the extent of that dimension. Dimensions of
  // size 1 take any stride.
  static absl::StatusOr<NDSlice> Create(size_t offset, std::vector<size_t> sizes,
                                        std::vector<size_t> strides);
  // As Create, but takes what At and Select can make, for slices that come over a wire: a step leaves strides
  // like [4, 3], where ranks are still distinct and ordered but no stride need be a multiple of another. Each
  // stride must only be larger than all ranks that the smaller strides can reach.
  static absl::StatusOr<NDSlice> Restore(size_t offset, std::vector<size_t> sizes,
                                         std::vector<size_t> strides);
  static absl::StatusOr<NDSlice> RowMajor(std::vector<size_t> sizes, size_t offset = 0);

  size_t offset() const { return offset_; }
  const std::vector<size_t>& sizes() const { return sizes_; }
  const std::vector<size_t>& strides() const { return strides_; }
  size_t num_dims() const { return sizes_.size(); }
  size_t size() const;  // number of ranks

  // OutOfRange if index >= size().
  absl::StatusOr<size_t> RankAt(size_t index) const;  // position in row-major order -> rank
  absl::StatusOr<size_t> RankOf(absl::Span<const size_t> coordinates) const;  // OutOfRange, InvalidArgument
  // NotFound if the rank is not in the slice.
  absl::StatusOr<std::vector<size_t>> CoordinatesOf(size_t rank) const;
  absl::StatusOr<size_t> IndexOf(size_t rank) const;
  bool Contains(size_t rank) const { return IndexOf(rank).ok(); }
  std::vector<size_t> Ranks() const;

  // One dimension fixed (and removed) / restricted to begin, begin+step, ... < end (and kept). OutOfRange for
  // a bad dimension or index, InvalidArgument for step 0 or an empty selection.
  absl::StatusOr<NDSlice> At(size_t dim, size_t index) const;
  absl::StatusOr<NDSlice> Select(size_t dim, size_t begin, size_t end, size_t step) const;
  // Whether the ranks in row-major order are offset, offset+1, ...
  bool IsContiguous() const;

  // "Slice { offset: 0, sizes: [2, 3], strides: [3, 1] }"
  std::string ToString() const;
  bool operator==(const NDSlice&) const = default;

 private:
  NDSlice(size_t offset, std::vector<size_t> sizes, std::vector<size_t> strides);

  size_t offset_ = 0;
  std::vector<size_t> sizes_;
  std::vector<size_t> strides_;
};

// An NDSlice with a name for each dimension: the shape of a mesh.
// Threading: immutable value.
class Shape {
 public:
  Shape() = default;  // the one rank 0, without dimensions
  // InvalidArgument if the counts differ, a label is empty or appears twice.
  static absl::StatusOr<Shape> Create(std::vector<std::string> labels, NDSlice slice);

  const std::vector<std::string>& labels() const { return labels_; }
  const NDSlice& slice() const { return slice_; }
  size_t size() const { return slice_.size(); }
  std::optional<size_t> DimOf(const std::string& label) const;
  absl::StatusOr<Shape> At(const std::string& label, size_t index) const;  // NotFound for an unknown label
  absl::StatusOr<Shape> Select(const std::string& label, size_t begin, size_t end, size_t step) const;
  // Coordinates of the index-th rank, for people: "{'hosts': 0/1, 'gpus': 1/2}"; empty without dimensions.
  std::string PointLabel(size_t index) const;
  std::string ToString() const;  // "{a=2,b=3}"
  bool operator==(const Shape&) const = default;

 private:
  Shape(std::vector<std::string> labels, NDSlice slice);

  std::vector<std::string> labels_;
  NDSlice slice_;
};

}  // namespace monarch
