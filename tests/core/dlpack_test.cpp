// Tensors of other frameworks and back without a copy; PyTorch's, where python3 has it.
#include "core/dlpack.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::message_of;

constexpr DType kTypes[] = {DType::b8,  DType::u8,   DType::i32, DType::i64,
                            DType::f16, DType::bf16, DType::f32, DType::f64};
const std::vector<Shape> kShapes = {{}, {0}, {1}, {7}, {3, 0, 2}, {1, 5}, {4, 3, 2}, {2, 1, 2, 1, 2, 1, 2, 3}};

TEST(Dlpack, ThereAndBackIsTheSameMemory) {
  for (const DType dtype : kTypes)
    for (const Shape& shape : kShapes) {
      const Tensor x = cast(rand(shape, 0, 100), dtype);
      for (const Tensor& of : {x, shape.rank() > 1 ? transpose(x, 0, 1) : x}) {
        const Tensor y = from_dlpack(to_dlpack(of));
        EXPECT_EQ(y.shape(), of.shape());
        EXPECT_EQ(y.dtype(), dtype);
        EXPECT_EQ(View(y).data, View(of).data);
        EXPECT_TRUE(test::same_bytes(y, of)) << concat(dtype, " ", of.shape());
      }
    }
}

TEST(Dlpack, ATensorOutlivesWhatItCameFrom) {
  Tensor x = full({4, 4}, 3);
  DLManagedTensor* const lent = to_dlpack(slice(x, 1, 1, 3));
  const std::weak_ptr<Storage> storage = x.storage();
  x = {};
  Tensor y = from_dlpack(lent);
  EXPECT_EQ(sum(y).item(), 24);
  y = y + 1;
  EXPECT_TRUE(storage.expired());
}

TEST(Dlpack, APlaceholderForAnUnusedStrideIsNone) {
  float values[] = {0, 1, 2, 3, 4, 5};
  int64_t shape[] = {1, 3}, strides[] = {-7, 2};
  int deleted = 0;
  DLManagedTensor given{{values, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 4},
                        &deleted,
                        [](DLManagedTensor* m) { ++*static_cast<int*>(m->manager_ctx); }};
  for (const bool strided : {true, false}) {
    given.dl_tensor.strides = strided ? strides : nullptr;
    const Tensor x = from_dlpack(&given);
    EXPECT_EQ(sum(x).item(), strided ? 1 + 3 + 5 : 1 + 2 + 3);
    EXPECT_EQ(deleted, strided ? 0 : 1);
  }
  EXPECT_EQ(deleted, 2);
}

TEST(Dlpack, WhatDoesNotFitStaysTheCallers) {
  const auto refusal = [](const std::function<void(DLTensor&, int64_t * shape, int64_t * strides)>& spoil) {
    float values[8] = {};
    int64_t shape[9] = {2, 2, 1, 1, 1, 1, 1, 1, 1}, strides[9] = {2, 1, 1, 1, 1, 1, 1, 1, 1};
    DLManagedTensor given{{values, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0},
                          nullptr,
                          [](DLManagedTensor*) { ADD_FAILURE() << "it was taken"; }};
    spoil(given.dl_tensor, shape, strides);
    return message_of<Error>([&] { from_dlpack(&given); });
  };
  const auto of = [&](auto spoil) { return refusal([&](DLTensor& t, int64_t*, int64_t*) { spoil(t); }); };
  EXPECT_MENTIONS(of([](DLTensor& t) { t.dtype.code = kDLComplex; }), "from_dlpack: a type of code 5, 32 bits");
  EXPECT_MENTIONS(of([](DLTensor& t) { t.dtype.lanes = 4; }), "4 lanes; expected bool, uint8");
  EXPECT_MENTIONS(of([](DLTensor& t) { t.device.device_type = kDLOpenCL; }), "a device of type 4; expected a CPU");
  EXPECT_MENTIONS(of([](DLTensor& t) { t.device = {kDLCUDA, 63}; }), "cuda:63");
  EXPECT_MENTIONS(of([](DLTensor& t) { t.ndim = 9; }), "9 axes; at most 8");
  EXPECT_MENTIONS(refusal([](DLTensor&, int64_t*, int64_t* strides) { strides[1] = -1; }), "axis 1 goes backwards");
  EXPECT_MENTIONS(refusal([](DLTensor&, int64_t* shape, int64_t*) { shape[0] = -2; }), "an axis of length -2");
  EXPECT_MENTIONS(message_of<UsageError>([] { from_dlpack(nullptr); }), "there is no tensor");
  EXPECT_MENTIONS(message_of<UsageError>([] { to_dlpack({}); }), "the tensor is undefined");
}

TEST(Dlpack, PyTorchReadsOursAndWeReadPyTorchs) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "python3 is no program of AddressSanitizer";
#endif
  const int status = std::system("python3 " RINGTAPE_SOURCE_DIR "/tests/core/dlpack_torch.py " RINGTAPE_DLPACK_PEER);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "python3 has no PyTorch";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ringtape
