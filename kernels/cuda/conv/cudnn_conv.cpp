#include "kernels/cuda/conv/cudnn_conv.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/cuda/event.h"
#include "core/cuda/graph.h"
#include "core/cuda/memory.h"
#include "core/device.h"
#include "core/env.h"
#include "core/tensor.h"
#include "kernels/arithmetic.h"
#include "kernels/conv2d.h"
#include "kernels/cuda/conv/conv_plans.h"
#include "kernels/cuda/conv/cudnn_descriptor.h"
#include "kernels/fill.h"

namespace ringtape::cuda {

namespace {

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

// The enumerators of each pass; to add is backward_data with another factor of what is there.
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

struct Convolution {
  ConvPass pass;
  View x, w, y;
  Window window;
};

Descriptor operation(const Convolution& c) {
  const bool adds = c.pass == ConvPass::add_backward_data;
  const PassNames& names = kPasses[size_t(adds ? ConvPass::backward_data : c.pass)];
  Descriptor out(names.operation);
  out.set(names.x, tensor(kX, c.x))
      .set(names.w, tensor(kW, c.w))
      .set(names.y, tensor(kY, c.y))
      .set(names.convolution, convolution(c.window));
  out.set(names.alpha, CUDNN_TYPE_FLOAT, std::vector{1.0f});
  out.set(names.beta, CUDNN_TYPE_FLOAT, std::vector{adds ? 1.0f : 0.0f});
  return out.finish();
}

Descriptor engine_of(const Descriptor& config) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t into = engine.get();
  int64_t count = 0;
  RT_GPU_CHECK(cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                        &count, &into));
  return engine;
}

// Whether results of this engine are reproducible and as precise as their dtype, or as TF32 where that is allowed.
bool acceptable(const Descriptor& config, DType dtype) {
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  int64_t count = 0;
  RT_GPU_CHECK(cudnnBackendGetAttribute(engine_of(config).get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                        CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes));
  count = std::min<int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  return std::none_of(notes, notes + count, [dtype](cudnnBackendNumericalNote_t note) {
    return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC || note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
           (dtype == DType::f32 && !arithmetic().tf32 &&
            (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
  });
}

// What one version of cuDNN calls an engine and its knobs: "engine 38 knobs 2=5 14=3".
std::string name_of_engine(const Descriptor& config) {
  std::vector<Descriptor> knobs;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i)
    handles.push_back(knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR).get());
  int64_t count = 0;
  RT_GPU_CHECK(cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                        CUDNN_KNOB_TYPE_COUNTS, &count, handles.data()));
  std::string out = concat(
      "engine ", read_one<int64_t>(engine_of(config), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64), " knobs");
  for (int64_t i = 0; i < std::min<int64_t>(count, CUDNN_KNOB_TYPE_COUNTS); ++i) {
    const Descriptor& knob = knobs[size_t(i)];
    const auto type = read_one<cudnnBackendKnobType_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE);
    out += concat(' ', int(type), '=', read_one<int64_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64));
  }
  return out;
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

struct ConvPlan {
  std::vector<Descriptor> plan{};  // one, or none if no engine is acceptable
  int64_t workspace_bytes = 0;
  std::string engine{};
};

// What belongs to one device. cuDNN's handles are for one thread at a time: the mutex is held while one is used.
struct ConvDevice {
  std::mutex mutex;
  cudnnHandle_t cudnn = nullptr;  // never destroyed: the driver may be unloaded before
  std::map<std::vector<int64_t>, ConvPlan> quickest, first;

  void prepare() {
    if (cudnn) return;
    const AllowWhileRecording allow;
    RT_GPU_CHECK(cudnnCreate(&cudnn));
  }
};
ConvDevice& conv_device(int index) {
  static auto* const devices = new std::array<ConvDevice, kMaxDevices>;
  return (*devices)[size_t(index)];
}

