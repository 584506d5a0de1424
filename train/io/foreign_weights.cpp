#include "train/io/foreign_weights.h"

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

std::string python(const std::string& imports, const std::string& load, const std::string& path) {
  const std::string to = std::filesystem::path(path).replace_extension(".safetensors").string();
  return "python3 -c " + for_shell("import " + imports + "; " + load + python_literal(to) + ")");
}

std::string from_pytorch(const std::string& path) {
  return python(
      "torch, safetensors.torch",
      "w = torch.load(" + python_literal(path) +
          ", map_location=\"cpu\", weights_only=True); w = w.get(\"state_dict\", w); "
          "safetensors.torch.save_file({k: v.clone().contiguous() for k, v in w.items() if torch.is_tensor(v)}, ",
      path);
}
std::string from_numpy(const std::string& path) {
  return python("numpy, safetensors.numpy",
                "safetensors.numpy.save_file(dict(numpy.load(" + python_literal(path) + ")), ", path);
}

struct Format {
  std::string_view begin;
  const char* name;
  std::string (*convert)(const std::string& path);  // null: only the program that wrote the file can convert it
};
const Format kFormats[] = {
    {"PK\x03\x04", "a PyTorch file (.pth, .pt, .ckpt)", from_pytorch},
    {"\x80\x02", "a PyTorch file of before 2020", from_pytorch},
    {"\x80\x03", "a Python pickle", from_pytorch},
    {"\x80\x04", "a Python pickle", from_pytorch},
    {"\x80\x05", "a Python pickle", from_pytorch},
    {"\x89HDF", "an HDF5 file, as Keras writes them", nullptr},
    {"\x93NUMPY", "a NumPy array", nullptr},
    {"GGUF", "a GGUF file", nullptr},
    {"\x1f\x8b", "a gzip file; unpack it first", nullptr},
};

}  // namespace

void check_foreign(const std::string& path, std::string_view begin) {
  for (const Format& format : kFormats) {
    if (!begin.starts_with(format.begin)) continue;
    const bool npz = path.ends_with(".npz");
    const auto convert = npz ? from_numpy : format.convert;
    detail::fail<FormatError>(path, ": ", npz ? "a NumPy archive" : format.name, ", not safetensors; ",
                              convert ? "convert it: " + convert(path) : "convert it with the program that wrote it");
  }
}

}  // namespace ringtape
