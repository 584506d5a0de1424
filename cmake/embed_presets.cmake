# Writes `output`, the list for train/settings/presets.h: the files configs/ssl/*.toml as text.
function(ringtape_embed_presets output)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/configs/ssl/*.toml)
  set(rows "")
  foreach(path ${files})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    get_filename_component(name ${path} NAME_WE)
    file(READ ${path} text)
    string(APPEND rows "    {\"${name}\", R\"toml(${text})toml\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[#include "train/settings/presets.h"

namespace ringtape {

static constexpr Preset kPresets[] = {
@rows@};
std::span<const Preset> presets() { return kPresets; }

}  // namespace ringtape
]])
endfunction()
