// The stand-in for libcudnn: checks of operands, and the convolution.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "core/dtype.h"
#include "core/text.h"
#include "emulation/cudart.h"
#include "emulation/cudnn.h"
#include "emulation/memory.h"
#include "emulation/report.h"

namespace ringtape::emulation {
namespace {

struct Tensor {
  std::string name;
  int64_t type, alignment;
  std::vector<int64_t> dims, strides;
  char* data = nullptr;

  Tensor(const char* called, const CudnnDescriptor& d)
      : name(called), type(d.number(CUDNN_ATTR_TENSOR_DATA_TYPE)),
        alignment(d.number(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)), dims(d.list(CUDNN_ATTR_TENSOR_DIMENSIONS)),
        strides(d.list(CUDNN_ATTR_TENSOR_STRIDES)) {}
  size_t element() const { return type == CUDNN_DATA_FLOAT ? 4 : 2; }
  size_t bytes() const {  // from the first element to the end of the last
    int64_t last = 0;
    for (size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
    return size_t(last + 1) * element();
  }
  int64_t size() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t row_major(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return ((a * dims[1] + b) * dims[2] + c) * dims[3] + d;
  }
  template <class F> void each(F f) const {  // f(row-major index, address)
    int64_t i = 0;
    for (int64_t a = 0; a < dims[0]; ++a)
      for (int64_t b = 0; b < dims[1]; ++b)
        for (int64_t c = 0; c < dims[2]; ++c)
          for (int64_t d = 0; d < dims[3]; ++d)
            f(i++, data + (a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]) * int64_t(element()));
  }
  std::vector<double> load() const;
  void store(const std::vector<double>& values, double alpha, double beta) const;
};

double load_number(int64_t type, const void* from) {
  const auto as = [&](auto zero) {
    std::memcpy(&zero, from, sizeof zero);
    return double(float(zero));
  };
  return type == CUDNN_DATA_FLOAT ? as(0.0f) : type == CUDNN_DATA_HALF ? as(f16()) : as(bf16());
}

std::vector<double> Tensor::load() const {
  std::vector<double> out(static_cast<size_t>(size()));
  bool written = true;
  each([&](int64_t i, const char* p) {
    written = written && initialised(p, element());
    out[size_t(i)] = load_number(type, p);
  });
  if (!written) report("uninitialised", {}, concat("cudnnBackendExecute: ", name, " has elements never written"));
  return out;
}

void Tensor::store(const std::vector<double>& values, double alpha, double beta) const {
  const std::vector<double> before = beta != 0 ? load() : std::vector<double>(values.size());
  each([&](int64_t i, char* p) {
    const double y = alpha * values[size_t(i)] + beta * before[size_t(i)];
    const auto as = [&](auto value) { std::memcpy(p, &value, sizeof value); };
    if (type == CUDNN_DATA_FLOAT) as(float(y));
    else if (type == CUDNN_DATA_HALF) as(f16(float(y)));
    else as(bf16(float(y)));
    mark_initialised(p, element());
  });
}

// One convolution, with everything that it needs when the stream reaches it.
struct Convolution {
  const CudnnPass* pass;
  Tensor x, w, y;
  std::vector<int64_t> pad, stride, dilation;
  double alpha, beta;
  std::shared_ptr<const CudnnEngine> engine;
  void* workspace = nullptr;

