#include "kernels/cuda/cudnn_conv.h"

#include <cudnn.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/cuda/memory.h"
#include "core/env.h"
#include "core/tensor.h"

namespace ringtape::cuda {

static void check(cudnnStatus_t status, const char* what, const char* file, int line) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]] return;
  char more[512] = "";
  cudnnGetLastErrorString(more, sizeof more);
  detail::fail<DeviceError>(what, " failed: ", cudnnGetErrorString(status), more[0] ? ": " : "", more, " (", file, ":",
                            line, ")");
}

namespace {

// A descriptor owned by cuDNN. Attributes are set one by one; then finish() checks them, and may reject them.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) { RT_GPU_CHECK(cudnnBackendCreateDescriptor(type, &handle_)); }
  Descriptor(Descriptor&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), parts_(std::move(other.parts_)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(parts_, other.parts_);
    return *this;
  }
  ~Descriptor() {
    if (handle_) cudnnBackendDestroyDescriptor(handle_);
  }
  cudnnBackendDescriptor_t get() const { return handle_; }

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const std::vector<T>& values) {
    RT_GPU_CHECK(cudnnBackendSetAttribute(handle_, name, type, int64_t(values.size()), values.data()));
    return *this;
  }
  Descriptor& set(cudnnBackendAttributeName_t name, int64_t value) {
    return set(name, CUDNN_TYPE_INT64, std::vector{value});
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& part) {  // which must outlive this
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{part.get()});
  }
  Descriptor& set(cudnnBackendAttributeName_t name, Descriptor&& part) {
    return set(name, parts_.emplace_back(std::move(part)));
  }
  bool try_finish() { return cudnnBackendFinalize(handle_) == CUDNN_STATUS_SUCCESS; }
  Descriptor&& finish() {
    RT_GPU_CHECK(cudnnBackendFinalize(handle_));
    return std::move(*this);
  }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
  std::vector<Descriptor> parts_;  // whether cuDNN copies them is not documented
};

enum : int64_t { kX = 1, kW, kY };  // identifiers of the tensors in a plan

cudnnDataType_t cudnn_type(DType dtype) {
  return dtype == DType::f32 ? CUDNN_DATA_FLOAT : dtype == DType::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

// cuDNN always lists the axes as N, C, H, W, for any order in memory.
Descriptor tensor(int64_t id, const View& v) {
  const auto channels_second = [](const int64_t* a) { return std::vector<int64_t>{a[0], a[3], a[1], a[2]}; };
  const int64_t strides[4] = {v.dims[1] * v.dims[2] * v.dims[3], v.dims[2] * v.dims[3], v.dims[3], 1};
  Descriptor out(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  out.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{cudnn_type(v.dtype)});
  out.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, channels_second(v.dims));
  out.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, channels_second(strides));
  out.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id).set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16});
  return out.finish();
}

Descriptor convolution(const Window& p) {
  const std::vector<int64_t> pad{p.pad_h, p.pad_w};
  Descriptor out(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  out.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2});
  out.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
  out.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, std::vector{CUDNN_CROSS_CORRELATION});
  out.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, pad)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, pad);
  out.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, std::vector{p.dilation_h, p.dilation_w});
  out.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, std::vector{p.stride_h, p.stride_w});
  return out.finish();
}

// The enumerators of each pass.
struct PassNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y;
};
constexpr PassNames kPasses[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
};

Descriptor operation(ConvPass pass, const View& x, const View& w, const View& y, const Window& window) {
  const PassNames& names = kPasses[size_t(pass)];
  Descriptor out(names.operation);
  out.set(names.x, tensor(kX, x))
      .set(names.w, tensor(kW, w))
      .set(names.y, tensor(kY, y))
      .set(names.convolution, convolution(window));
  out.set(names.alpha, CUDNN_TYPE_FLOAT, std::vector{1.0f}).set(names.beta, CUDNN_TYPE_FLOAT, std::vector{0.0f});
  return out.finish();
}

