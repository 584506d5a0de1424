# ringtape_add_kernels(<target> <file...>) adds kernels of one's own to a program or library that links ringtape: files
# that define what RT_KERNEL declares (kernels/kernel.h), see docs/examples/09_own_kernels.
#   .cpp  compiled once for each instruction set that ringtape has
#   .cu   compiled by nvcc if ringtape has CUDA, as C++ if the build of ringtape emulates CUDA, else left out
include_guard(GLOBAL)

# How a target of files between RT_ISA_BEGIN and RT_ISA_END is compiled for one instruction set.
function(ringtape_kernel_options name isa level)
  target_compile_definitions(${name} PRIVATE RT_ISA=${isa})
  # sqrt and comparisons of kernels set neither errno nor floating-point exceptions: loops over them vectorise.
  # Products and sums are fused by clang, too, as GCC does unless told otherwise; by g++ 14 also in a chain of sums, as
  # a row's sums must not depend on how many rows its tile has.
  target_compile_options(${name} PRIVATE "$<$<NOT:$<CONFIG:Debug,RelWithDebInfo>>:${level}>" -fno-math-errno
                         -fno-trapping-math -Wno-psabi
                         $<IF:$<CXX_COMPILER_ID:Clang>,-ffp-contract=fast,--param=avoid-fma-max-bits=0>)
  if(isa STREQUAL "neon")
    # GCC would move a tile's loads to its begin, and then run out of registers.
    target_compile_options(${name} PRIVATE -ffp-contract=fast $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    target_compile_options(${name} PRIVATE -ffp-contract=off)  # as x86-64's, which have no such instruction
  endif()
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)  # their headers take little of their time
endfunction()

# How nvcc compiles a target's .cu files. CMake 3.25 does not support C++20 for CUDA: it would fail, or pass no flag.
function(ringtape_compile_cuda target)
  set_target_properties(${target} PROPERTIES CUDA_STANDARD_REQUIRED OFF
                                             UNITY_BUILD OFF)  # newer versions of CMake join .cu files, too
  target_compile_options(${target} PRIVATE -std=c++20 --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra
                         $<$<BOOL:${RINGTAPE_WERROR}>:-Werror=all-warnings>)
endfunction()

function(ringtape_add_kernels target)
  set(cpp ${ARGN})
  list(FILTER cpp INCLUDE REGEX "\\.cpp$")
  set(cu ${ARGN})
  list(FILTER cu INCLUDE REGEX "\\.cu$")
  list(LENGTH ARGN given)
  list(LENGTH cpp found)
  list(LENGTH cu more)
  math(EXPR found "${found} + ${more}")
  if(NOT TARGET ${target} OR given EQUAL 0 OR NOT given EQUAL found)
    message(FATAL_ERROR "ringtape_add_kernels: expected a target and files .cpp and .cu, got ${target} ${ARGN}")
  endif()
  get_target_property(ringtape ringtape::ringtape ALIASED_TARGET)
  if(NOT ringtape)
    set(ringtape ringtape::ringtape)
  endif()
  get_target_property(sets ${ringtape} RINGTAPE_INSTRUCTION_SETS)
  get_target_property(cuda ${ringtape} RINGTAPE_CUDA)
  if(cpp)
    foreach(isa ${sets})
      ringtape_kernel_objects(${target} ${isa} ${cpp})
      ringtape_kernel_options(${target}_${isa} ${isa} -O3)
    endforeach()
  endif()
  if(cu AND cuda STREQUAL "ON")
    if(NOT CMAKE_CUDA_COMPILER_LOADED)
      message(FATAL_ERROR "ringtape_add_kernels: ${cu}: this ringtape has CUDA, so nvcc is needed: "
                          "project(... LANGUAGES CXX CUDA)")
    endif()
    find_package(CUDAToolkit 13.0 REQUIRED)
    ringtape_kernel_objects(${target} cuda ${cu})
    ringtape_compile_cuda(${target}_cuda)
    target_link_libraries(${target}_cuda PRIVATE CUDA::cudart)
    # Fits both forms of target_link_libraries, with and without PRIVATE.
    set_property(TARGET ${target} APPEND PROPERTY LINK_LIBRARIES CUDA::cudart)
  elseif(cu AND cuda AND COMMAND ringtape_emulate)  # PLAIN or CHECKED, as ringtape's own; not when installed
    set_source_files_properties(${cu} PROPERTIES LANGUAGE CXX)
    ringtape_kernel_objects(${target} cuda ${cu})
    ringtape_emulate(${target}_cuda ${cuda} OWN)
  endif()
endfunction()

# An OBJECT library <target>_<name> that becomes part of the target.
function(ringtape_kernel_objects target name)
  add_library(${target}_${name} OBJECT ${ARGN})
  set_target_properties(${target}_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target}_${name} PRIVATE $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
  target_link_libraries(${target}_${name} PRIVATE ringtape::ringtape)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${name}>)
endfunction()
