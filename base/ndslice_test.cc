#include "base/ndslice.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace monarch {
namespace {

using Sizes = std::vector<size_t>;

constexpr uint32_t kSeed = 20240817;
constexpr int kShapes = 300;

size_t Pick(std::mt19937& random, size_t low, size_t high) {
  return std::uniform_int_distribution<size_t>(low, high)(random);
}

// Up to 4 dimensions of 1 to 5, in a shuffled order of strides, with gaps, at an offset.
NDSlice RandomSlice(std::mt19937& random) {
  const size_t dims = Pick(random, 0, 4);
  Sizes sizes(dims);
  Sizes strides(dims);
  std::vector<size_t> order(dims);
  for (size_t i = 0; i < dims; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  size_t stride = Pick(random, 1, 3);
  for (const size_t dim : order) {
    sizes[dim] = Pick(random, 1, 5);
    strides[dim] = stride;
    stride *= sizes[dim] * Pick(random, 1, 2);
  }
  return NDSlice::Create(Pick(random, 0, 9), sizes, strides).value();
}

// Every coordinate of a slice in row-major order, by counting.
std::vector<Sizes> AllCoordinates(const NDSlice& slice) {
  std::vector<Sizes> all = {Sizes(slice.num_dims(), 0)};
  for (;;) {
    Sizes next = all.back();
    size_t dim = slice.num_dims();
    while (dim > 0 && ++next[dim - 1] == slice.sizes()[dim - 1]) next[--dim] = 0;
    if (dim == 0) return all;
    all.push_back(next);
  }
}

size_t RankByDefinition(const NDSlice& slice, const Sizes& coordinates) {
  size_t rank = slice.offset();
  for (size_t i = 0; i < coordinates.size(); ++i) rank += coordinates[i] * slice.strides()[i];
  return rank;
}

absl::StatusCode CodeOfCreate(size_t offset, Sizes sizes, Sizes strides) {
  return NDSlice::Create(offset, std::move(sizes), std::move(strides)).status().code();
}

constexpr auto kOk = absl::StatusCode::kOk;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST_CASE("RanksAndCoordinatesAgreeForRandomSlices", "[ndslice]") {
  std::mt19937 random(kSeed);
  for (int n = 0; n < kShapes; ++n) {
    const NDSlice slice = RandomSlice(random);
    INFO("seed " << kSeed << " shape " << n << " " << slice.ToString());
    const std::vector<Sizes> all = AllCoordinates(slice);
    const std::vector<size_t> ranks = slice.Ranks();
    REQUIRE(slice.size() == all.size());
    REQUIRE(ranks.size() == all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t rank = RankByDefinition(slice, all[i]);
      REQUIRE(ranks[i] == rank);
      REQUIRE(slice.RankAt(i).value() == rank);
      REQUIRE(slice.RankOf(all[i]).value() == rank);
      REQUIRE(slice.CoordinatesOf(rank).value() == all[i]);
      REQUIRE(slice.IndexOf(rank).value() == i);
    }
    const std::set<size_t> set(ranks.begin(), ranks.end());
    REQUIRE(set.size() == ranks.size());
    for (size_t rank = 0; rank <= *set.rbegin() + 3; ++rank)
      REQUIRE(slice.Contains(rank) == set.contains(rank));
    bool contiguous = true;
    for (size_t i = 0; i < ranks.size(); ++i) contiguous = contiguous && ranks[i] == slice.offset() + i;
    REQUIRE(slice.IsContiguous() == contiguous);
  }
}

TEST_CASE("AtAndSelectMatchFilteringByHand", "[ndslice]") {
  std::mt19937 random(kSeed);
  for (int n = 0; n < kShapes; ++n) {
    NDSlice slice = RandomSlice(random);
    // Selections of selections, as meshes are sliced again and again.
    for (int depth = 0; depth < 3 && slice.num_dims() > 0; ++depth) {
      INFO("seed " << kSeed << " shape " << n << " depth " << depth << " " << slice.ToString());
      const size_t dim = Pick(random, 0, slice.num_dims() - 1);
      const size_t size = slice.sizes()[dim];
      const size_t begin = Pick(random, 0, size - 1);
      const size_t end = Pick(random, begin + 1, size);
      const size_t step = Pick(random, 1, 3);
      std::vector<size_t> fixed;
      std::vector<size_t> selected;
      for (const Sizes& c : AllCoordinates(slice)) {
        if (c[dim] == begin) fixed.push_back(RankByDefinition(slice, c));
        if (c[dim] >= begin && c[dim] < end && (c[dim] - begin) % step == 0) {
          selected.push_back(RankByDefinition(slice, c));
        }
      }
      const NDSlice at = slice.At(dim, begin).value();
      REQUIRE(at.num_dims() == slice.num_dims() - 1);
      REQUIRE(at.Ranks() == fixed);
      const NDSlice select = slice.Select(dim, begin, end, step).value();
      REQUIRE(select.num_dims() == slice.num_dims());
      REQUIRE(select.Ranks() == selected);
      for (size_t i = 0; i < selected.size(); ++i) REQUIRE(select.IndexOf(selected[i]).value() == i);
      REQUIRE(NDSlice::Restore(select.offset(), select.sizes(), select.strides()).value() == select);
      REQUIRE(NDSlice::Restore(at.offset(), at.sizes(), at.strides()).value() == at);
      slice = depth % 2 == 0 ? select : at;
    }
  }
}

TEST_CASE("WithoutDimensionsThereIsOneRank", "[ndslice]") {
  CHECK(NDSlice().Ranks() == Sizes{0});
  const NDSlice one = NDSlice::Create(7, {}, {}).value();
  CHECK(one.size() == 1);
  CHECK(one.Ranks() == Sizes{7});
  CHECK(one.RankOf({}).value() == 7);
  CHECK(one.CoordinatesOf(7).value().empty());
  CHECK_FALSE(one.Contains(6));
  CHECK_FALSE(one.Contains(8));
  CHECK(one.IsContiguous());
}

TEST_CASE("RowMajorCountsTheLastDimensionFastest", "[ndslice]") {
  const NDSlice slice = NDSlice::RowMajor({2, 3, 4}, 5).value();
  CHECK(slice.strides() == Sizes{12, 4, 1});
  CHECK(slice.offset() == 5);
  CHECK(slice.IsContiguous());
  CHECK(slice.ToString() == "Slice { offset: 5, sizes: [2, 3, 4], strides: [12, 4, 1] }");
  CHECK(NDSlice::RowMajor({2, 0}).status().code() == kInvalid);
}

TEST_CASE("CreateRefusesWhatIsNotRectangular", "[ndslice]") {
  CHECK(CodeOfCreate(0, {2, 3}, {3}) == kInvalid);
  CHECK(CodeOfCreate(0, {2, 0}, {1, 1}) == kInvalid);
  CHECK(CodeOfCreate(0, {2, 3}, {2, 1}) == kInvalid);  // rank 2 twice
  CHECK(CodeOfCreate(0, {2, 2}, {1, 1}) == kInvalid);
  CHECK(CodeOfCreate(0, {2}, {0}) == kInvalid);
  CHECK(CodeOfCreate(0, {2, 2}, {4, 3}) == kInvalid);  // no multiple
  CHECK(CodeOfCreate(0, {2, 2}, {3, 2}) == kInvalid);
  CHECK(CodeOfCreate(0, {2, 2}, {4, 2}) == kOk);
  CHECK(CodeOfCreate(0, {3, 2}, {1, 3}) == kOk);  // column-major
}

TEST_CASE("ADimensionOfSizeOneTakesAnyStride", "[ndslice]") {
  for (const size_t stride : {size_t{0}, size_t{1}, size_t{3}, size_t{7}, SIZE_MAX}) {
    const absl::StatusOr<NDSlice> slice = NDSlice::Create(2, {2, 1, 3}, {3, stride, 1});
    INFO("stride " << stride);
    REQUIRE(slice.ok());
    CHECK(slice->Ranks() == Sizes{2, 3, 4, 5, 6, 7});
    CHECK(slice->CoordinatesOf(6).value() == Sizes{1, 0, 1});
  }
}

TEST_CASE("WhatDoesNotFitANumberIsRefused", "[ndslice]") {
  CHECK(CodeOfCreate(0, {SIZE_MAX, 2}, {2, 1}) == kInvalid);
  CHECK(CodeOfCreate(0, {3}, {SIZE_MAX / 2 + 1}) == kInvalid);
  CHECK(CodeOfCreate(SIZE_MAX, {2}, {1}) == kInvalid);
  CHECK(CodeOfCreate(SIZE_MAX - 1, {2}, {1}) == kOk);
  CHECK(NDSlice::RowMajor({size_t{1} << 40, size_t{1} << 40}).status().code() == kInvalid);
  const NDSlice huge = NDSlice::Create(0, {2}, {SIZE_MAX}).value();
  CHECK(huge.Ranks() == Sizes{0, SIZE_MAX});
}

TEST_CASE("RestoreTakesWhatASteppedSelectionMakes", "[ndslice]") {
  const NDSlice stepped = NDSlice::RowMajor({2, 4}).value().Select(1, 0, 4, 3).value();
  CHECK(stepped.strides() == Sizes{4, 3});
  CHECK(stepped.Ranks() == Sizes{0, 3, 4, 7});
  CHECK(CodeOfCreate(0, stepped.sizes(), stepped.strides()) == kInvalid);
  CHECK(NDSlice::Restore(0, stepped.sizes(), stepped.strides()).value() == stepped);
  CHECK(NDSlice::Restore(0, {2, 2}, {1, 1}).status().code() == kInvalid);
  CHECK(NDSlice::Restore(0, {2, 3}, {2, 1}).status().code() == kInvalid);
}

TEST_CASE("WrongIndicesAreErrorsByKind", "[ndslice]") {
  const NDSlice slice = NDSlice::RowMajor({2, 3}, 10).value();
  CHECK(slice.RankAt(6).status().code() == absl::StatusCode::kOutOfRange);
  CHECK(slice.RankOf({0}).status().code() == kInvalid);
  CHECK(slice.RankOf({0, 3}).status().code() == absl::StatusCode::kOutOfRange);
  CHECK(slice.CoordinatesOf(9).status().code() == absl::StatusCode::kNotFound);
  CHECK(slice.IndexOf(16).status().code() == absl::StatusCode::kNotFound);
  CHECK(slice.At(2, 0).status().code() == absl::StatusCode::kOutOfRange);
  CHECK(slice.At(1, 3).status().code() == absl::StatusCode::kOutOfRange);
  CHECK(slice.Select(2, 0, 1, 1).status().code() == absl::StatusCode::kOutOfRange);
  CHECK(slice.Select(1, 0, 4, 1).status().code() == absl::StatusCode::kOutOfRange);
  CHECK(slice.Select(1, 0, 3, 0).status().code() == kInvalid);
  CHECK(slice.Select(1, 1, 1, 1).status().code() == kInvalid);
  CHECK(slice.Select(1, 2, 1, 1).status().code() == kInvalid);
  CHECK(slice.Select(1, 0, 3, SIZE_MAX).value().Ranks() == Sizes{10, 13});
}

TEST_CASE("ShapeLabelsAreDistinctAndOnePerDimension", "[ndslice]") {
  const NDSlice slice = NDSlice::RowMajor({2, 3}).value();
  CHECK(Shape::Create({"a", "b"}, slice).ok());
  CHECK(Shape::Create({"a"}, slice).status().code() == kInvalid);
  CHECK(Shape::Create({"a", "a"}, slice).status().code() == kInvalid);
  CHECK(Shape::Create({"a", ""}, slice).status().code() == kInvalid);
  CHECK(Shape::Create({}, NDSlice()).ok());
}

TEST_CASE("ShapesAreSlicedByLabel", "[ndslice]") {
  const Shape shape = Shape::Create({"hosts", "gpus"}, NDSlice::RowMajor({2, 4}).value()).value();
  CHECK(shape.DimOf("gpus") == size_t{1});
  CHECK(shape.DimOf("nodes") == std::nullopt);
  CHECK(shape.ToString() == "{hosts=2,gpus=4}");

  const Shape host = shape.At("hosts", 1).value();
  CHECK(host.labels() == std::vector<std::string>{"gpus"});
  CHECK(host.slice().Ranks() == Sizes{4, 5, 6, 7});

  const Shape even = shape.Select("gpus", 0, 4, 2).value();
  CHECK(even.labels() == shape.labels());
  CHECK(even.slice().Ranks() == Sizes{0, 2, 4, 6});
  CHECK(even.size() == 4);

  CHECK(shape.At("nodes", 0).status().code() == absl::StatusCode::kNotFound);
  CHECK(shape.Select("nodes", 0, 1, 1).status().code() == absl::StatusCode::kNotFound);
  CHECK(shape.At("gpus", 4).status().code() == absl::StatusCode::kOutOfRange);
}

TEST_CASE("PointLabelsShowCoordinatesAndSizes", "[ndslice]") {
  const Shape shape = Shape::Create({"hosts", "gpus"}, NDSlice::RowMajor({1, 2}).value()).value();
  CHECK(shape.PointLabel(0) == "{'hosts': 0/1, 'gpus': 0/2}");
  CHECK(shape.PointLabel(1) == "{'hosts': 0/1, 'gpus': 1/2}");
  CHECK(Shape().PointLabel(0).empty());
  CHECK(Shape().ToString() == "{}");
}

}  // namespace
}  // namespace monarch