// Whether results of this engine are reproducible and as precise as their dtype.
bool acceptable(const Descriptor& config, DType dtype) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t into = engine.get();
  int64_t count = 0;
  RT_GPU_CHECK(cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                        &count, &into));
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  RT_GPU_CHECK(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                        CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes));
  count = std::min<int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  return std::none_of(notes, notes + count, [dtype](cudnnBackendNumericalNote_t note) {
    return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC || note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
           (dtype == DType::f32 &&
            (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
  });
}

// Engines that cuDNN expects to be fastest, best first.
std::vector<Descriptor> proposals(const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{mode});
  if (!heuristics.try_finish()) return {};
  int64_t count = 0;
  RT_GPU_CHECK(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                        0, &count, nullptr));
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < count; ++i) handles.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  RT_GPU_CHECK(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                        count, &count, handles.data()));
  configs.erase(configs.begin() + count, configs.end());
  return configs;
}

// The best plan for one shape on one device, cached.
struct ConvPlan {
  std::vector<Descriptor> plan;  // one, or none if no engine is acceptable
  int64_t workspace_bytes = 0;
};

ConvPlan make_conv_plan(cudnnHandle_t cudnn, ConvPass pass, const View& x, const View& w, const View& y,
                        const Window& window) {
  constexpr int64_t kMostWorkspace = int64_t{1} << 30;
  const Descriptor op = operation(pass, x, w, y, window);
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, op)
      .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{cudnn});
  ConvPlan out;
  if (!graph.try_finish()) return out;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (const Descriptor& config : proposals(graph, mode)) {
      if (!acceptable(config, x.dtype)) continue;
      Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config)
          .set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, std::vector{cudnn});
      if (!plan.try_finish()) continue;
      int64_t count = 0;
      RT_GPU_CHECK(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                            &count, &out.workspace_bytes));
      if (out.workspace_bytes > kMostWorkspace) continue;
      out.plan.push_back(std::move(plan));
      return out;
    }
  return out;
}

// One handle per device, on its compute stream. Never destroyed: the driver may be unloaded before.
cudnnHandle_t handle_of(int index) {
  static auto* const handles = new std::map<int, cudnnHandle_t>;
  cudnnHandle_t& handle = (*handles)[index];
  if (!handle) {
    const AllowWhileRecording allow;
    RT_GPU_CHECK(cudnnCreate(&handle));
    RT_GPU_CHECK(cudnnSetStream(handle, compute_stream(index)));
  }
  return handle;
}

std::vector<int64_t> key_of(ConvPass pass, const View& x, const View& w, const View& y, const Window& p) {
  std::vector<int64_t> key{x.device.index, int64_t(pass), int64_t(x.dtype), p.stride_h, p.stride_w, p.pad_h,
                           p.pad_w, p.dilation_h, p.dilation_w};
  for (const View* v : {&x, &w, &y}) key.insert(key.end(), v->dims, v->dims + 4);
  return key;
}

}  // namespace

bool uses_cudnn() {
  const int set = env::cudnn();
  return set < 0 ? cudnnGetVersion() != 0 : set == 1;
}

bool cudnn_conv(ConvPass pass, const View& x, const View& w, const View& y, const Window& window) {
  const auto fits = [](const View& v) { return v.size() > 0 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0; };
  if (!uses_cudnn() || x.dtype == DType::f64 || !fits(x) || !fits(w) || !fits(y)) return false;
  use(x.device.index);
  static std::mutex mutex;
  static auto* const plans = new std::map<std::vector<int64_t>, ConvPlan>;
  const std::lock_guard lock(mutex);
  const cudnnHandle_t cudnn = handle_of(x.device.index);
  std::vector<int64_t> key = key_of(pass, x, w, y, window);
  auto place = plans->find(key);
  if (place == plans->end()) {
    const AllowWhileRecording allow;
    place = plans->emplace(std::move(key), make_conv_plan(cudnn, pass, x, w, y, window)).first;
  }
  const ConvPlan& plan = place->second;
  if (plan.plan.empty()) return false;

  const Tensor workspace({std::max<int64_t>(plan.workspace_bytes, 1)}, DType::u8, x.device);
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::vector<int64_t>{kX, kW, kY});
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::vector<void*>{x.data, w.data, y.data});
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::vector<void*>{View(workspace).data});
  pack.finish();
  RT_GPU_CHECK(cudnnBackendExecute(cudnn, plan.plan[0].get(), pack.get()));
  return true;
}

}  // namespace ringtape::cuda
