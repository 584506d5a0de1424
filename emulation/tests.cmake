# The tests of the CUDA backend, executed by the emulation: each file with every memory access checked, and with
# RINGTAPE_ALL_CHECKS also without that, under several schedules. What they executed goes to logs, which report_kernels
# reads: it fails if a kernel is in none.
set(logs ${CMAKE_CURRENT_BINARY_DIR}/emulated)
set(all_schedules "")
if(RINGTAPE_ALL_CHECKS)
  set(all_schedules forward reverse random)
endif()
set(ways ${all_schedules} checked)
if(RINGTAPE_SANITIZE)  # errors of order are found without sanitizers; one instrumentation at a time
  set(all_schedules random)
  set(ways random)
endif()
file(MAKE_DIRECTORY ${logs})

function(ringtape_emulated_test executable schedule)
  set(name ${executable}.${schedule})
  add_test(NAME ${name} COMMAND ${executable} --gtest_brief=1)
  set(environment RINGTAPE_EMULATED_GPU=devices=2 RINGTAPE_EMULATION_SCHEDULE=${schedule}
      RINGTAPE_EMULATION_LOG=${logs}/${name}.txt)
  # Those of all kernels take longest: they begin first.
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 COST 20 FIXTURES_SETUP emulated_kernels
                       ENVIRONMENT "${environment}")
endfunction()

# Kernels of single tests: those with planted bugs, for the tests of the emulation itself, and those of docs/kernels.md.
set(emulation ${PROJECT_SOURCE_DIR}/emulation)
set(kernels_of_emulation_test ${emulation}/bugs.cu)
set(kernels_of_cuda_softmax_ladder_test ${softmax_ladder})
function(ringtape_emulated_kernels name source)
  set_source_files_properties(${source} PROPERTIES LANGUAGE CXX)
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PUBLIC ringtape_flags)
  ringtape_emulate(${name} ${ARGN})
endfunction()
# The emulated NCCL serves threads of one process, so no other program has it: `auto` means ipc in them.
set(nccl ${PROJECT_SOURCE_DIR}/comm/transport/cuda/nccl)
add_library(ringtape_nccl OBJECT ${nccl}.cpp ${nccl}_algorithm.cpp ${emulation}/nccl.cpp
            ${emulation}/nccl_run.cpp)
set_target_properties(ringtape_nccl PROPERTIES UNITY_BUILD OFF)
target_link_libraries(ringtape_nccl PRIVATE ringtape_flags ringtape_cuda_headers)

if(NOT RINGTAPE_SANITIZE AND RINGTAPE_PLAIN_EMULATION)
  add_library(ringtape_shared_checked SHARED)
  target_link_libraries(ringtape_shared_checked PRIVATE ringtape_checked ringtape_cli)
elseif(NOT RINGTAPE_SANITIZE)
  add_library(ringtape_shared_checked ALIAS ringtape_shared)
endif()

file(GLOB cuda_sources CONFIGURE_DEPENDS cuda/*_test.cpp ${emulation}/*_test.cpp)
foreach(source ${cuda_sources})
  get_filename_component(name ${source} NAME_WE)
  foreach(engine ringtape_shared ringtape_shared_checked)
    set(executable ${name})
    set(schedules ${all_schedules})
    set(checked "")
    if(engine STREQUAL ringtape_shared_checked)
      if(RINGTAPE_SANITIZE)
        continue()
      endif()
      set(executable ${name}_checked)
      set(schedules random)
      set(checked CHECKED)
    endif()
    if(NOT schedules)
      continue()
    endif()
    ringtape_test_executable(${executable} ${source} ${engine})
    target_sources(${executable} PRIVATE ${emulation}/listener.cpp)
    target_link_libraries(${executable} PRIVATE ringtape_cuda_headers)
    if(name MATCHES "nccl")
      target_sources(${executable} PRIVATE $<TARGET_OBJECTS:ringtape_nccl>)
    endif()
    if(kernels_of_${name})
      ringtape_emulated_kernels(${executable}_kernels ${kernels_of_${name}} ${checked})
      target_sources(${executable} PRIVATE $<TARGET_OBJECTS:${executable}_kernels>)
    endif()
    foreach(schedule ${schedules})
      ringtape_emulated_test(${executable} ${schedule})
    endforeach()
  endforeach()
endforeach()

add_executable(report_kernels ${emulation}/report_kernels.cpp)
add_test(NAME emulated_kernels COMMAND report_kernels ${logs} ${ways})
set_tests_properties(emulated_kernels PROPERTIES FIXTURES_REQUIRED emulated_kernels)
# ctest shows no test's output; what it runs after the tests it does show. Where only some tests are built, there may be
# no report.
set(report ${CMAKE_CURRENT_BINARY_DIR}/report_kernels)
file(WRITE ${CMAKE_BINARY_DIR}/CTestCustom.cmake
     "set(CTEST_CUSTOM_POST_TEST [[sh -c \"! test -x ${report} || ${report} ${logs}\"]])\n")
