# `cmake --build --preset package --target wheel`: the program for pip, with the libraries that not every Linux has. It
# finds these where pip puts them, before those of the system and of LD_LIBRARY_PATH; data/ is their place in the wheel.
find_package(Python3 COMPONENTS Interpreter QUIET)
if(NOT Python3_FOUND OR RINGTAPE_USE_CUDA)
  set(why "there is no python3")
  if(RINGTAPE_USE_CUDA)
    set(why "it would have to bring CUDA's libraries: configure with -DRINGTAPE_CUDA=OFF")
  endif()
  add_custom_target(wheel COMMAND ${CMAKE_COMMAND} -E echo "no wheel: ${why}" COMMAND ${CMAKE_COMMAND} -E false
                    VERBATIM)
  return()
endif()
add_executable(ringtape_wheel EXCLUDE_FROM_ALL train/cli/main.cpp)
target_link_libraries(ringtape_wheel PRIVATE ringtape ringtape_cli)
set_target_properties(ringtape_wheel PROPERTIES BUILD_RPATH "$ORIGIN/../lib/ringtape;$ORIGIN/../data/lib/ringtape")
target_link_options(ringtape_wheel PRIVATE -s LINKER:--disable-new-dtags)  # the libraries' own are found there, too
add_custom_target(wheel COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/package/wheel.py
                                $<TARGET_FILE:ringtape_wheel> ${PROJECT_VERSION} ${CMAKE_CURRENT_BINARY_DIR}
                                ${compiled_in}
                        DEPENDS ringtape_wheel VERBATIM)
