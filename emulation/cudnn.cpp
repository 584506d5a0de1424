// The stand-in for libcudnn: the interface, and the attributes of descriptors.
#include "emulation/cudnn.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <type_traits>

#include "core/text.h"
#include "emulation/cudart.h"
#include "emulation/report.h"

using namespace ringtape;
using namespace ringtape::emulation;

namespace {

enum class Use : uint8_t { required, optional, result };  // results can be read, not set
struct Rule {
  cudnnBackendDescriptorType_t owner;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t most;  // elements
  Use use = Use::required;
};
constexpr int64_t kMaxDims = 8, kMany = 1000;
constexpr Rule kRules[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, kMaxDims},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, kMaxDims},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, kMaxDims},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, kMaxDims},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, kMaxDims},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, kMaxDims},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, kMany},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, kMany,
     Use::result},
    {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, kMany,
     Use::optional},
    {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1},
    {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1},
    {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1},
    {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, kMany, Use::result},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
     1},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
     Use::result},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, kMany},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, kMany},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, Use::optional},
};

std::vector<Rule> rules_of(cudnnBackendDescriptorType_t type) {
  std::vector<Rule> out;
  for (const Rule& rule : kRules)
    if (rule.owner == type) out.push_back(rule);
  if (const CudnnPass* const pass = cudnn_pass(type)) {
    for (const auto name : {pass->alpha, pass->beta}) out.push_back({type, name, CUDNN_TYPE_FLOAT, 1});
    for (const auto name : {pass->convolution, pass->x, pass->w, pass->y})
      out.push_back({type, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1});
  }
  return out;
}

// Descriptors by address, as callers know them.
struct Descriptors {
  std::mutex mutex;
  std::map<cudnnBackendDescriptor_t, std::shared_ptr<CudnnDescriptor>> alive;
  std::shared_ptr<CudnnDescriptor> find(const void* address) const {
    const auto found = alive.find(const_cast<void*>(address));
    return found == alive.end() ? nullptr : found->second;
  }
};
Descriptors& descriptors() {
  static auto& all = *new Descriptors;
  return all;
}

thread_local std::string last_error;

// Calls f(zero) with a zero of the C type of an attribute's elements.
template <class F> void with_element(cudnnBackendAttributeType_t type, F f) {
  switch (type) {
    case CUDNN_TYPE_FLOAT: return f(0.0f);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return f(int64_t{0});
    default: return f(int{0});  // an enumerator
  }
}

std::vector<int64_t> numbers_from(cudnnBackendAttributeType_t type, const void* from, int64_t count) {
  std::vector<int64_t> out;
  with_element(type, [&]<class T>(T element) {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(&element, static_cast<const char*>(from) + i * int64_t(sizeof element), sizeof element);
      out.push_back(std::is_same_v<T, float> ? std::bit_cast<int64_t>(double(element)) : int64_t(element));
    }
  });
  return out;
}

cudnnStatus_t find_rule(const CudnnDescriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                        Rule& found) {
  for (const Rule& rule : rules_of(d.type)) {
    if (rule.name != name) continue;
    found = rule;
    if (rule.type == type) return CUDNN_STATUS_SUCCESS;
    return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, concat("attribute ", int(name), " has another type"));
  }
  return cudnn_refuse(CUDNN_STATUS_BAD_PARAM,
                      concat("attribute ", int(name), " is none of a descriptor of type ", int(d.type)));
}

cudnnStatus_t read_parts(const std::vector<CudnnDescriptor::Part>& parts, int64_t count, void* to) {
  const std::vector<int64_t> targets = numbers_from(CUDNN_TYPE_BACKEND_DESCRIPTOR, to, count);
  for (int64_t i = 0; i < count; ++i) {
    const auto target = descriptors().find(reinterpret_cast<void*>(targets[size_t(i)]));
    if (!target || target->finalized || target->type != parts[size_t(i)]->type)
      return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not a new descriptor of the type that is read");
    *target = *parts[size_t(i)];
  }
  return CUDNN_STATUS_SUCCESS;
}

template <class F> cudnnStatus_t dnn_call(F f) {
  cudnnStatus_t status = CUDNN_STATUS_NOT_INITIALIZED;
  api_call([&] {
    status = f();
    return cudaSuccess;
  });
  return status;
}

}  // namespace

namespace ringtape::emulation {

cudnnStatus_t cudnn_refuse(cudnnStatus_t status, std::string reason) {
  last_error = std::move(reason);
  return status;
}

double CudnnDescriptor::real(cudnnBackendAttributeName_t name) const { return std::bit_cast<double>(number(name)); }

}  // namespace ringtape::emulation

