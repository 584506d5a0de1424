# Writes `output`, the list for train/settings/presets.h: the files configs/*.toml and configs/ssl/*.toml as text.
function(ringtape_embed_presets output)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/configs/*.toml)
  set(rows "")
  foreach(path ${files})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    get_filename_component(name ${path} NAME_WE)
    file(READ ${path} text)
    set(self_supervised false)
    if(path MATCHES "/configs/ssl/")
      set(self_supervised true)
    endif()
    string(APPEND rows "    {\"${name}\", R\"toml(${text})toml\", ${self_supervised}},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[#include "train/settings/presets.h"

namespace ringtape {

static constexpr Preset kPresets[] = {
@rows@};
std::span<const Preset> presets() { return kPresets; }

}  // namespace ringtape
]])
endfunction()
