#include "train/loop/precision.h"

#include "core/device.h"
#include "kernels/bf16_unit.h"

namespace ringtape {

std::string precision_text(const ExecutionOptions& o) {
  if (o.precision != "bf16") return "";
  if (parse_device(o.device).type != DeviceType::cpu) return "bf16";
  const Bf16Unit unit = bf16_choice().unit;
  return concat(unit == Bf16Unit::converted ? "bf16 " : "bf16 by ", name_of(unit));
}

std::string precision_note(const ExecutionOptions& o) {
  if (parse_device(o.device).type != DeviceType::cpu) return "";
  const bool f16 = o.precision == "f16", fast = bf16_choice().unit != Bf16Unit::converted;
  if (!f16 && (o.precision != "bf16" || fast)) return "";
  return concat("--precision ", o.precision, ": saves memory, but no time: kernels ",
                f16 ? "of CPUs" : "for this processor", " convert ", o.precision, " to f32",
                f16 && fast ? "; bf16 is fast here" : "");
}

}  // namespace ringtape
