#pragma once
#include <map>
#include <optional>
#include <string>

// What the tests of the emulation expect of its planted bugs (bugs.h).
namespace ringtape::emulation {

#if defined(__aarch64__)
inline constexpr bool kArm = true;  // which divides by zero without a signal
#else
inline constexpr bool kArm = false;
#endif

// For each planted bug: the report of a checked executable ("race|in-flight": either, as the schedule has it) and of
// any executable ("": none, "?": unspecified); whether results are wrong under at least one schedule; whether a build
// with AddressSanitizer and UndefinedBehaviorSanitizer stops at it; the comment at the place, by default the bug's name
// ("": the schedule decides which place).
struct Expected {
  const char* checked;
  const char* plain = "";
  bool wrong_values = false;
  bool stops_asan = false;
  std::optional<std::string> mark = {};
};
inline const std::map<std::string, Expected> kExpected = {
    {"missing_barrier", {"race", "", true}},
    {"tile_reuse", {"race", "", true}},
    {"missing_syncwarp", {"race", "", true}},
    {"lockstep_tree", {"race", "", true}},
    {"shuffle_as_fence", {"race"}},
    {"plain_sum_of_block", {"race"}},
    {"plain_sum_of_blocks", {"race"}},
    {"same_value", {"race"}},
    {"neighbour_in_place", {"race"}},
    {"atomic_without_barrier", {"race", "", true}},
    {"sum_by_atomics", {"order-dependent", "order-dependent", false, false, ""}},
    {"missing_threadfence", {"race"}},
    {"early_return", {"exited-at-barrier", "exited-at-barrier"}},
    {"two_barriers", {"divergent-barrier", "divergent-barrier"}},
    {"barrier_in_loop", {"divergent-barrier", "divergent-barrier"}},
    {"half_a_warp_at_barrier", {"deadlock", "deadlock"}},
    {"divergent_shuffle", {"warp-mismatch", "warp-mismatch"}},
    {"absent_lane", {"shuffle", "shuffle"}},
    {"not_in_mask", {"warp-mask", "warp-mask"}},
    {"write_past_end", {"out-of-bounds", "out-of-bounds", false, true}},
    {"write_before_begin", {"out-of-bounds", "out-of-bounds", false, true}},
    {"read_past_end", {"out-of-bounds", "", false, true}},
    {"shared_overrun", {"out-of-bounds", "out-of-bounds", false, true}},
    {"far_shared_overrun", {"out-of-bounds", "", false, true}},
    {"row_overrun", {"out-of-bounds", "", false, true}},
    {"dynamic_overrun", {"out-of-bounds", "out-of-bounds", false, true}},
    {"use_after_free", {"use-after-free", "", false, true}},
    {"use_before_allocation", {"use-before-allocation", "", false, true}},
    {"host_pointer", {"host-pointer"}},
    {"wild_pointer", {"host-pointer", "illegal-address"}},
    {"other_local", {"foreign-local"}},
    {"uninitialised_shared", {"uninitialised", "", true}},
    {"uninitialised_sum", {"uninitialised", "", true}},
    {"misaligned", {"misaligned", "?", false, true}},
    {"ldg_of_written", {"cached-read"}},
    {"unwritten_tail", {"", "", true}},
    {"stack_overflow", {"stack-overflow", "stack-overflow"}},
    {"trap", {"trap", "trap"}},
    {"assertion", {"trap", "trap"}},
    {"division_by_zero", {"division-by-zero", kArm ? "" : "division-by-zero", false, true}},
    {"integer_overflow", {"integer-overflow", "", false, true}},
    {"wide_shift", {"shift", "", false, true}},
    {"large_shared", {"trap", "trap"}},
    {"fragments_swapped", {"", "", true}},
    {"fragment_not_transposed", {"", "", true}},
    {"matrix_without_syncwarp", {"race", "", false, false, "matrix_product"}},
    {"matrix_misaligned", {"misaligned", "misaligned", false, false, "matrix_product"}},
    {"matrix_not_shared", {"matrix-address", "matrix-address", false, false, "matrix_product"}},
    {"matrix_divergent", {"warp-mismatch", "warp-mismatch", false, false, "matrix_product"}},
    {"matrix_returned_lane", {"warp-mask", "warp-mask", false, false, "matrix_product"}},
    {"copy_not_awaited", {"in-flight", "", true, false, "copy_read"}},
    {"copy_one_group_early", {"in-flight", "", true, false, "copy_read"}},
    {"copy_not_committed", {"in-flight", "", true, false, "copy_read"}},
    {"copy_without_barrier", {"race", "", true, false, "copy_read"}},
    {"copy_overwrites", {"race|in-flight", "", false, false, ""}},
    {"copy_past_end", {"out-of-bounds", "out-of-bounds", false, true, "copy_begins"}},
    {"copy_misaligned", {"misaligned", "misaligned", false, false, "copy_begins"}},
    {"copy_target_touched", {"in-flight", "", true, false, "copy_touched"}},
    {"hand_without_full", {"race", "deadlock|divergent-barrier", true, false, ""}},
    {"hand_empty_too_early", {"race", "", false, false, ""}},
    {"hand_other_count", {"named-barrier", "named-barrier", false, false, ""}},
    {"hand_too_many", {"deadlock", "deadlock"}},
    {"hand_half_a_warp", {"divergent-barrier", "divergent-barrier", false, false, ""}},
    {"hand_number", {"named-barrier", "named-barrier"}},
    {"phase_not_initialised", {"mbarrier", "mbarrier", false, false, ""}},
    {"phase_initialised_twice", {"mbarrier", "mbarrier", false, false, "phase_twice"}},
    {"phase_init_unordered", {"race"}},
    {"phase_wrong_parity", {"race|in-flight|uninitialised", "deadlock", true, false, ""}},
    {"phase_count_too_large", {"deadlock", "deadlock", false, false, "phase_waits"}},
    {"phase_not_awaited", {"race|in-flight|uninitialised", "deadlock", true, false, ""}},
    {"phase_arrives_before_copy", {"in-flight", "", true, false, "phase_consumes"}},
    {"wgmma_no_full", {"in-flight", "?", false, false, "wgmma_product"}},
    {"wgmma_full_of_one_lane", {"in-flight", "?", false, false, "wgmma_product"}},
    {"wgmma_wrong_parity", {"in-flight|deadlock|phase", "?", false, false, ""}},
    {"wgmma_phase_skipped", {"in-flight", "?", false, false, "wgmma_load"}},
    {"wgmma_no_empty", {"in-flight", "?", false, false, "wgmma_load"}},
    {"wgmma_no_fence_async", {"unfenced", "?", false, false, "wgmma_product"}},
    {"wgmma_late_fence_async", {"unfenced", "?", false, false, "wgmma_product"}},
    {"wgmma_no_init_fence", {"mbarrier", "?", false, false, "wgmma_load"}},
    {"wgmma_init_fence_of_other", {"mbarrier", "?", false, false, "wgmma_load"}},
    {"wgmma_few_bytes", {"mbarrier-bytes", "?", false, false, "wgmma_full"}},
    {"wgmma_many_bytes", {"mbarrier-bytes", "?", false, false, "wgmma_full"}},
    {"wgmma_bytes_not_expected", {"mbarrier-bytes|in-flight", "?", false, false, ""}},
    {"wgmma_no_fence", {"wgmma-fence", "?", false, false, "wgmma_product"}},
    {"wgmma_fence_once", {"wgmma-fence", "?", false, false, "wgmma_product"}},
    {"wgmma_no_wait", {"source-in-use", "?", false, false, ""}},
    {"wgmma_outlives", {"wgmma-outlives-block", "?", false, false, "wgmma_product"}},
    {"wgmma_wait_one_early", {"source-in-use", "?", false, false, ""}},
    {"wgmma_early_empty", {"in-flight|source-in-use|race", "?", false, false, ""}},
    {"wgmma_sums_written", {"sums-touched", "?", false, false, "wgmma_wait"}},
    {"wgmma_not_committed", {"source-in-use", "?", false, false, ""}},
    {"wgmma_inside_pattern", {"descriptor", "?", false, false, "wgmma_product"}},
    {"wgmma_not_swizzled", {"descriptor", "?", false, false, "wgmma_product"}},
    {"wgmma_wrong_stride", {"", "", true}},
    {"wgmma_other_layout", {"", "", true}},
    {"wgmma_warps_differ", {"warpgroup", "?", false, false, "wgmma_product"}},
    {"wgmma_one_warp_less", {"warpgroup", "?", false, false, "wgmma_product"}},
    {"wgmma_divergent", {"warp-mismatch", "?", false, false, "wgmma_product"}},
    {"box_misaligned", {"bulk-copy", "?", false, false, "wgmma_load"}},
    {"box_axes", {"bulk-copy", "?", false, false, ""}},
    {"box_not_shared", {"bulk-copy", "?", false, false, "wgmma_load"}},
    {"box_touched", {"in-flight", "?", false, false, "wgmma_touched"}},
    {"box_twice", {"in-flight", "?", false, false, ""}},
    {"box_outlives", {"copy-outlives-block", "?", false, false, ""}},
    {"map_unmade", {"bulk-copy", "?", false, false, "wgmma_load"}},
    {"store_no_fence_async", {"unfenced", "?", false, false, "store_begins"}},
    {"store_fence_of_storer", {"unfenced", "?", false, false, "store_begins"}},
    {"store_no_barrier", {"race", "?", false, false, ""}},
    {"store_no_wait", {"source-in-use", "?", false, false, ""}},
    {"store_outlives", {"copy-outlives-block", "?", false, false, "store_begins"}},
    {"store_early_reuse", {"race|source-in-use", "?"}},
    {"store_not_committed", {"source-in-use", "?", false, false, ""}},
    {"store_misaligned", {"bulk-copy", "?", false, false, "store_begins"}},
    {"registers_too_many", {"registers", "?", false, false, ""}},
    {"registers_one_warp", {"registers", "?"}},
    {"turn_skipped", {"phase", "?", false, false, "turn_waits"}},
    {"turn_alone", {"phase", "?", false, false, "turn_waits"}},
    {"turn_before_first", {"phase", "?"}},
    {"turn_too_many", {"mbarrier", "?"}},
};

}  // namespace ringtape::emulation
