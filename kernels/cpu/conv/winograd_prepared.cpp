#include "kernels/cpu/conv/winograd_prepared.h"

#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

namespace {

// Calls f.operator()<the convolution>() for the dtype and the tile of `conv`.
template <class F> void with_winograd(const PreparedConv& conv, F&& f) {
  dispatch_float(conv.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      if (conv.algorithm == ConvAlgorithm::winograd_2x2)
        f.template operator()<PreparedWinograd<T, F32Operand, F23, F23>>();
      else f.template operator()<PreparedWinograd<T, F32Operand, F43, F43>>();
    }
  });
}

}  // namespace

void pack_winograd(View w, PreparedConv& conv) {
  with_winograd(conv, [&]<class Conv>() { Conv::pack(w, conv); });
}

void run_winograd(const PreparedCall& call) {
  with_winograd(call.conv, [&]<class Conv>() { Conv(call).run(); });
}

RT_ISA_END
