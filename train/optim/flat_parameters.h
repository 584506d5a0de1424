#pragma once
#include <functional>
#include <memory>

#include "comm/parallel/sharded_buffers.h"
#include "core/part.h"
#include "nn/module.h"
#include "train/io/safetensors.h"

namespace ringtape {

// How ranks that hold their own values use the others' (comm::ShardedBuffers).
struct Gathering {
  bool keeps = false;
  int within = 0;
  // A 16-bit dtype in which ops use matrices and kernels: these are gathered so, and all other parameters apart.
  DType precision = DType::f32;
};

// The places of parameters in their flat buffer, in elements: each begins on a 64-byte boundary, so that kernels see
// aligned rows.
std::vector<Part> flat_places(const std::vector<nn::Named>& parameters);

// A module's parameters, moved into one buffer (of one dtype and device), and a second buffer for their gradients. The
// module's tensors become views, in the order in which it visits them: one fused loop updates all, and data-parallel
// buckets are slices. The values do not change. The module must outlive this. Throws UsageError for a module without
// parameters or with one parameter under two names, DTypeError for parameters of two dtypes or devices.
class FlatParameters {
 public:
  // Memory for `size` gradients, or values, of `parameters` parameters: a contiguous tensor of that size, zeros;
  // undefined if gradients get memory as they come, or values stay where they are until hold_own().
  using Memory = std::function<Tensor(int64_t size, int64_t parameters, DType dtype, Device device)>;
  // `common`: a group whose ranks get the same memory for values, to which one of them writes. They begin with those
  // of its rank 0. It must outlive this.
  explicit FlatParameters(nn::Module& module, const Memory& gradients = {}, const Memory& values = {},
                          comm::ProcessGroup* common = nullptr);

  bool has_common_values() const { return common_; }
  // Common values: call it before values are written, and behind that before others' are used: all ranks do. No effect
  // on values of one rank.
  void meet() const;

  const Tensor& values() const { return values_; }        // (size); undefined after hold_own()
  Tensor values(Part own) const;                          // elements of it
  const Tensor& gradients() const { return gradients_; }  // (size) or own; undefined values without a gradient
  Tensor gradients(Part own) const;                       // elements of it
  bool has_gradient(size_t parameter) const;
  int64_t size() const { return size_; }
  DType dtype() const { return dtype_; }
  Device device() const { return cells_on_device_.device(); }
  void keep_writes() const;            // call it before own values are read or changed here
  void written(const char* by) const;  // and this after they have changed

  // Ranges of the buffers whose parameters have a gradient; one range if all of them have.
  std::vector<Part> with_gradient() const;

  // From now on this rank updates only its own elements, and has the sums of only their gradients; it has all values.
  // Initially it updates all.
  // `gradients` (own_size()): the own ones, if the buffer has none; `reached`: which parameters have one (must outlive
  // this).
  void shard(const comm::Shards& shards, const Tensor& gradients, const std::vector<char>& reached);
  // After shard(): this rank holds its own elements of rank 0's values only, own_values(). The module's tensors become
  // windows of the result, which the caller keeps, and have memory while they are used; until then they keep their own.
  std::unique_ptr<comm::ShardedBuffers> hold_own(comm::ProcessGroup& group, const comm::Shards& shards,
                                                 const Gathering& gathering);
  const Tensor& own_values() const { return own_values_; }  // (own_size()); undefined unless values() is
  const Tensor& held_values() const { return values_.defined() ? values_ : own_values_; }
  const std::vector<Part>& own() const { return own_; }  // ascending
  std::vector<Part> own_with_gradient() const;
  int64_t own_size() const;
  // Elements [part.begin, part.end) of the buffers, which are own and follow one another, in a buffer (own_size()) that
  // has nothing else; undefined for an undefined one.
  Tensor own_part(const Tensor& buffer, Part part) const;

  // The cells (cells_of) of all parameters, in their order: (C, 4) i64 on the CPU: begin and end in the buffers; the
  // number of earlier cells of the same parameter; the parameter's number of cells.
  const Tensor& cells() const { return cells_; }
  Part cells_in(Part run) const;  // those in a run of whole cells
  // (C) f64, the sum of squares of each cell: of the own gradients; of the values. 0 for cells of other ranks, also of
  // values after hold_own().
  Tensor gradient_squares() const;
  Tensor value_squares() const;

  void zero_grad();  // writes no memory: the next backward() writes instead of adding

  // While it lives, conversions of matrices and kernels to a 16-bit dtype are windows of one conversion of the whole
  // buffer, until that is written to. No effect for parameters of another dtype than f32, and after hold_own().
  class Converted {
   public:
    Converted(const FlatParameters& parameters, DType dtype);
    ~Converted();
    Converted(const Converted&) = delete;
    Converted& operator=(const Converted&) = delete;

   private:
    const FlatParameters* parameters_ = nullptr;  // null: no effect
  };

  // Elements [begin, end) of the buffers; the parameter's elements come first, then padding.
  struct Parameter {
    std::string name;
    NodePtr node;
    int64_t begin, end;
    Tensor* tensor;  // the module's
  };
  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  void add_squares(const Tensor& squares, const Tensor& elements, Part run) const;

  DType dtype_;
  int64_t size_ = 0;
  Tensor values_, own_values_, gradients_, cells_, cells_on_device_;
  comm::ProcessGroup* common_;
  comm::ShardedBuffers* buffers_ = nullptr;  // of hold_own()
  std::vector<Parameter> parameters_;
  std::vector<Part> own_;
  const std::vector<char>* reached_ = nullptr;  // null: those whose leaf has one
};

}  // namespace ringtape
