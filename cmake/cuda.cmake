# The CUDA backend, by RINGTAPE_CUDA:
#   OFF       none
#   ON        compiled by nvcc; needs no GPU here
#   AUTO      ON where there are nvcc and a GPU, else OFF
#   EMULATED  the same sources compiled by the C++ compiler and executed on the CPU (emulation/); needs no CUDA
# Sets RINGTAPE_USE_CUDA (whether there is a backend) and RINGTAPE_CUDA_LINE (what the summary says).
set(RINGTAPE_USE_CUDA ON)
set(RINGTAPE_EMULATED OFF)

function(ringtape_find_gpu architectures)  # compute capabilities of the GPUs of this machine: 90;80
  find_program(NVIDIA_SMI nvidia-smi)
  set(found "")
  if(NVIDIA_SMI)
    execute_process(COMMAND ${NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE lines ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
      string(REGEX MATCHALL "[0-9]+\\.[0-9]+" capabilities "${lines}")
      list(REMOVE_DUPLICATES capabilities)
      string(REPLACE "." "" found "${capabilities}")
      list(TRANSFORM found REPLACE "^90$" 90a)
    endif()
  endif()
  set(${architectures} ${found} PARENT_SCOPE)
endfunction()

# Finds cuDNN of the toolkit, the system or Python's wheel. Sets CUDNN_LIBRARY (false: not found) and cudnn_line.
macro(ringtape_find_cudnn)
  execute_process(COMMAND python3 -c "import nvidia.cudnn; print(nvidia.cudnn.__path__[0], end='')"
                  OUTPUT_VARIABLE wheel ERROR_QUIET RESULT_VARIABLE ignored)
  set(places ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_TARGET_DIR} ${wheel})
  find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${places} PATH_SUFFIXES include)
  find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR} ${places}
               PATH_SUFFIXES lib lib64)
  set(cudnn_line "without cuDNN")
  if(CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY)
    file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h version REGEX "define CUDNN_(MAJOR|MINOR|PATCHLEVEL) ")
    string(REGEX REPLACE "[^0-9;]" "" version "${version}")
    list(JOIN version "." version)
    set(cudnn_line "cuDNN ${version}")
  endif()
endmacro()

