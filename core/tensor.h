#pragma once
#include <cstddef>
#include <memory>
#include <ostream>
#include <span>
#include <vector>

#include "core/devices.h"
#include "core/storage.h"
#include "core/view.h"

namespace ringtape {

struct Node;  // autograd's record of a tensor: autograd/tape.h

// An n-dimensional array. Copies share the storage and the node of the recorded graph. Views (from reshape, permute,
// slice) share the storage too. An undefined tensor (default-constructed) stands for "none".
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor&);  // these are not inlined: their code is long, and everywhere
  Tensor(Tensor&&) noexcept;
  Tensor& operator=(const Tensor&);
  Tensor& operator=(Tensor&&) noexcept;
  ~Tensor();
  explicit Tensor(const Shape& shape, DType dtype = DType::f32, Device device = {});  // uninitialised
  Tensor(std::shared_ptr<Storage> storage, const Shape& shape, DType dtype);          // the first elements of `storage`

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }  // in elements
  int rank() const { return shape_.rank(); }
  int64_t dim(int axis) const { return shape_[normalize_axis(axis, rank(), "dim")]; }
  int64_t size() const { return shape_.size(); }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_ ? storage_->device() : Device{}; }
  bool contiguous() const { return View(*this).contiguous(); }

  operator View() const;

  // The elements of a tensor on a CPU device; throws DTypeError or DeviceError. span() needs a contiguous tensor.
  template <class T> T* data() const {
    check_host(dtype_of<T>::value);
    return static_cast<T*>(raw());
  }
  template <class T> std::span<T> span() const {
    RT_CHECK_AS(ShapeError, contiguous(), "span of a tensor with strides ", strides_, "; call contiguous(x) first");
    return {data<T>(), size_t(size())};
  }
  double item() const;  // the only element of a one-element tensor, from any device (waits for it)

  // A view of the same storage; `offset` in elements from this tensor's first. Not recorded: autograd's reshape,
  // permute and slice use it.
  Tensor window(const Shape& shape, const Shape& strides, int64_t offset = 0) const;
  Tensor detach() const;                // the same elements, outside the graph
  Tensor copy_to(Device device) const;  // a new tensor; needs contiguous(); not recorded

  const std::shared_ptr<Storage>& storage() const { return storage_; }
  const std::shared_ptr<Node>& node() const { return node_; }
  void set_node(std::shared_ptr<Node> node) { node_ = std::move(node); }

  std::string str() const;  // values (summarised beyond 1000 elements), shape, dtype and device

 private:
  void* raw() const;
  void check_host(DType wanted) const;

  std::shared_ptr<Storage> storage_;
  std::shared_ptr<Node> node_;
  Shape shape_, strides_;
  int64_t offset_ = 0;  // bytes
  DType dtype_ = DType::f32;
};

using Tensors = std::vector<Tensor>;

inline std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << x.str(); }
inline std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.str(); }
inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }
inline std::ostream& operator<<(std::ostream& out, Device device) { return out << device.str(); }

inline Tensor empty_like(const Tensor& x) { return Tensor(x.shape(), x.dtype(), x.device()); }
Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});

namespace detail {
Tensor from_host(const void* values, size_t count, DType dtype, const Shape& shape, Device device);
}

// A tensor holding a copy of host values, in row-major order; throws ShapeError if the counts differ.
template <class T> Tensor from_host(std::span<const T> values, const Shape& shape, Device device = {}) {
  return detail::from_host(values.data(), values.size(), dtype_of<T>::value, shape, device);
}
template <class T> Tensor from_host(const std::vector<T>& values, const Shape& shape, Device device = {}) {
  return from_host(std::span<const T>(values), shape, device);
}

}  // namespace ringtape