  Convolution(const CudnnDescriptor& op, const CudnnDescriptor& plan)
      : pass(cudnn_pass(op.type)), x("x", op.part(pass->x)), w("w", op.part(pass->w)), y("y", op.part(pass->y)),
        pad(op.part(pass->convolution).list(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)),
        stride(op.part(pass->convolution).list(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)),
        dilation(op.part(pass->convolution).list(CUDNN_ATTR_CONVOLUTION_DILATIONS)), alpha(op.real(pass->alpha)),
        beta(op.real(pass->beta)), engine(plan.engine) {}
  Tensor& output() { return pass->output == pass->x ? x : pass->output == pass->w ? w : y; }
  template <class F> void each_product(F f) const;
  void run();
};

// f(index in x, in w, in y) for every product of the sums, by the plain definition.
template <class F> void Convolution::each_product(F f) const {
  const int64_t groups = x.dims[1] / w.dims[1], of_group = w.dims[0] / groups;
  for (int64_t n = 0; n < y.dims[0]; ++n)
    for (int64_t k = 0; k < y.dims[1]; ++k)
      for (int64_t i = 0; i < y.dims[2]; ++i)
        for (int64_t j = 0; j < y.dims[3]; ++j)
          for (int64_t r = 0; r < w.dims[2]; ++r)
            for (int64_t s = 0; s < w.dims[3]; ++s) {
              const int64_t h = i * stride[0] + r * dilation[0] - pad[0], v = j * stride[1] + s * dilation[1] - pad[1];
              if (h < 0 || h >= x.dims[2] || v < 0 || v >= x.dims[3]) continue;
              for (int64_t c = 0; c < w.dims[1]; ++c)
                f(x.row_major(n, k / of_group * w.dims[1] + c, h, v), w.row_major(k, c, r, s), y.row_major(n, k, i, j));
            }
}

void Convolution::run() {
  for (const Tensor* t : {&x, &w, &y})
    if (!inside_live(t->data, t->bytes()))
      return report("not-allocated", {}, concat("cudnnBackendExecute: ", t->name, ", ", describe(t->data)));
  if (const size_t bytes = size_t(engine->workspace_bytes)) {
    if (!inside_live(workspace, bytes)) return report("not-allocated", {}, "cudnnBackendExecute: the workspace");
    std::memset(workspace, 0xA5, bytes);  // so that nobody else can use it at this time
    mark_initialised(workspace, bytes);
  }
  Tensor& out = output();
  const std::vector<double> a = &out == &x ? y.load() : x.load(), b = &out == &w ? y.load() : w.load();
  std::vector<double> sums(size_t(out.size()));
  const auto add = [&](int64_t to, int64_t i, int64_t j) { sums[size_t(to)] += a[size_t(i)] * b[size_t(j)]; };
  each_product([&](int64_t in_x, int64_t in_w, int64_t in_y) {
    if (&out == &y) add(in_y, in_x, in_w);
    else if (&out == &x) add(in_x, in_y, in_w);
    else add(in_w, in_x, in_y);
  });
  out.store(sums, alpha, beta);
  pass_time(engine->milliseconds);
}

cudnnStatus_t misplaced(const std::string& what, const void* p, size_t bytes, int device) {
  report("out-of-bounds", {},
         concat("cudnnBackendExecute: ", what, ", ", bytes, " bytes from ", is_device(p) ? describe(p) : "host memory",
                ", is not in one buffer of cuda:", device));
  return cudnn_refuse(CUDNN_STATUS_EXECUTION_FAILED, what);
}

// Finds the data of the tensors in a pack.
cudnnStatus_t bind(Convolution& c, const CudnnDescriptor& op, const CudnnDescriptor& pack, int device) {
  std::vector<int64_t> ids = pack.list(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const std::pair<Tensor*, cudnnBackendAttributeName_t> operands[] = {
      {&c.x, c.pass->x}, {&c.w, c.pass->w}, {&c.y, c.pass->y}};
  for (const auto& [t, name] : operands) {
    const auto at = std::find(ids.begin(), ids.end(), op.part(name).number(CUDNN_ATTR_TENSOR_UNIQUE_ID));
    if (at == ids.end()) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "no pointer for " + t->name);
    const int64_t address = pack.list(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)[size_t(at - ids.begin())];
    t->data = reinterpret_cast<char*>(address);
    *at = -1;
    if (!t->data) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, t->name);
    if (address % t->alignment) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, t->name);
    if (!owned_by(t->data, t->bytes(), device)) return misplaced(t->name, t->data, t->bytes(), device);
  }
  if (std::any_of(ids.begin(), ids.end(), [](int64_t id) { return id != -1; }))
    return cudnn_refuse(CUDNN_STATUS_BAD_PARAM, "an id that no tensor has");
  const size_t bytes = size_t(c.engine->workspace_bytes);
  if (bytes == 0) return CUDNN_STATUS_SUCCESS;
  if (pack.has(CUDNN_ATTR_VARIANT_PACK_WORKSPACE))
    c.workspace = reinterpret_cast<void*>(pack.number(CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
  if (!c.workspace) return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the workspace");
  return owned_by(c.workspace, bytes, device) ? CUDNN_STATUS_SUCCESS
                                              : misplaced("the workspace", c.workspace, bytes, device);
}

struct Hook {
  std::mutex mutex;
  std::function<void(int)> call;
};
Hook& hook() {
  static auto& one = *new Hook;
  return one;
}

}  // namespace

void at_cudnn_execute(std::function<void(int device)> call) {
  const std::lock_guard lock(hook().mutex);
  hook().call = std::move(call);
}

cudnnStatus_t put_cudnn(cudnnContext& handle, const CudnnDescriptor& plan, const CudnnDescriptor& pack) {
  const bool ours = reinterpret_cast<cudnnHandle_t>(plan.number(CUDNN_ATTR_EXECUTION_PLAN_HANDLE)) == &handle &&
                    reinterpret_cast<cudnnHandle_t>(plan.graph->number(CUDNN_ATTR_OPERATIONGRAPH_HANDLE)) == &handle;
  const auto stream = stream_of(handle.stream);
  if (!ours || current_device() != handle.device || !stream || stream->device != handle.device)
    return cudnn_refuse(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "handle, plan, stream and device of several kinds");
  const CudnnDescriptor& operation = plan.graph->part(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  Convolution work(operation, plan);
  if (const cudnnStatus_t status = bind(work, operation, pack, handle.device)) return status;
  count_cudnn([&](CudnnCalls& c) { c.executions.push_back({&handle, handle.device, plan.engine->index}); });
  if (!plan.engine->recordable && refused_on(*stream) != cudaSuccess)
    return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the engine cannot be captured");
  pass_host_time(plan.engine->launch_milliseconds);
  put(*stream, [work]() mutable { work.run(); });
  return CUDNN_STATUS_SUCCESS;
}

void run_cudnn_hook(int device) {
  std::function<void(int)> call;
  {
    const std::lock_guard lock(hook().mutex);
    call = hook().call;
  }
  if (call) call(device);
}

}  // namespace ringtape::emulation
