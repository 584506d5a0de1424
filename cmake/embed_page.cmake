# Writes `output`, the text of page() (train/view/page.h): train/view/page/index.html with its style sheet and its
# scripts inside; dygraph.min.js is the library's.
function(ringtape_embed_page output)
  set(folder ${PROJECT_SOURCE_DIR}/train/view/page)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files} ${RINGTAPE_DYGRAPHS})
  file(READ ${folder}/index.html page)
  file(READ ${folder}/style.css text)
  string(REPLACE "<link rel=\"stylesheet\" href=\"style.css\">" "<style>\n${text}</style>" page "${page}")
  string(REGEX MATCHALL "<script src=\"[a-z_.]+\"></script>" scripts "${page}")
  foreach(line ${scripts})
    string(REGEX REPLACE ".*\"(.*)\".*" "\\1" name "${line}")
    if(name STREQUAL "dygraph.min.js")
      file(READ ${RINGTAPE_DYGRAPHS} text)
      string(REGEX REPLACE "//# sourceMappingURL=[^\n]*" "" text "${text}")
    else()
      file(READ ${folder}/${name} text)
    endif()
    string(REPLACE "${line}" "<script>\n${text}</script>" page "${page}")
  endforeach()
  string(LENGTH "${page}" length)
  set(parts "")  # a literal may be limited in length
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${page}" ${at} 15000 part)
    string(APPEND parts "    R\"page(${part})page\",\n")
    math(EXPR at "${at} + 15000")
  endwhile()
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[#include "train/view/page.h"

namespace ringtape {

static constexpr const char* kParts[] = {
@parts@};

std::string_view page() {
  static const std::string whole = [] {
    std::string out;
    for (const char* part : kParts) out += part;
    return out;
  }();
  return whole;
}

}  // namespace ringtape
]])
endfunction()
