// The stand-in for libcudnn: the checks of finalize, and the heuristics.
#include <algorithm>
#include <iterator>
#include <mutex>
#include <set>

#include "core/text.h"
#include "emulation/cudart.h"
#include "emulation/cudnn.h"

namespace ringtape::emulation {
namespace {

constexpr CudnnPass kPasses[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW},
};

// For every convolution: some that are quick but not acceptable for f32 or at all, one with too large a workspace.
const std::vector<CudnnEngine>& initial_engines() {
  static const auto& all = *new std::vector<CudnnEngine>{
      {.index = 0, .notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, .milliseconds = 0.1},
      {.index = 1, .notes = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, .milliseconds = 0.1},
      {.index = 2, .notes = {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, .milliseconds = 0.2},
      {.index = 3, .notes = {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, .milliseconds = 0.1},
      {.index = 4, .notes = {CUDNN_NUMERICAL_NOTE_FFT}, .workspace_bytes = int64_t{3} << 30, .milliseconds = 0.1},
      {.index = 5, .knobs = {{CUDNN_KNOB_TYPE_TILE_SIZE, 7}}, .workspace_bytes = 4096, .milliseconds = 3},
      {.index = 6, .notes = {CUDNN_NUMERICAL_NOTE_WINOGRAD}, .workspace_bytes = 65536, .milliseconds = 2},
      {.index = 7, .milliseconds = 4, .fallback = true},
  };
  return all;
}

struct Library {
  std::mutex mutex;
  std::vector<CudnnEngine> engines = initial_engines();
  CudnnCalls calls;
};
Library& library() {
  static auto& one = *new Library;
  return one;
}

cudnnStatus_t finalize_tensor(const CudnnDescriptor& d) {
  const auto &dims = d.list(CUDNN_ATTR_TENSOR_DIMENSIONS), &strides = d.list(CUDNN_ATTR_TENSOR_STRIDES);
  const int64_t alignment = d.number(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  const auto least = [](const std::vector<int64_t>& x) { return *std::min_element(x.begin(), x.end()); };
  if (dims.size() != strides.size() || least(dims) < 1 || least(strides) < 1)
    return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "a tensor needs as many strides as dimensions, all positive");
  if (alignment < 4 || (alignment & (alignment - 1)))
    return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, concat("alignment ", alignment));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_window(const CudnnDescriptor& d) {
  const size_t axes = size_t(d.number(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
  const std::pair<cudnnBackendAttributeName_t, int64_t> lists[] = {{CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0},
                                                                   {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0},
                                                                   {CUDNN_ATTR_CONVOLUTION_DILATIONS, 1},
                                                                   {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1}};
  for (const auto& [name, least] : lists) {
    const auto& values = d.list(name);
    if (values.size() != axes || *std::min_element(values.begin(), values.end()) < least)
      return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, concat("attribute ", int(name), " of a convolution"));
  }
  return CUDNN_STATUS_SUCCESS;
}

// Whether the dimensions of x (N, C, H, W), w (K, C / groups, R, S) and y (N, K, Ho, Wo) belong to the window.
bool same_sizes(const CudnnDescriptor& window, const std::vector<int64_t>& x, const std::vector<int64_t>& w,
                const std::vector<int64_t>& y) {
  const size_t axes = size_t(window.number(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
  if (x.size() != axes + 2 || w.size() != axes + 2 || y.size() != axes + 2) return false;
  if (x[0] != y[0] || w[0] != y[1] || x[1] % w[1] != 0 || w[0] % (x[1] / w[1]) != 0) return false;
  for (size_t i = 0; i < axes; ++i) {
    const int64_t room = x[i + 2] + window.list(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)[i] +
                         window.list(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)[i] -
                         window.list(CUDNN_ATTR_CONVOLUTION_DILATIONS)[i] * (w[i + 2] - 1) - 1;
    if (room < 0 || y[i + 2] != room / window.list(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)[i] + 1) return false;
  }
  return true;
}

cudnnStatus_t finalize_operation(const CudnnDescriptor& d, const CudnnPass& pass) {
  const CudnnDescriptor& window = d.part(pass.convolution);
  if (window.type != CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
    return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not a convolution");
  std::set<int64_t> ids, types;
  for (const auto name : {pass.x, pass.w, pass.y}) {
    if (d.part(name).type != CUDNN_BACKEND_TENSOR_DESCRIPTOR)
      return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not a tensor");
    ids.insert(d.part(name).number(CUDNN_ATTR_TENSOR_UNIQUE_ID));
    types.insert(d.part(name).number(CUDNN_ATTR_TENSOR_DATA_TYPE));
  }
  if (ids.size() != 3) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "two tensors have one id");
  if (types.size() != 1) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "tensors of several types");
  const auto dims = [&](auto name) { return d.part(name).list(CUDNN_ATTR_TENSOR_DIMENSIONS); };
  if (same_sizes(window, dims(pass.x), dims(pass.w), dims(pass.y))) return CUDNN_STATUS_SUCCESS;
  return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "dimensions do not fit the window");
}

cudnnStatus_t finalize_graph(const CudnnDescriptor& d) {
  const auto& operations = d.parts.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (operations.size() == 1 && cudnn_pass(operations[0]->type)) return CUDNN_STATUS_SUCCESS;
  return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the emulation knows graphs of one convolution");
}

CudnnDescriptor::Part final_one(CudnnDescriptor made) {
  made.finalized = true;
  return std::make_shared<const CudnnDescriptor>(std::move(made));
}

CudnnDescriptor::Part config_of(const CudnnEngine& engine, const CudnnDescriptor::Part& graph) {
  CudnnDescriptor inner{.type = CUDNN_BACKEND_ENGINE_DESCRIPTOR};
  inner.numbers[CUDNN_ATTR_ENGINE_GLOBAL_INDEX] = {engine.index};
  inner.numbers[CUDNN_ATTR_ENGINE_NUMERICAL_NOTE].assign(engine.notes.begin(), engine.notes.end());
  CudnnDescriptor config{.type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR};
  config.parts[CUDNN_ATTR_ENGINECFG_ENGINE] = {final_one(std::move(inner))};
  config.engine = std::make_shared<const CudnnEngine>(engine);
  config.graph = graph;
  for (const auto& [type, value] : engine.knobs) {
    CudnnDescriptor knob{.type = CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR};
    knob.numbers[CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE] = {type};
    knob.numbers[CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE] = {value};
    config.parts[CUDNN_ATTR_ENGINECFG_KNOB_CHOICES].push_back(final_one(std::move(knob)));
  }
  return final_one(std::move(config));
}

cudnnStatus_t finalize_heuristics(CudnnDescriptor& d) {
  const auto& graph = d.parts.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)[0];
  if (graph->type != CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
    return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not an operation graph");
  const CudnnDescriptor& operation = graph->part(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const CudnnPass& pass = *cudnn_pass(operation.type);
  const CudnnDescriptor& window = operation.part(pass.convolution);
  const int64_t type = operation.part(pass.x).number(CUDNN_ATTR_TENSOR_DATA_TYPE);
  if (type == CUDNN_DATA_DOUBLE || window.number(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT ||
      window.number(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2 ||
      window.number(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION)
    return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "no engine for this convolution");
  const bool fallback = d.number(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_FALLBACK;
  const std::lock_guard lock(library().mutex);
  ++library().calls.heuristics;
  for (const CudnnEngine& engine : library().engines)
    if (engine.fallback == fallback) d.parts[CUDNN_ATTR_ENGINEHEUR_RESULTS].push_back(config_of(engine, graph));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_plan(CudnnDescriptor& d) {
  bool refused = false;
  api_call([&] {
    refused = refused_while_capturing() != cudaSuccess;  // it may load kernels
    return cudaSuccess;
  });
  if (refused) return cudnn_refuse(CUDNN_STATUS_INTERNAL_ERROR, "a plan is made while a graph is recorded");
  const CudnnDescriptor& config = d.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (!config.engine) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not an engine's configuration");
  const CudnnDescriptor& operation = config.graph->part(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const bool adds = operation.real(cudnn_pass(operation.type)->beta) != 0;
  if (!config.engine->builds || (adds && !config.engine->adds))
    return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "this engine cannot");
  d.engine = config.engine;
  d.graph = config.graph;
  d.numbers[CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE] = {d.engine->workspace_bytes};
  count_cudnn([](CudnnCalls& c) { ++c.plans; });
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_pack(const CudnnDescriptor& d) {
  const auto &ids = d.list(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS), &data = d.list(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (ids.size() != data.size()) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "as many pointers as ids");
  if (std::set<int64_t>(ids.begin(), ids.end()).size() != ids.size())
    return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "an id twice");
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

const CudnnPass* cudnn_pass(cudnnBackendDescriptorType_t operation) {
  const auto found = std::find_if(std::begin(kPasses), std::end(kPasses),
                                  [&](const CudnnPass& pass) { return pass.operation == operation; });
  return found == std::end(kPasses) ? nullptr : &*found;
}

cudnnStatus_t finalize_cudnn(CudnnDescriptor& d) {
  if (const CudnnPass* const pass = cudnn_pass(d.type)) return finalize_operation(d, *pass);
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return finalize_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: return finalize_window(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return finalize_graph(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: return finalize_heuristics(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return finalize_plan(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: return finalize_pack(d);
    default: return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the emulation makes it for the heuristics alone");
  }
}

void set_cudnn_engines(std::vector<CudnnEngine> engines) {
  const std::lock_guard lock(library().mutex);
  library().engines = engines.empty() ? initial_engines() : std::move(engines);
}
void count_cudnn(const std::function<void(CudnnCalls&)>& how) {
  const std::lock_guard lock(library().mutex);
  how(library().calls);
}
CudnnCalls take_cudnn_calls() {
  const std::lock_guard lock(library().mutex);
  return std::exchange(library().calls, {});
}

}  // namespace ringtape::emulation
