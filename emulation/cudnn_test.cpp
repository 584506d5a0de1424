// What the stand-in for cuDNN refuses, as the library would refuse it, or do something undefined.
#include "emulation/cudnn.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/create.h"
#include "core/cuda/device.h"
#include "core/tensor.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::kCuda;

template <class T>
cudnnStatus_t set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  std::vector<T> x) {
  return cudnnBackendSetAttribute(d, name, type, int64_t(x.size()), x.data());
}
cudnnStatus_t set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, std::vector<int64_t> x) {
  return set(d, name, CUDNN_TYPE_INT64, std::move(x));
}
cudnnStatus_t set_part(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t part) {
  return set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{part});
}

// Descriptors of one forward convolution, made until the plan; a test changes a part and sees what refuses it.
class CudnnStandIn : public testing::Test {
 protected:
  struct Sizes {
    std::vector<int64_t> x{2, 4, 6, 5}, w{3, 4, 3, 3}, y{2, 3, 3, 3}, pad{1, 1}, stride{2, 2}, dilation{1, 1};
    int64_t ids[3] = {1, 2, 3};
    cudnnDataType_t w_type = CUDNN_DATA_FLOAT;
  };
  void SetUp() override {
    emulation::set_gpu({.devices = 2, .memory_bytes = size_t{64} << 20});
    cuda::use(0);
    ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnSetStream(handle, cuda::compute_stream(0)), CUDNN_STATUS_SUCCESS);
  }
  void TearDown() override {
    for (const auto d : made_) cudnnBackendDestroyDescriptor(d);
    cudnnDestroy(handle);
    emulation::set_cudnn_engines({});
  }
  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t out = nullptr;
    EXPECT_EQ(cudnnBackendCreateDescriptor(type, &out), CUDNN_STATUS_SUCCESS);
    made_.push_back(out);
    return out;
  }
  cudnnBackendDescriptor_t tensor(int64_t id, const std::vector<int64_t>& dims,
                                  cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    const auto d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{type});
    set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
    set(d, CUDNN_ATTR_TENSOR_STRIDES, {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]});
    set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, {id});
    set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {16});
    EXPECT_EQ(cudnnBackendFinalize(d), CUDNN_STATUS_SUCCESS);
    return d;
  }
  cudnnBackendDescriptor_t window(const Sizes& s) {
    const auto d = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
    set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
    set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, std::vector{CUDNN_CROSS_CORRELATION});
    set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, s.pad);
    set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, s.pad);
    set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, s.dilation);
    set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, s.stride);
    return d;
  }
  cudnnStatus_t finish_operation(const Sizes& s, std::optional<float> beta = 0.0f) {
    const auto conv = window(s);
    if (const auto status = cudnnBackendFinalize(conv)) return status;
    operation = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    set_part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, tensor(s.ids[0], s.x));
    set_part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, tensor(s.ids[1], s.w, s.w_type));
    set_part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, tensor(s.ids[2], s.y));
    set_part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, conv);
    set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, std::vector{1.0f});
    if (beta) set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, std::vector{*beta});
    return cudnnBackendFinalize(operation);
  }
  cudnnBackendDescriptor_t plan_of(cudnnBackendDescriptor_t op) {
    const auto graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set_part(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, op);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle});
    EXPECT_EQ(cudnnBackendFinalize(graph), CUDNN_STATUS_SUCCESS);
    const auto heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_part(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{CUDNN_HEUR_MODE_A});
    EXPECT_EQ(cudnnBackendFinalize(heuristics), CUDNN_STATUS_SUCCESS);
    cudnnBackendDescriptor_t config = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t count = 0;
    EXPECT_EQ(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                       &count, &config),
              CUDNN_STATUS_SUCCESS);
    const auto plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle});
    EXPECT_EQ(cudnnBackendFinalize(plan), CUDNN_STATUS_SUCCESS);
    return plan;
  }
  cudnnStatus_t execute(cudnnBackendDescriptor_t plan, const std::vector<int64_t>& ids, const std::vector<void*>& data,
                        void* workspace = nullptr) {
    const auto pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data);
    set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::vector{workspace});
    if (const auto status = cudnnBackendFinalize(pack)) return status;
    return cudnnBackendExecute(handle, plan, pack);
  }
  void expect_reported(const std::string& kind) {
    cudaStreamSynchronize(cuda::compute_stream(0));
    ASSERT_EQ(emulation::reports().size(), 1u);
    EXPECT_EQ(emulation::reports()[0].kind, kind) << emulation::reports()[0].text;
    emulation::clear_reports();
  }

  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t operation = nullptr;

 private:
  std::vector<cudnnBackendDescriptor_t> made_;
};

