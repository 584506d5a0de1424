#include "train/io/foreign_weights.h"

#include <algorithm>
#include <filesystem>

#include "core/check.h"

namespace ringtape {
namespace {

// A string as a Python literal.
std::string python_literal(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// In single quotes of the shell, in which only ' needs an escape.
std::string for_shell(const std::string& text) {
  std::string out = "'";
  for (const char c : text) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
}

std::string from_numpy(const std::string& path) {
  const std::string to = std::filesystem::path(path).replace_extension(".safetensors").string();
  return "python3 -c " + for_shell("import numpy, safetensors.numpy; safetensors.numpy.save_file(dict(numpy.load(" +
                                   python_literal(path) + ")), " + python_literal(to) + ")");
}

struct Format {
  std::string_view begin;
  const char* name;
  size_t at = 0;
};
const Format kFormats[] = {
    {"PK\x03\x04", "a ZIP archive"},
    {"\x89HDF", "an HDF5 file, as Keras writes them"},
    {"\x93NUMPY", "a NumPy array"},
    {"GGUF", "a GGUF file"},
    {"\x1f\x8b", "a gzip file; unpack it first"},
    {"version ", "a pointer of Git LFS; fetch the file with `git lfs pull`"},
    {"<!DOCTYP", "a page of HTML"},
    {"<!doctyp", "a page of HTML"},
    {"ustar", "a tar archive; unpack it first", kForeignBytes - 5},
};

}  // namespace

void check_foreign(const std::string& path, std::string_view begin) {
  for (const Format& format : kFormats) {
    if (!begin.substr(std::min(begin.size(), format.at)).starts_with(format.begin)) continue;
    const bool npz = path.ends_with(".npz"), told = std::string_view(format.name).find(';') != std::string_view::npos;
    detail::fail<FormatError>({path, ": ", npz ? "a NumPy archive" : format.name,
                               "; weights are read from safetensors and PyTorch's files",
                               npz    ? "; convert it: " + from_numpy(path)
                               : told ? ""
                                      : "; convert it with the program that wrote it"});
  }
}

}  // namespace ringtape
