#include "train/loop/execution.h"

#include "core/device.h"
#include "core/parallel.h"
#include "core/runtime.h"
#include "kernels/arithmetic.h"
#include "kernels/bf16_unit.h"
#include "train/run/environment.h"

namespace ringtape {

void visit(Fields& f, ExecutionOptions& o) {
  f("device", o.device,
    {.help = "auto, cpu, cpu:N, cuda or cuda:N",
     .unit = "DEVICE",
     .scope = FieldScope::rank,
     .may_change = true,
     .evaluates = true});
  f("threads", o.threads,
    {.help = "threads of the CPU kernels",
     .unit = "N",
     .range = {1, 1024},
     .automatic = "RINGTAPE_THREADS, else all cores",
     .scope = FieldScope::rank,
     .may_change = true,
     .evaluates = true});
  f("workers", o.workers,
    {.help = "background threads that prepare batches; 0: none",
     .unit = "N",
     .range = {0, 256},
     .scope = FieldScope::rank,
     .may_change = true,
     .evaluates = true});
  f("prefetch-memory", o.prefetch_memory,
    {.help = "MiB that training batches may take which wait for their step, though at least two may wait",
     .unit = "N",
     .range = {1, 1e9},
     .scope = FieldScope::rank,
     .may_change = true});
  f("seed", o.seed,
    {.help = "seed of initial weights, order of images, dropout and generated images",
     .unit = "N",
     .range = {0, 9e15},
     .scope = FieldScope::weights});
  f("precision", o.precision,
    {.help = "number type of matrix products and activations; weights and sums stay f32. tf32: f32, but products on a "
             "GPU round to 11 bits. auto: bf16 where the device has units for it, else f32",
     .unit = "TYPE",
     .choices =
         [] {
           return std::vector<std::string>{"auto", "f32", "tf32", "bf16", "f16"};
         },
     .automatic = "tf32 on a GPU whose tensor cores multiply it, else f32",
     .evaluates = true});
  f("deterministic", o.deterministic,
    {.help = "reproduce the same bytes in every run; CPU kernels always do, for any --threads"});
  f("no-graph", o.no_graph,
    {.help = "on a GPU: launch every kernel of every step, instead of recording a step once and repeating it",
     .scope = FieldScope::rank,
     .may_change = true});
}

DType compute_dtype(const ExecutionOptions& o) {
  return o.precision.empty() || o.precision == "tf32" ? DType::f32 : parse_dtype(o.precision);
}

Arithmetic arithmetic_of(const ExecutionOptions& o) {
  Arithmetic out = arithmetic();
  out.tf32 = o.precision == "tf32", out.deterministic_convolutions = o.deterministic;
  return out;
}

void settle(ExecutionOptions& o) {
  if (o.device == "auto") o.device = available({DeviceType::cuda, 0}) ? "cuda:0" : "cpu:0";
  const Device device = parse_device(o.device);
  runtime(device);
  o.device = device.str();
  if (o.precision == "auto") o.precision = auto_precision(device);
  if (o.precision.empty()) o.precision = device.type == DeviceType::cuda && multiplies_bf16(device) ? "tf32" : "f32";
  if (o.threads == 0) o.threads = threads();
}

std::string precision_text(const ExecutionOptions& o) {
  const bool cpu = parse_device(o.device).type == DeviceType::cpu;
  if (!cpu && o.precision == "tf32") return "tf32";
  if (o.precision != "bf16") return "";
  if (!cpu) return "bf16";
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
