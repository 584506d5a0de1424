// Convolutions of bf16 by AMX: forward, and backward data, all of whose phases share the tiles of their input.
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/conv/conv2d_amx_sums.h"
#include "kernels/cpu/conv/conv2d_operands.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

constexpr int64_t kPanel = 2 * kAmxPairs;  // columns
constexpr int64_t kStreamed = 1 << 21;     // elements that no L2 cache keeps for the next kernel

class AmxConvolution {
 public:
  AmxConvolution(const DirectOperands<bf16>& o, const std::vector<Axes>& phases, const PixelNorm& of_in = {})
      : o_(o), norm_(normalize_of<bf16>(o.h * o.w, o.c, of_in)),
        folded_(phases.size() == 1 && o.depth_stride == 1 && o.depth == o.c && folds(o.depth, phases[0])),
        parts_(parts_of(o.n, phases, folded_)),
        input_{o.in, o.n, o.h, o.w, o.c, o.depth, folded_ ? phases.data() : nullptr, read_parts(o.h, phases)},
        blocks_(input_.blocks()), panels_(ceil_div(o.columns, kPanel)) {
    if (norm_) input_.norm = &*norm_;
    for (const Axes& axes : phases) {
      if (axes.rows.taps * axes.cols.taps == 0) zeros_ = true;
      if (axes.rows.taps * axes.cols.taps == 0) continue;
      phases_.push_back({axes, axes, 0, false});
      Phase& p = phases_.back();
      if (folded_) p.sums = {folded_axis(axes.rows), folded_axis(axes.cols)};
      const Axis& cols = p.sums.cols;
      p.strips = cols.taps == 3 && cols.in_step == 1 && cols.tap_step == 1 && cols.in_first == -1 &&
                 cols.places == input_.pixels();
      p.weights = weights_size_;
      weights_size_ += panels_ * panel_size(p);
    }
  }

  void run(Device device) const {
    if (o_.n == 0) return;
    if (zeros_) write_zeros();
    if (phases_.empty()) return;
    // Few rows at a time, or several blocks of images, for which weights are read once.
    const int64_t image_blocks = ceil_div(input_.count(), kAmxRows);
    int64_t groups = 1;
    while (groups < parts_.rows && gathered_rows(group(0, groups)) * row_size() > kGathered) ++groups;
    int64_t largest = 0;
    for (int64_t g = 0; g < groups; ++g) largest = std::max(largest, gathered_rows(group(g, groups)) * row_size());
    const int64_t fit = std::max<int64_t>(kGathered / std::max<int64_t>(largest, 1), 1);
    const int64_t chunks = std::max(ceil_div(image_blocks, fit), std::min<int64_t>(image_blocks, threads()));
    // Threads beyond the chunks divide the columns.
    const int64_t splits = std::clamp<int64_t>(threads() / (chunks * groups), 1, panels_);
    const int64_t items = chunks * groups * splits, each = ceil_div(image_blocks, chunks) * largest;
    const Scratch<bf16> scratch(weights_size_ + parts_for(items) * each, device);
    const Scratch<float> bias(panels_ * kPanel, device);
    for (int64_t j = 0; j < panels_ * kPanel; ++j) bias.data()[j] = o_.bias && j < o_.columns ? float(o_.bias[j]) : 0.f;
    pack(scratch.data());
    parallel_items(items, [&](int64_t part, const auto& next) {
      Amx unit;
      Sums sums;
      for (int64_t q = next(); q < items; q = next())
        run_item(unit, part_of(image_blocks, chunks, q / splits / groups), group(q / splits % groups, groups),
                 part_of(panels_, splits, q % splits), scratch.data(), bias.data(),
                 scratch.data() + weights_size_ + part * each, sums);
    });
  }

 private:
  struct Phase {
    Axes axes, sums;  // sums: as the products see them, of folded images with one tap
    int64_t weights;  // where its tiles begin
    bool strips;
  };
  // One buffer is filled while the other is written out.
  struct Sums {
    alignas(64) float data[2][kMaxOutputs * kOutput];
    int now = 0;
    PendingSums pending;
  };

  // All phases have the same rows but for one at the end.
  static AmxParts parts_of(int64_t n, const std::vector<Axes>& phases, bool folded) {
    if (phases.empty()) return {1, 0};
    if (folded) return amx_parts(n, folded_axis(phases[0].rows), kAmxRows);
    Axis rows = phases[0].rows;
    for (const Axes& p : phases) rows.taps = std::max(rows.taps, p.rows.taps);
    return amx_parts(n, rows, kAmxRows);
  }
  AmxParts read_parts(int64_t height, const std::vector<Axes>& phases) const {
    if (phases.empty()) return {1, height};
    if (folded_) return parts_;
    return input_parts(parts_, phases[0].rows, height);
  }