extern "C" {

size_t cudnnGetVersion(void) { return 0; }  // of no library
void cudnnGetLastErrorString(char* message, size_t size) { std::snprintf(message, size, "%s", last_error.c_str()); }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (int(status) / 1000) {
    case 0: return "CUDNN_STATUS_SUCCESS";
    case 1: return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2: return "CUDNN_STATUS_BAD_PARAM";
    case 3: return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4: return "CUDNN_STATUS_INTERNAL_ERROR";
    default: return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return dnn_call([&] {
    if (refused_while_capturing() != cudaSuccess) return CUDNN_STATUS_INTERNAL_ERROR;  // it allocates
    *handle = new cudnnContext{current_device()};
    count_cudnn([](CudnnCalls& c) { ++c.handles; });
    return CUDNN_STATUS_SUCCESS;
  });
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return dnn_call([&] {
    const auto known = stream_of(stream);
    if (!handle || !known || known->device != handle->device)
      return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "the stream is not of the handle's device");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* out) {
  const std::lock_guard lock(descriptors().mutex);
  if (rules_of(type).empty()) return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, concat("descriptor type ", int(type)));
  auto made = std::make_shared<CudnnDescriptor>(CudnnDescriptor{.type = type});
  *out = made.get();
  descriptors().alive[*out] = std::move(made);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  const std::lock_guard lock(descriptors().mutex);
  return descriptors().alive.erase(descriptor) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* from) {
  const std::lock_guard lock(descriptors().mutex);
  const auto d = descriptors().find(descriptor);
  if (!d || !from) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor, or no elements");
  if (d->finalized) return cudnn_refuse(CUDNN_STATUS_NOT_INITIALIZED, "set after finalize");
  Rule rule{};
  if (const cudnnStatus_t status = find_rule(*d, name, type, rule)) return status;
  if (rule.use == Use::result || count < 1 || count > rule.most)
    return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, concat("attribute ", int(name), " with ", count, " elements"));
  std::vector<int64_t> numbers = numbers_from(type, from, count);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (const int64_t address : numbers) {
      const auto part = descriptors().find(reinterpret_cast<void*>(address));
      if (!part || !part->finalized)
        return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, concat("part of attribute ", int(name)));
    }
  d->numbers[name] = std::move(numbers);
  return CUDNN_STATUS_SUCCESS;
}

// Whether cuDNN copies a part when it is set is not documented: here it must live until the whole is finalised.
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  const std::lock_guard lock(descriptors().mutex);
  const auto d = descriptors().find(descriptor);
  if (!d || d->finalized) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "no descriptor, or one that is final");
  for (const Rule& rule : rules_of(d->type)) {
    if (!d->has(rule.name)) {
      if (rule.use != Use::required) continue;
      return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, concat("attribute ", int(rule.name), " is missing"));
    }
    if (rule.type != CUDNN_TYPE_BACKEND_DESCRIPTOR) continue;
    for (const int64_t address : d->list(rule.name)) {
      auto part = descriptors().find(reinterpret_cast<void*>(address));
      if (!part) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, concat("part of ", int(rule.name), " was destroyed"));
      d->parts[rule.name].push_back(std::move(part));
    }
  }
  const cudnnStatus_t status = finalize_cudnn(*d);
  d->finalized = status == CUDNN_STATUS_SUCCESS;
  return status;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count, void* to) {
  const std::lock_guard lock(descriptors().mutex);
  const auto d = descriptors().find(descriptor);
  if (!d || !d->finalized) return cudnn_refuse(CUDNN_STATUS_NOT_INITIALIZED, "read before finalize");
  Rule rule{};
  if (const cudnnStatus_t status = find_rule(*d, name, type, rule)) return status;
  const bool whole = type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
  const auto parts = d->parts.find(name);
  const auto numbers = d->numbers.find(name);
  const int64_t there = whole ? (parts == d->parts.end() ? 0 : int64_t(parts->second.size()))
                              : (numbers == d->numbers.end() ? 0 : int64_t(numbers->second.size()));
  *count = wanted == 0 ? there : std::min(wanted, there);
  if (wanted == 0 || *count == 0) return CUDNN_STATUS_SUCCESS;
  if (whole) return read_parts(parts->second, *count, to);
  with_element(type, [&]<class T>(T element) {
    for (int64_t i = 0; i < *count; ++i) {
      const int64_t number = numbers->second[size_t(i)];
      element = std::is_same_v<T, float> ? T(std::bit_cast<double>(number)) : T(number);
      std::memcpy(static_cast<char*>(to) + i * int64_t(sizeof element), &element, sizeof element);
    }
  });
  return CUDNN_STATUS_SUCCESS;
}

// The handle is used by one thread at a time, as cuDNN demands: two at once are reported whatever they do.
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  std::shared_ptr<CudnnDescriptor> p, q;
  {
    const std::lock_guard lock(descriptors().mutex);
    p = descriptors().find(plan), q = descriptors().find(pack);
  }
  if (!handle || !p || !q) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle, plan or pack");
  if (!p->finalized || !q->finalized) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "plan or pack");
  if (p->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || q->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not a plan and a pack");
  const bool second = handle->busy.exchange(true);
  run_cudnn_hook(handle->device);
  const cudnnStatus_t status = dnn_call([&] {
    if (second) report("race", {}, concat("two threads execute plans with the handle of cuda:", handle->device));
    return put_cudnn(*handle, *p, *q);
  });
  if (!second) handle->busy = false;
  return status;
}

}  // extern "C"