TEST_F(CudnnStandIn, RefusesAttributesOfAWrongKind) {
  const auto d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  EXPECT_EQ(set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, {1}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, std::vector{1.0f}),
            CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  EXPECT_EQ(set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, {1, 2}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, std::vector<int64_t>(9, 1)), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnBackendFinalize(d), CUDNN_STATUS_BAD_PARAM);  // attributes are missing
  int64_t count = 0, id = 0;
  EXPECT_EQ(cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &count, &id),
            CUDNN_STATUS_NOT_INITIALIZED);
  const auto final_one = tensor(1, {1, 2, 3, 4});
  EXPECT_EQ(set(final_one, CUDNN_ATTR_TENSOR_UNIQUE_ID, {2}), CUDNN_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(cudnnBackendFinalize(final_one), CUDNN_STATUS_BAD_PARAM);
  const auto graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  EXPECT_EQ(set_part(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, d), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
}

TEST_F(CudnnStandIn, RefusesSizesThatDoNotFit) {
  EXPECT_EQ(finish_operation({}), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(finish_operation({}, std::nullopt), CUDNN_STATUS_BAD_PARAM);
  const std::pair<std::function<void(Sizes&)>, cudnnStatus_t> wrong[] = {
      {[](Sizes& s) {
         s.pad = {0, 1};
       },
       CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH},
      {[](Sizes& s) {
         s.stride = {2, 1};
       },
       CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH},
      {[](Sizes& s) {
         s.dilation = {2, 1};
       },
       CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH},
      {[](Sizes& s) { s.y[0] = 1; }, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH},
      {[](Sizes& s) { s.y[1] = 4; }, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH},
      {[](Sizes& s) { s.w[1] = 3; }, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH},
      {[](Sizes& s) { s.w[1] = 2; }, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH},  // three outputs, two groups
      {[](Sizes& s) { s.pad = {1}; }, CUDNN_STATUS_BAD_PARAM},
      {[](Sizes& s) {
         s.stride = {0, 2};
       },
       CUDNN_STATUS_BAD_PARAM},
      {[](Sizes& s) { s.ids[2] = 1; }, CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES},
      {[](Sizes& s) { s.w_type = CUDNN_DATA_HALF; }, CUDNN_STATUS_BAD_PARAM},
  };
  for (const auto& [change, status] : wrong) {
    Sizes sizes;
    change(sizes);
    EXPECT_EQ(finish_operation(sizes), status) << &status - &wrong[0].second;
  }
}

TEST_F(CudnnStandIn, APartLivesUntilTheWholeIsFinal) {
  const auto conv = window({});
  ASSERT_EQ(cudnnBackendFinalize(conv), CUDNN_STATUS_SUCCESS);
  const auto op = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  ASSERT_EQ(set_part(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, conv), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(finish_operation({}), CUDNN_STATUS_SUCCESS);
  const auto graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set_part(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle});
  cudnnBackendDestroyDescriptor(operation);
  EXPECT_EQ(cudnnBackendFinalize(graph), CUDNN_STATUS_BAD_PARAM);
}

TEST_F(CudnnStandIn, RefusesWrongPointers) {
  emulation::set_cudnn_engines({{.index = 1, .workspace_bytes = 256}});
  ASSERT_EQ(finish_operation({}), CUDNN_STATUS_SUCCESS);
  const auto plan = plan_of(operation);
  const Tensor x = zeros({2 * 6 * 5 * 4}, DType::f32, kCuda), w = zeros({3 * 3 * 3 * 4}, DType::f32, kCuda),
               y({2 * 3 * 3 * 3}, DType::f32, kCuda), room({256}, DType::u8, kCuda);
  void *const a = View(x).data, *const b = View(w).data, *const c = View(y).data, *const space = View(room).data;
  EXPECT_EQ(execute(plan, {1, 2, 3}, {a, b, c}, space), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(execute(plan, {3, 1, 2}, {c, a, b}, space), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(execute(plan, {1, 2, 3}, {a, b}, space), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(execute(plan, {1, 2}, {a, b}, space), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(execute(plan, {1, 2, 4}, {a, b, c}, space), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(execute(plan, {1, 2, 3, 4}, {a, b, c, c}, space), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(execute(plan, {1, 2, 2}, {a, b, c}, space), CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
  EXPECT_EQ(execute(plan, {1, 2, 3}, {a, nullptr, c}, space), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(execute(plan, {1, 2, 3}, {a, b, c}), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(execute(plan, {1, 2, 3}, {static_cast<char*>(a) + 4, b, c}, space),
            CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  EXPECT_EQ(execute(plan, {1, 2, 3}, {static_cast<char*>(a) + 16, b, c}, space), CUDNN_STATUS_EXECUTION_FAILED);
  expect_reported("out-of-bounds");
  std::vector<float> host(1000);
  EXPECT_EQ(execute(plan, {1, 2, 3},
                    {a, reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(host.data()) + 15) & ~15), c}, space),
            CUDNN_STATUS_EXECUTION_FAILED);
  expect_reported("out-of-bounds");
  EXPECT_EQ(execute(plan, {1, 2, 3}, {a, b, c}, static_cast<char*>(space) + 16), CUDNN_STATUS_EXECUTION_FAILED);
  expect_reported("out-of-bounds");
}

TEST_F(CudnnStandIn, ReportsInputsNeverWritten) {
  if (!emulation::checked()) GTEST_SKIP() << "only in checked executables";
  emulation::set_cudnn_engines({{.index = 1}});
  ASSERT_EQ(finish_operation({}), CUDNN_STATUS_SUCCESS);
  const Tensor x({2 * 6 * 5 * 4}, DType::f32, kCuda), w = zeros({3 * 3 * 3 * 4}, DType::f32, kCuda),
                                                      y({2 * 3 * 3 * 3}, DType::f32, kCuda);
  EXPECT_EQ(execute(plan_of(operation), {1, 2, 3}, {View(x).data, View(w).data, View(y).data}), CUDNN_STATUS_SUCCESS);
  expect_reported("uninitialised");
}

TEST_F(CudnnStandIn, AddsToWhatIsThere) {
  emulation::set_cudnn_engines({{.index = 1}});
  ASSERT_EQ(finish_operation({}, 0.5f), CUDNN_STATUS_SUCCESS);
  const Tensor x = zeros({2 * 6 * 5 * 4}, DType::f32, kCuda), w = zeros({3 * 3 * 3 * 4}, DType::f32, kCuda),
               y = full({2 * 3 * 3 * 3}, 8, DType::f32, kCuda), unwritten = empty_like(y);
  const auto plan = plan_of(operation);
  EXPECT_EQ(execute(plan, {1, 2, 3}, {View(x).data, View(w).data, View(y).data}), CUDNN_STATUS_SUCCESS);
  for (const double sum : test::values(y)) EXPECT_EQ(sum, 4);
  EXPECT_EQ(execute(plan, {1, 2, 3}, {View(x).data, View(w).data, View(unwritten).data}), CUDNN_STATUS_SUCCESS);
  if (emulation::checked()) expect_reported("uninitialised");
}

TEST_F(CudnnStandIn, AHandleIsOfOneDeviceAndThread) {
  EXPECT_EQ(cudnnSetStream(handle, cuda::compute_stream(1)), CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH);
  emulation::set_cudnn_engines({{.index = 1}});
  ASSERT_EQ(finish_operation({}), CUDNN_STATUS_SUCCESS);
  const auto plan = plan_of(operation);
  const Tensor x = zeros({2 * 6 * 5 * 4}, DType::f32, kCuda), w = zeros({3 * 3 * 3 * 4}, DType::f32, kCuda),
               y({2 * 3 * 3 * 3}, DType::f32, kCuda);
  const std::vector<void*> data{View(x).data, View(w).data, View(y).data};
  cuda::use(1);
  EXPECT_EQ(execute(plan, {1, 2, 3}, data), CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH);
  cuda::use(0);
  bool first = true;  // a second call while the first one is inside
  emulation::at_cudnn_execute([&](int) {
    if (!std::exchange(first, false)) return;
    EXPECT_EQ(execute(plan, {1, 2, 3}, data), CUDNN_STATUS_SUCCESS);
  });
  EXPECT_EQ(execute(plan, {1, 2, 3}, data), CUDNN_STATUS_SUCCESS);
  emulation::at_cudnn_execute({});
  expect_reported("race");
}

}  // namespace
}  // namespace ringtape