# Finds NCCL likewise; RINGTAPE_NCCL=OFF leaves it out. Sets NCCL_LIBRARY (false: not found) and nccl_line.
option(RINGTAPE_NCCL "Collectives over NCCL, where it is found" ON)
macro(ringtape_find_nccl)
  execute_process(COMMAND python3 -c "import nvidia.nccl; print(nvidia.nccl.__path__[0], end='')"
                  OUTPUT_VARIABLE wheel ERROR_QUIET RESULT_VARIABLE ignored)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_TARGET_DIR} ${wheel}
            PATH_SUFFIXES include)
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2
               HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT} ${wheel} PATH_SUFFIXES lib lib64)
  set(nccl_line "without NCCL")
  if(RINGTAPE_NCCL AND NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h version REGEX "define NCCL_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "[^0-9;]" "" version "${version}")
    list(JOIN version "." version)
    set(nccl_line "NCCL ${version}")
  endif()
endmacro()

if(RINGTAPE_CUDA STREQUAL "EMULATED")
  set(RINGTAPE_EMULATED ON)
  set(RINGTAPE_PLAIN_EMULATION OFF)
  if(RINGTAPE_ALL_CHECKS OR RINGTAPE_COVERAGE OR RINGTAPE_SANITIZE)
    set(RINGTAPE_PLAIN_EMULATION ON)
  endif()
  set(RINGTAPE_CUDA_LINE "emulated on the CPU, for tests")
elseif(RINGTAPE_CUDA STREQUAL "OFF")
  set(RINGTAPE_USE_CUDA OFF)
  set(RINGTAPE_CUDA_LINE "off (switched off)")
elseif(RINGTAPE_CUDA MATCHES "^(ON|AUTO)$")
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
  ringtape_find_gpu(gpus)
  if(RINGTAPE_CUDA STREQUAL "AUTO" AND NOT (CMAKE_CUDA_COMPILER AND gpus))
    set(RINGTAPE_USE_CUDA OFF)
    set(RINGTAPE_CUDA_LINE "off (no nvcc found)")
    if(CMAKE_CUDA_COMPILER)
      set(RINGTAPE_CUDA_LINE "off (${CMAKE_CUDA_COMPILER}, but no GPU here; -DRINGTAPE_CUDA=ON builds it all the same)")
    endif()
  elseif(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "RINGTAPE_CUDA=ON, but there is no nvcc on PATH, in CUDA_HOME or in /usr/local/cuda; install "
                        "the CUDA toolkit, name it with -DCMAKE_CUDA_COMPILER=/path/to/nvcc, or configure with "
                        "-DRINGTAPE_CUDA=OFF")
  else()
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      # With PTX for later GPUs; 90a: Hopper with its own instructions. `native` fails without a GPU.
      set(CMAKE_CUDA_ARCHITECTURES 80 90a 100)
      if(gpus)
        set(CMAKE_CUDA_ARCHITECTURES ${gpus})
      endif()
    endif()
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # as cuDNN, cuBLASLt and NCCL link it
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
    enable_language(CUDA)
    find_package(CUDAToolkit 13.0 REQUIRED)
    if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
    endif()
    ringtape_find_cudnn()
    ringtape_find_nccl()
    list(JOIN CMAKE_CUDA_ARCHITECTURES " " architectures)
    set(RINGTAPE_CUDA_LINE "${CUDAToolkit_VERSION}, for sm ${architectures}, ${cudnn_line}, ${nccl_line}")
  endif()
else()
  message(FATAL_ERROR "RINGTAPE_CUDA=${RINGTAPE_CUDA}: one of AUTO ON OFF EMULATED")
endif()

# Adds the CUDA sources to the interface library `base` and its kernels to `kernels`. In `checked` the emulation checks
# every memory access of them; `kernels` has these, too, unless they are wanted without (RINGTAPE_PLAIN_EMULATION).
function(ringtape_add_cuda base kernels checked)
  if(NOT RINGTAPE_USE_CUDA)
    return()
  endif()
  file(GLOB_RECURSE host_sources CONFIGURE_DEPENDS core/cuda/*.cpp kernels/cuda/*.cpp comm/transport/cuda/*.cpp)
  file(GLOB_RECURSE kernel_sources CONFIGURE_DEPENDS kernels/cuda/*.cu)
  set(with_cudnn 0)
  if(RINGTAPE_EMULATED)
    set(with_cudnn 1)  # the emulation's
  elseif(CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY)
    set(with_cudnn 1)
    target_include_directories(ringtape_cuda_headers SYSTEM INTERFACE ${CUDNN_INCLUDE_DIR})
    target_link_libraries(${base} INTERFACE ${CUDNN_LIBRARY})
  else()
    list(FILTER host_sources EXCLUDE REGEX "/cudnn_")
  endif()
  target_compile_definitions(ringtape_cuda_headers INTERFACE RINGTAPE_CUDNN=${with_cudnn})
  if(NOT RINGTAPE_EMULATED AND RINGTAPE_NCCL AND NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    target_include_directories(ringtape_cuda_headers SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
    target_link_libraries(${base} INTERFACE ${NCCL_LIBRARY})
  else()
    list(FILTER host_sources EXCLUDE REGEX "/nccl(_algorithm)?\\.cpp$")
  endif()
  set(architectures 90)
  if(CMAKE_CUDA_ARCHITECTURES)
    string(REPLACE ";" "\\;" architectures "${CMAKE_CUDA_ARCHITECTURES}")  # one definition, not a list of them
  endif()
  ringtape_objects(ringtape_cuda_host ${base} ${host_sources})
  target_link_libraries(ringtape_cuda_host PRIVATE ringtape_cuda_headers)
  set(with_wgmma 0)  # Hopper's own instructions
  if(RINGTAPE_EMULATED OR architectures MATCHES "90a")
    set(with_wgmma 1)
  endif()
  target_compile_definitions(ringtape_cuda_host PRIVATE "RINGTAPE_CUDA_ARCHITECTURES=\"${architectures}\""
                                                        RINGTAPE_WGMMA=${with_wgmma})
  if(NOT RINGTAPE_EMULATED OR RINGTAPE_PLAIN_EMULATION)
    ringtape_objects(ringtape_cuda_kernels ${kernels} ${kernel_sources})
    target_link_libraries(ringtape_cuda_kernels PRIVATE ringtape_cuda_headers)
  endif()
  if(NOT RINGTAPE_EMULATED)
    ringtape_compile_cuda(ringtape_cuda_kernels)
    target_link_libraries(${base} INTERFACE $<LINK_ONLY:CUDA::cudart> $<LINK_ONLY:CUDA::cublasLt>)
    return()
  endif()
  file(GLOB emulation_sources CONFIGURE_DEPENDS emulation/*.cpp)
  list(FILTER emulation_sources EXCLUDE REGEX "(_test|/check|/listener|/report_kernels|/nccl|/nccl_run)\\.cpp$")
  ringtape_objects(ringtape_emulation ${base} ${emulation_sources})
  ringtape_optimise(ringtape_emulation)
  set_target_properties(ringtape_emulation PROPERTIES UNITY_BUILD OFF)
  target_compile_options(ringtape_emulation PRIVATE $<$<CONFIG:Release>:-O2>)
  set_source_files_properties(emulation/tensor_core.cpp PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)  # vectors
  cmake_language(DEFER CALL ringtape_precompile ringtape_emulation ringtape_autograd)  # that is added later
  target_link_libraries(ringtape_emulation PRIVATE ringtape_cuda_headers)
  set_source_files_properties(${kernel_sources} PROPERTIES LANGUAGE CXX)
  if(RINGTAPE_PLAIN_EMULATION)
    ringtape_emulate(ringtape_cuda_kernels PRECOMPILED)
    # Another build has them checked access by access.
    set_target_properties(ringtape_cuda_kernels PROPERTIES RINGTAPE_NO_SANITIZE all)
  endif()
  if(RINGTAPE_COVERAGE)
    target_compile_options(ringtape_cuda_kernels PRIVATE --coverage -O1)
    target_link_options(${kernels} INTERFACE --coverage)
  endif()
  if(NOT RINGTAPE_SANITIZE)  # one instrumentation at a time
    ringtape_objects(ringtape_checked_kernels ${checked} ${kernel_sources})
    ringtape_emulate(ringtape_checked_kernels CHECKED PRECOMPILED)
    ringtape_objects(ringtape_checker ${checked} emulation/check.cpp)
    target_link_libraries(ringtape_checker PRIVATE ringtape_cuda_headers)
    if(NOT RINGTAPE_PLAIN_EMULATION)
      target_sources(${kernels} INTERFACE $<TARGET_OBJECTS:ringtape_checked_kernels> $<TARGET_OBJECTS:ringtape_checker>)
    endif()
  endif()
endfunction()

# An OBJECT library whose objects become part of the interface library `whole`.
function(ringtape_objects name whole)
  add_library(${name} OBJECT ${ARGN})
  target_link_libraries(${name} PUBLIC ringtape_flags)
  target_sources(${whole} INTERFACE $<TARGET_OBJECTS:${name}>)
endfunction()

# Compiles a target's .cu files as C++ for the emulation. CHECKED: with calls at each memory access,
# those of ThreadSanitizer, which emulation/check.cpp answers; its library is not linked.
# PRECOMPILED: the headers, which takes as long as four files without that. OWN: a program's kernels, with its includes.
function(ringtape_emulate target)
  target_link_libraries(${target} PRIVATE ringtape_cuda_headers)
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)  # a file's kernels have names of their own
  target_compile_options(${target} PRIVATE -Wno-unknown-pragmas)
  target_compile_definitions(${target} PRIVATE RINGTAPE_EMULATION=1)
  target_compile_options(${target} PRIVATE -O1)  # fibers take most of the time
  if(CHECKED IN_LIST ARGN)
    set(checks thread,alignment,bounds,signed-integer-overflow,shift)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
      string(APPEND checks ,integer-divide-by-zero)  # no signal there
    endif()
    target_compile_options(${target} PRIVATE -g1 -fno-omit-frame-pointer -fsanitize=${checks})
    target_compile_options(${target} PRIVATE -Wno-attributes  # always_inline without inline: __device__ of device.h
                           # The checker needs no calls at the beginning and end of functions.
                           $<$<CXX_COMPILER_ID:GNU>:--param=tsan-instrument-func-entry-exit=0>)
  endif()
  set(first ${ringtape_SOURCE_DIR}/emulation/device.h)
  if(OWN IN_LIST ARGN)  # of a program's own, which includes <ringtape/...>
    set(first ${ringtape_BINARY_DIR}/include/ringtape/emulation/device.h)
  endif()
  if(RINGTAPE_PRECOMPILE AND PRECOMPILED IN_LIST ARGN)
    target_precompile_headers(${target} PRIVATE ${first} ${ringtape_SOURCE_DIR}/kernels/cuda/block.cuh
                              ${ringtape_SOURCE_DIR}/core/tensor.h)
  else()
    target_compile_options(${target} PRIVATE -include ${first})
  endif()
endfunction()
