# The tests under ThreadSanitizer: what threads do with each other, in core, comm and servers and with a
# prepared network, linked with nothing but what that needs. A file that is missing in the list is a link
# error which names what it defines.
set(sources
    core/*.cpp
    kernels/arithmetic.cpp kernels/bf16_unit.cpp kernels/conv2d_prepared.cpp kernels/cpu_isa.cpp
    kernels/cpu/batch_norm.cpp kernels/cpu/binary.cpp kernels/cpu/combine.cpp kernels/cpu/copy.cpp
    kernels/cpu/elementwise.cpp kernels/cpu/fill.cpp kernels/cpu/matmul.cpp kernels/cpu/pool.cpp
    kernels/cpu/reduce.cpp kernels/cpu/unary.cpp
    kernels/cpu/vector/*.cpp kernels/cpu/conv/*.cpp kernels/cpu/gemm/*.cpp
    autograd/autocast.cpp autograd/checkpoint.cpp autograd/create.cpp autograd/nan.cpp autograd/op.cpp
    autograd/prepared*.cpp autograd/tape.cpp autograd/trace.cpp autograd/inference/*.cpp
    autograd/ops/batch_norm.cpp autograd/ops/binary.cpp autograd/ops/cast.cpp autograd/ops/clamp.cpp
    autograd/ops/compare.cpp autograd/ops/concat.cpp autograd/ops/conv2d.cpp autograd/ops/expand.cpp
    autograd/ops/linear.cpp autograd/ops/matmul.cpp autograd/ops/permute.cpp autograd/ops/pool.cpp
    autograd/ops/reduce.cpp autograd/ops/reshape.cpp autograd/ops/slice.cpp autograd/ops/to.cpp autograd/ops/unary.cpp
    autograd/ops/where.cpp
    comm/base/*.cpp comm/health/*.cpp comm/store/*.cpp comm/transport/*.cpp comm/algorithm/*.cpp comm/job/*.cpp
    comm/algorithm.cpp comm/alone.cpp comm/choice.cpp comm/operation.cpp comm/process_group.cpp comm/transport.cpp
    comm/work.cpp comm/parallel/shards.cpp train/http/clients.cpp train/http/request_size.cpp train/serve/batcher.cpp)
list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/)
file(GLOB sources CONFIGURE_DEPENDS ${sources})
list(FILTER sources EXCLUDE REGEX "/kernels/cpu/.*_(amx|bf16)")  # of units that come with AVX-512
set(kernels ${sources})
list(FILTER kernels INCLUDE REGEX "/kernels/cpu/")
set_source_files_properties(${kernels} PROPERTIES COMPILE_DEFINITIONS RT_ISA=portable)
add_library(ringtape_threads SHARED ${sources})
set_target_properties(ringtape_threads PROPERTIES UNITY_BUILD OFF)  # names are unique in a folder, not among these
target_link_libraries(ringtape_threads PUBLIC ringtape_flags OpenSSL::Crypto ${CMAKE_DL_LIBS})
ringtape_precompile(ringtape_threads)

add_custom_target(thread_tests)
foreach(name batcher comm http_clients membership job_report parallel parts prepared_threads process_group rendezvous
        shards store transport transport_failure transport_tcp)
  file(GLOB_RECURSE source ${name}_test.cpp)
  ringtape_test_executable(${name}_test ${source} ringtape_threads)
  # Open MPI is not instrumented: its own synchronisation would not be seen. Large buffers take
  # minutes, for nothing but more bytes.
  add_test(NAME ${name}_test COMMAND ${name}_test --gtest_brief=1 --gtest_filter=-CommMpi.*:Comm.LargeBuffers)
  set_tests_properties(${name}_test PROPERTIES TIMEOUT 900)
  add_dependencies(thread_tests ${name}_test)
endforeach()