// At most this many acceptable plans, best first by cuDNN's heuristics; of one engine alone, if it is given.
std::vector<ConvPlan> make_plans(cudnnHandle_t cudnn, const Convolution& c, size_t most,
                                 const std::optional<std::string>& engine = {}) {
  constexpr int64_t kMaxWorkspace = int64_t{1} << 30;
  const AllowWhileRecording allow;
  const Descriptor op = operation(c);
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, op)
      .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{cudnn});
  std::vector<ConvPlan> out;
  if (!graph.try_finish()) return out;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (out.size() == most) break;
    for (const Descriptor& config : proposals(graph, mode)) {
      if (out.size() == most) break;
      if (!acceptable(config, c.x.dtype)) continue;
      ConvPlan made{.engine = name_of_engine(config)};
      if (engine && *engine != made.engine) continue;
      Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config)
          .set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, std::vector{cudnn});
      if (!plan.try_finish()) continue;
      made.workspace_bytes = read_one<int64_t>(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
      if (made.workspace_bytes > kMaxWorkspace) continue;
      made.plan.push_back(std::move(plan));
      out.push_back(std::move(made));
    }
  }
  return out;
}

cudnnStatus_t execute(cudnnHandle_t cudnn, const ConvPlan& plan, const Convolution& c, const Tensor& workspace) {
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::vector<int64_t>{kX, kW, kY});
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           std::vector<void*>{c.x.data, c.w.data, c.y.data});
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::vector<void*>{View(workspace).data});
  pack.finish();
  RT_GPU_CHECK(cudnnSetStream(cudnn, compute_stream(c.x.device.index)));  // of this thread; another while it records
  return cudnnBackendExecute(cudnn, plan.plan[0].get(), pack.get());
}

Tensor workspace_of(const ConvPlan& plan, Device device) {
  return Tensor({std::max<int64_t>(plan.workspace_bytes, 1)}, DType::u8, device);
}

// Milliseconds of an execution, into the output of the pass, which is overwritten anyway, or beside what it is added
// to; infinity for a plan that fails. It is executed several times as a graph: on an idle stream events would measure
// the host, which takes longer to launch a plan than many plans take. The best of three. Throws OutOfMemory.
double time_of(cudnnHandle_t cudnn, const ConvPlan& plan, Convolution c) {
  constexpr int kLaunches = 3, kExecutions = 8;
  constexpr double kFails = std::numeric_limits<double>::infinity();
  const int index = c.x.device.index;
  const Tensor workspace = workspace_of(plan, c.x.device);
  Tensor sum;
  if (c.pass == ConvPass::add_backward_data) {
    sum = Tensor(c.x.shape(), c.x.dtype, c.x.device);
    fill(sum, 0);
    c.x = sum;
  }
  bool works = execute(cudnn, plan, c, workspace) == CUDNN_STATUS_SUCCESS;  // makes what it makes at its first use
  if (!works) return kFails;
  Graph several(index, [&] {
    for (int i = 0; i < kExecutions; ++i) works = works && execute(cudnn, plan, c, workspace) == CUDNN_STATUS_SUCCESS;
  });
  if (!works) return kFails;
  double best = kFails;
  Event begin(index, true), end(index, true);
  for (int i = 0; i < kLaunches; ++i) {
    begin.record(compute_stream(index));
    several.launch();
    end.record(compute_stream(index));
    end.synchronize();
    best = std::min(best, end.milliseconds_since(begin) / kExecutions);
  }
  return best;
}

// The quickest of the plans that work; none if none does. One that had no memory today is not judged: the choice is
// then not kept in the file, and if all are like this, the one that needs least is used. One that cannot be recorded is
// for when there is no other: it would keep steps from being recorded.
ConvPlan measured(cudnnHandle_t cudnn, const Convolution& c, const std::string& problem) {
  constexpr size_t kMeasured = 8;  // cuDNN's order is good: later ones are rarely the quickest
  std::vector<ConvPlan> plans = make_plans(cudnn, c, kMeasured);
  if (plans.empty()) return {};
  if (plans.size() == 1) return std::move(plans[0]);
  double least = std::numeric_limits<double>::infinity();
  ConvPlan *quickest = nullptr, *smallest = nullptr, *unrecorded = nullptr;  // of those measured; without memory
  for (ConvPlan& plan : plans) try {
      const double time = time_of(cudnn, plan, c);
      if (time < least) least = time, quickest = &plan;
    } catch (const OutOfMemory&) {
      if (!smallest || plan.workspace_bytes < smallest->workspace_bytes) smallest = &plan;
    } catch (const DeviceError&) {
      if (!unrecorded) unrecorded = &plan;
    }
  if (!quickest && smallest) return std::move(*smallest);
  if (!quickest) return unrecorded ? std::move(*unrecorded) : ConvPlan{};
  if (smallest) return std::move(*quickest);
  const std::string engine = plan_choices()->keep(problem, quickest->engine);
  const auto kept = std::find_if(plans.begin(), plans.end(), [&](const ConvPlan& p) { return p.engine == engine; });
  return std::move(kept == plans.end() ? *quickest : *kept);
}