  int64_t row_size() const { return input_.pixels() * blocks_ * kAmxTile; }
  int64_t panel_size(const Phase& p) const { return p.sums.rows.taps * p.sums.cols.taps * blocks_ * 2 * kAmxTile; }
  Range group(int64_t g, int64_t groups) const { return part_of(parts_.rows, groups, g); }

  // Of outputs without a tap.
  void write_zeros() const {
    parallel_for(o_.n * o_.out_h * o_.out_w, 1 << 10, [&](int64_t begin, int64_t end) {
      if (o_.columns == o_.out_c) std::fill_n(o_.out + begin * o_.out_c, (end - begin) * o_.out_c, bf16());
      else
        for (int64_t p = begin; p < end; ++p) std::fill_n(o_.out + p * o_.out_c, o_.columns, bf16());
    });
  }

  // The rows of the input that rows `places` of all phases need.
  Range needed_rows(Range places) const {
    int64_t low = input_.rows(), high = std::numeric_limits<int64_t>::min();
    for (const Phase& p : phases_) {
      const Axis& a = p.sums.rows;
      if (a.taps == 0 || places.begin >= a.places) continue;
      const int64_t last = std::min(places.end, a.places) - 1;
      low = std::min(low, a.in_first + places.begin * a.in_step);
      high = std::max(high, a.in_first + last * a.in_step + (a.taps - 1) * a.tap_step + 1);
    }
    return input_.existing({low, high});
  }
  int64_t gathered_rows(Range places) const { return needed_rows(places).size(); }

  // Of each panel of columns: strips [half][row tap][block][3] tiles, else [tap][block][2].
  void pack(bf16* to) const {
    for (const Phase& p : phases_)
      parallel_for(panels_ * p.sums.rows.taps, 1, [&](int64_t begin, int64_t end) {
        for (int64_t q = begin; q < end; ++q) pack_row(p, q / p.sums.rows.taps, q % p.sums.rows.taps, to);
      });
  }
  void pack_row(const Phase& p, int64_t panel, int64_t t, bf16* weights) const {
    const int64_t cols = p.sums.cols.taps;
    bf16* const to = weights + p.weights + panel * panel_size(p);
    for (int64_t u = 0; u < cols; ++u)
      for (int64_t d = 0; d < blocks_; ++d)
        for (int64_t half = 0; half < 2; ++half) {
          const int64_t tile = p.strips ? ((half * p.sums.rows.taps + t) * blocks_ + d) * 3 + u
                                        : ((t * cols + u) * blocks_ + d) * 2 + half;
          pack_tap(p, t, u, d * kAmxDepth, panel * kPanel + half * kAmxPairs, to + tile * kAmxTile);
        }
  }
  void pack_tap(const Phase& p, int64_t t, int64_t u, int64_t d, int64_t column, bf16* to) const {
    const Axis &rows = p.axes.rows, &cols = p.axes.cols;
    const int64_t r = rows.kernel_first + t * rows.kernel_step, s = cols.kernel_first + u * cols.kernel_step;
    pack_tile<true>(o_.weights + (r * o_.kernel_w + s) * o_.tap + d * o_.depth_stride + column * o_.column_stride,
                    o_.depth_stride, o_.column_stride, std::max<int64_t>(input_.whole_depth() - d, 0),
                    std::max<int64_t>(o_.columns - column, 0), to);
  }

  void run_item(Amx& unit, Range image_blocks, Range places, Range panels, const bf16* weights, const float* bias,
                bf16* tiles, Sums& sums) const {
    const Range rows = needed_rows(places);
    const int64_t size = rows.size() * row_size();
    for (int64_t b = image_blocks.begin; b < image_blocks.end; ++b)
      input_.gather(b * kAmxRows, rows, {0, blocks_}, tiles + (b - image_blocks.begin) * size);
    const int64_t together = rows_together(places);
    for (int64_t i = places.begin; i < places.end; i += together)
      for (const Phase& p : phases_)
        for (int64_t q = panels.begin; q < panels.end; ++q)
          for (int64_t b = image_blocks.begin; b < image_blocks.end; ++b)
            run_rows(unit, p, {i, std::min({i + together, places.end, p.axes.rows.places})}, q, b,
                     tiles + (b - image_blocks.begin) * size, rows, weights, bias, sums);
  }

