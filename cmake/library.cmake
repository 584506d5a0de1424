# What other projects link: all of ringtape, with training and the command line.
#   ringtape::ringtape         libringtape.so
#   ringtape::ringtape_static  libringtape.a, whole: the linker would drop what registers itself (RINGTAPE_STATIC)
#   ringtape::old_includes     beside one of them, for programs that still include "autograd/ops.h" (docs/install.md)
# Headers are included as <ringtape/autograd/ops.h> (cmake/headers.cmake). They need no header of another library.
if(RINGTAPE_PACKAGES AND CMAKE_LIBRARY_ARCHITECTURE AND NOT DEFINED CMAKE_INSTALL_LIBDIR)
  set(CMAKE_INSTALL_LIBDIR lib/${CMAKE_LIBRARY_ARCHITECTURE} CACHE STRING "Where libraries are installed")
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
include(headers)

function(ringtape_usage name)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${RINGTAPE_INCLUDE}>
                                            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  add_dependencies(${name} ringtape_headers)
  target_link_libraries(${name} PUBLIC Threads::Threads)
endfunction()

add_library(ringtape_shared SHARED)
target_link_libraries(ringtape_shared PRIVATE ringtape ringtape_cli)
ringtape_usage(ringtape_shared)
set_target_properties(ringtape_shared PROPERTIES OUTPUT_NAME ringtape EXPORT_NAME ringtape VERSION ${PROJECT_VERSION}
                                                 SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(cuda OFF)
if(RINGTAPE_PLAIN_EMULATION)
  set(cuda PLAIN)
elseif(RINGTAPE_EMULATED)
  set(cuda CHECKED)
elseif(RINGTAPE_USE_CUDA)
  set(cuda ON)
endif()
set_target_properties(ringtape_shared PROPERTIES RINGTAPE_INSTRUCTION_SETS "${instruction_sets}" RINGTAPE_CUDA ${cuda}
                                                 EXPORT_PROPERTIES "RINGTAPE_INSTRUCTION_SETS;RINGTAPE_CUDA")
if(RINGTAPE_SANITIZE)  # a program needs the runtime before it
  target_link_options(ringtape_shared PUBLIC -fsanitize=${RINGTAPE_SANITIZE})
endif()
add_library(ringtape::ringtape ALIAS ringtape_shared)

add_library(ringtape_old_includes INTERFACE)
set_target_properties(ringtape_old_includes PROPERTIES EXPORT_NAME old_includes)
target_include_directories(ringtape_old_includes INTERFACE $<BUILD_INTERFACE:${RINGTAPE_INCLUDE}/ringtape>
                                                 $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/ringtape>)
add_library(ringtape::old_includes ALIAS ringtape_old_includes)

if(RINGTAPE_STATIC)
  add_library(ringtape_archive STATIC $<TARGET_PROPERTY:ringtape,INTERFACE_SOURCES>
                                      $<TARGET_PROPERTY:ringtape_cli,INTERFACE_SOURCES>)
  ringtape_usage(ringtape_archive)
  set_target_properties(ringtape_archive PROPERTIES OUTPUT_NAME ringtape EXPORT_NAME archive LINKER_LANGUAGE CXX)
  add_library(ringtape_static INTERFACE)
  target_link_libraries(ringtape_static INTERFACE $<LINK_LIBRARY:WHOLE_ARCHIVE,ringtape_archive>
                        $<TARGET_PROPERTY:ringtape,INTERFACE_LINK_LIBRARIES>
                        $<TARGET_PROPERTY:ringtape_base,INTERFACE_LINK_LIBRARIES> ${training_libraries})
  add_library(ringtape::ringtape_static ALIAS ringtape_static)
endif()

if(NOT RINGTAPE_INSTALL)
  return()
endif()
install(TARGETS ringtape_binary RUNTIME COMPONENT program)
install(TARGETS ringtape_shared ringtape_old_includes EXPORT ringtape
        LIBRARY COMPONENT program NAMELINK_COMPONENT development)
install(DIRECTORY ${RINGTAPE_INCLUDE}/ringtape DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        PATTERN emulation EXCLUDE)
# The pages, with their examples, and the recipes, in the places of the tree, so that their links hold.
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(DIRECTORY docs configs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program
        REGEX "/docs/([^/]*\\.py|Doxyfile)$" EXCLUDE)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/ringtape)
install(EXPORT ringtape FILE ringtapeTargets.cmake NAMESPACE ringtape:: DESTINATION ${package} COMPONENT development)
if(RINGTAPE_STATIC)
  install(TARGETS ringtape_archive EXPORT ringtape_static ARCHIVE COMPONENT development)
  install(EXPORT ringtape_static FILE ringtapeStaticTargets.cmake NAMESPACE ringtape:: DESTINATION ${package}
          COMPONENT development)
endif()
configure_package_config_file(cmake/ringtapeConfig.cmake.in ringtapeConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(ringtapeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ringtapeConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ringtapeConfigVersion.cmake
              cmake/kernels.cmake DESTINATION ${package} COMPONENT development)
file(RELATIVE_PATH pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/ringtape.pc.in ringtape.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ringtape.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT development)
if(RINGTAPE_PACKAGES)
  set(compiled_in nlohmann-json3-dev libjs-dygraphs)  # Debian's packages: their licences go with it
  include(package/deb.cmake)
  include(package/wheel.cmake)
endif()
