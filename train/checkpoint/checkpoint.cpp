#include "train/checkpoint/checkpoint.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "train/io/file.h"
#include "train/io/json.h"
#include "train/weights.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;  // of state.json
constexpr const char *kState = "state.json", *kPrefix = "step-", *kCrc = "crc32";

std::string crc_text(unsigned long crc) { return fmt::format("{:08x}", crc); }
std::string crc_of(const std::string& text) {
  return crc_text(crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

Json describe_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  RT_CHECK_AS(IoError, file, path, ": cannot open");
  std::vector<char> block(1 << 20);
  unsigned long crc = 0;
  int64_t bytes = 0;
  do {
    file.read(block.data(), std::streamsize(block.size()));
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(block.data()), size_t(file.gcount()));
    bytes += file.gcount();
  } while (file);
  RT_CHECK_AS(IoError, file.eof(), path, ": cannot read");
  return {{"bytes", bytes}, {kCrc, crc_text(crc)}};
}

// Steps are written with 8 digits, or with as many as they need.
bool newer(const std::string& a, const std::string& b) { return std::pair(a.size(), a) > std::pair(b.size(), b); }

// What state.json says, once it is clear that it says what was written.
Json read_state(const std::string& path) {
  const std::string text = read_file(path);
  Json json = Json::parse(text, nullptr, false);
  RT_CHECK_AS(FormatError, json.is_object() && json.contains(kCrc), path, ": damaged");
  const std::string crc = json[kCrc].dump();
  json.erase(kCrc);
  RT_CHECK_AS(FormatError, crc == Json(crc_of(json.dump(2))).dump(), path, ": damaged: it is not what was written");
  RT_CHECK_AS(FormatError, json.value("schema", 0) == kSchema, path, ": of another version of ringtape: schema ", json.value("schema", 0),
              ", this one reads ", kSchema);
  return json;
}

}  // namespace

void write_checkpoint(const std::string& path, const TrainState& state, const std::vector<TensorFile>& files,
                      const std::string& settings) {
  AtomicFolder folder(path);
  Json json{{"schema", kSchema}, {"settings", crc_of(settings)}, {"files", Json::object()}};
  for (const TensorFile& file : files) {
    write_safetensors(folder.file(file.name), file.tensors, file.metadata);
    json["files"][file.name] = describe_file(folder.file(file.name));
  }
  json["state"] = to_json(state);
  json[kCrc] = crc_of(json.dump(2));
  write_file(folder.file(kState), json.dump(2) + "\n");
  folder.commit();
}

TrainState check_checkpoint(const std::string& path, const std::string& settings) {
  const Json json = read_state(path + "/" + kState);
  const auto part = [&](const char* key) -> const Json& {
    RT_CHECK_AS(FormatError, json.contains(key), path, "/", kState, ": has no ", key);
    return json[key];
  };
  for (const auto& [name, written] : part("files").items()) {
    const Json now = describe_file(path + "/" + name);
    RT_CHECK_AS(FormatError, now == written, path, "/", name, ": damaged: ", now.dump(), " is not what was written, ", written.dump());
  }
  RT_CHECK_AS(UsageError, part("settings") == crc_of(settings), path,
              ": was made with other settings than config.toml has now; restore that file or choose another --run");
  return parse_train_state(part("state"));
}

std::vector<std::string> Checkpoints::names() const {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && !name.ends_with(kTemporaryFolder)) out.push_back(name);
  }
  std::sort(out.begin(), out.end(), newer);
  return out;
}

// A link that another process always sees, to the one or to the other.
void Checkpoints::link(const std::string& name, const std::string& to) const {
  const fs::path temporary = folder_ + "/" + name + kTemporaryFolder;
  std::error_code error;  // a file system without links has the folders themselves
  fs::remove(temporary, error);
  fs::create_directory_symlink(to, temporary, error);
  if (!error) fs::rename(temporary, folder_ + "/" + name, error);
}

static std::string name_of(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::string Checkpoints::path_of(int64_t step) const { return folder_ + "/" + name_of(step); }

std::string Checkpoints::save(const TrainState& state, const std::vector<TensorFile>& files, const std::string& settings) const {
  const std::string name = name_of(state.step), path = path_of(state.step);
  std::error_code error;
  fs::create_directories(folder_, error);
  RT_CHECK_AS(IoError, !error, folder_, ": cannot write: ", error.message());
  fs::remove_all(path, error);  // one that was found damaged, when its step was taken before
  write_checkpoint(path, state, files, settings);
  link("last", name);
  const std::string best = state.best ? name_of(state.best->step) : "";
  if (best == name) link("best", name);
  int64_t kept = 0;
  for (const std::string& old : names()) {
    const bool of_another_course = newer(old, name);  // damaged ones, which the training went back behind
    if (of_another_course || (++kept > keep_ && old != best)) fs::remove_all(folder_ + "/" + old, error);
  }
  return path;
}

std::optional<Checkpoints::Found> Checkpoints::newest(const std::string& settings,
                                                      const std::function<void(const std::string&)>& damaged) const {
  for (const std::string& name : names()) {
    const std::string path = folder_ + "/" + name;
    try {
      return Found{path, check_checkpoint(path, settings)};
    } catch (const FormatError& e) {
      damaged(e.what());
    } catch (const IoError& e) {
      damaged(e.what());
    }
  }
  return {};
}

void Checkpoints::load(const std::string& path, const std::vector<TensorFile>& files) {
  for (const TensorFile& file : files) load_tensors(path + "/" + file.name, file.tensors);
}

}  // namespace ringtape