  // Rows of outputs that stay in the L2 cache while phases and panels fill them: their lines come in pairs. All, if
  // that would read many weights too often.
  int64_t rows_together(Range places) const {
    if (weights_size_ > kGathered / 2) return places.size();
    const int64_t row = kAmxRows * o_.out_w * o_.out_c * phases_[0].axes.rows.out_step;
    return std::clamp<int64_t>(kGathered / 4 / row, 1, places.size());
  }

  void run_rows(Amx& unit, const Phase& p, Range places, int64_t panel, int64_t block, const bf16* tiles, Range have,
                const bf16* weights, const float* bias, Sums& sums) const {
    const SumOutput out{bias + panel * kPanel, std::min(kAmxRows, input_.count() - block * kAmxRows),
                        p.axes.cols.out_step * o_.out_c, std::min(o_.columns - panel * kPanel, kPanel),
                        o_.n * o_.out_h * o_.out_w * o_.out_c > kStreamed};
    // The last part of an image may have fewer rows.
    const int64_t last = p.axes.rows.places - (parts_.count - 1) * parts_.rows;
    const ImageOffsets all = offsets(p, block, parts_.count), most = offsets(p, block, parts_.count - 1);
    for (int64_t i = places.begin; i < places.end; ++i)
      run_row(unit, p, i, tiles, have, weights + p.weights + panel * panel_size(p), out, i < last ? all : most,
              o_.out + panel * kPanel, sums);
    sums.pending.write(out, sums.pending.rows);
  }
  // Of a block's images that are one of the first `parts` of the whole one.
  ImageOffsets offsets(const Phase& p, int64_t block, int64_t parts) const {
    const int64_t row = o_.out_w * o_.out_c;
    ImageOffsets to;
    for (int64_t i = 0; i < kAmxRows; ++i) {
      const int64_t image = block * kAmxRows + i, part = image % parts_.count;
      to[size_t(i)] =
          part >= parts ? -1 : image / parts_.count * o_.out_h * row + part * parts_.rows * p.axes.rows.out_step * row;
    }
    return to;
  }

  // One row of outputs of 16 images.
  void run_row(Amx& unit, const Phase& p, int64_t i, const bf16* tiles, Range have, const bf16* weights,
               const SumOutput& out, const ImageOffsets& images, bf16* to, Sums& s) const {
    const Axis &rows = p.sums.rows, &cols = p.sums.cols;
    const bf16* taps[kMaxAmxTaps];
    const SumInput x{taps, rows.taps, blocks_, input_.pixels()};
    for (int64_t t = 0; t < rows.taps; ++t) {
      const int64_t r = rows.in_first + i * rows.in_step + t * rows.tap_step;
      taps[t] = r >= have.begin && r < have.end ? tiles + (r - have.begin) * row_size() : nullptr;
    }
    to += ((p.axes.rows.out_first + i * p.axes.rows.out_step) * o_.out_w + p.axes.cols.out_first) * o_.out_c;
    const int64_t count = p.strips ? kMaxOutputs : 2;
    for (int64_t j = 0; j < cols.places; j += count, to += count * out.pixel_stride) {
      const int64_t outputs = std::min(count, cols.places - j);
      float* const own = s.data[s.now];
      if (p.strips) kStripSums[outputs - 1][j > 0][j + outputs < cols.places](unit, x, j, out, weights, own, s.pending);
      else pair_sums(unit, x, cols, cols.in_first + j * cols.in_step, outputs == 2, out, weights, own, s.pending);
      s.now ^= 1;
      s.pending.begin(own, to, images, outputs, out);
    }
  }

  DirectOperands<bf16> o_;
  std::optional<Normalize<bf16>> norm_;
  bool folded_;
  AmxParts parts_;
  AmxImages input_;
  int64_t blocks_, panels_;
  std::vector<Phase> phases_;
  int64_t weights_size_ = 0;
  bool zeros_ = false;  // some outputs have no tap
};

}  // namespace

void RT_UNIT::amx_forward(View y, View x, View w, View b, Window p, PixelNorm of_x) {
  const ConvSizes z(y, x, w);
  const std::vector<Axes> axes = {forward_axes(z, p)};
  for (int64_t g = 0; g < z.groups; ++g)
    AmxConvolution(forward_operands<bf16>(y, x, w, b, g), axes, of_x).run(y.device);
}

void RT_UNIT::amx_backward_data(View dx, View dy, View w, Window p) {
  const ConvSizes z(dy, dx, w);
  const std::vector<Axes> phases = backward_phases(z, p);
  for (int64_t g = 0; g < z.groups; ++g) AmxConvolution(backward_operands<bf16>(dx, dy, w, g), phases).run(dx.device);
}

RT_ISA_END
