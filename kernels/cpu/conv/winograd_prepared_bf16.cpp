#include "kernels/cpu/conv/winograd_bf16_operand.h"
#include "kernels/cpu/conv/winograd_prepared.h"
#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

namespace {

template <class F> void with_winograd(const PreparedConv& conv, F&& f) {
  if (conv.algorithm == ConvAlgorithm::winograd_2x2)
    f.template operator()<PreparedWinograd<bf16, Bf16Operand, F23, F23>>();
  else f.template operator()<PreparedWinograd<bf16, Bf16Operand, F43, F43>>();
}

}  // namespace

void RT_UNIT::pack_winograd_bf16(View w, PreparedConv& conv) {
  with_winograd(conv, [&]<class Conv>() { Conv::pack(w, conv); });
}

void RT_UNIT::run_winograd_bf16(const PreparedCall& call) {
  with_winograd(call.conv, [&]<class Conv>() { Conv(call).run(); });
}

RT_ISA_END