std::vector<int64_t> key_of(const Convolution& c) {
  const Window& p = c.window;
  std::vector<int64_t> key{int64_t(c.pass), int64_t(c.x.dtype), arithmetic().tf32, p.stride_h, p.stride_w, p.pad_h,
                           p.pad_w,         p.dilation_h,       p.dilation_w};
  for (const View* v : {&c.x, &c.w, &c.y}) key.insert(key.end(), v->dims, v->dims + 4);
  return key;
}

// All that the quickest plan depends on, as a line of text.
std::string problem_of(const Convolution& c) {
  const Properties& gpu = properties(c.x.device.index);
  const Window& p = c.window;
  const char* const passes[] = {"forward", "backward_data", "backward_weights", "add_backward_data"};
  return concat(gpu.name, " sm_", gpu.major, gpu.minor, ", cuDNN ", cudnnGetVersion(), ", ", passes[size_t(c.pass)],
                ", ", c.x.dtype, arithmetic().tf32 ? " as tf32" : "", ", x ", c.x.shape(), ", w ", c.w.shape(),
                ", stride ", p.stride_h, 'x', p.stride_w, ", pad ", p.pad_h, 'x', p.pad_w, ", dilation ", p.dilation_h,
                'x', p.dilation_w);
}

// The quickest plan; where nothing is to be measured, or cannot be because a graph is recorded, cuDNN's first.
const ConvPlan& plan_of(ConvDevice& device, const Convolution& c) {
  const std::vector<int64_t> key = key_of(c);
  if (!arithmetic().deterministic_convolutions && plan_choices()) {
    const auto known = device.quickest.find(key);
    if (known != device.quickest.end()) return known->second;
    const std::string problem = problem_of(c);
    std::vector<ConvPlan> chosen;
    if (const auto engine = plan_choices()->find(problem)) chosen = make_plans(device.cudnn, c, 1, engine);
    if (chosen.empty() && !recording(c.x.device.index)) chosen.push_back(measured(device.cudnn, c, problem));
    if (!chosen.empty()) return device.quickest.emplace(key, std::move(chosen[0])).first->second;
  }
  const auto known = device.first.find(key);
  if (known != device.first.end()) return known->second;
  std::vector<ConvPlan> plans = make_plans(device.cudnn, c, 1);
  return device.first.emplace(key, plans.empty() ? ConvPlan{} : std::move(plans[0])).first->second;
}

}  // namespace

int64_t cudnn_version() { return int64_t(cudnnGetVersion()); }

bool uses_cudnn() {
  if (arithmetic().own_kernels) return false;
  const int set = env::cudnn();
  return set < 0 ? cudnnGetVersion() != 0 : set == 1;
}

bool cudnn_conv(ConvPass pass, const View& x, const View& w, const View& y, const Window& window) {
  const auto fits = [](const View& v) { return v.size() > 0 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0; };
  if (!uses_cudnn() || x.dtype == DType::f64 || !fits(x) || !fits(w) || !fits(y)) return false;
  use(x.device.index);
  ConvDevice& device = conv_device(x.device.index);
  const std::lock_guard lock(device.mutex);
  device.prepare();
  const Convolution convolution{pass, x, w, y, window};
  const ConvPlan& plan = plan_of(device, convolution);
  if (plan.plan.empty()) return false;
  RT_GPU_CHECK(execute(device.cudnn, plan, convolution, workspace_of(plan, x.device)));
  return true;
}

}  // namespace ringtape::cuda
