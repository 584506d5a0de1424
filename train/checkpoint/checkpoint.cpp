#include "train/checkpoint/checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "core/limits.h"
#include "core/log.h"
#include "core/parse.h"
#include "train/io/file.h"
#include "train/io/hash.h"
#include "train/io/json.h"
#include "train/io/json_reader.h"
#include "train/io/look.h"
#include "train/weights/weights.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
constexpr int kSchema = 1;  // of state.json
constexpr const char* kLinks[] = {"last", "best"};
constexpr const char *kState = "state.json", *kPrefix = "step-", *kAside = "aside-step-", *kCrc = "crc32";

std::string crc_of(const std::string& text) { return Crc32().add(text).str(); }

// A file that is missing is damage; one that cannot be read is an IoError.
void check_is_file(const std::string& path) {
  const fs::file_type type = type_at(path);
  RT_CHECK_AS(FormatError, type != fs::file_type::not_found, path, ": is missing");
  RT_CHECK_AS(FormatError, type == fs::file_type::regular, path, ": not a file");
}

Json describe_file(const std::string& path) {
  check_is_file(path);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  RT_CHECK_AS(IoError, file, path, ": cannot open: ", reason(errno));
  std::vector<char> block(1 << 20);
  Crc32 crc;
  int64_t bytes = 0;
  do {
    file.read(block.data(), std::streamsize(block.size()));
    crc.add(block.data(), size_t(file.gcount()));
    bytes += file.gcount();
  } while (file);
  RT_CHECK_AS(IoError, file.eof() && !file.bad(), path, ": cannot read: ", reason(errno));
  return {{"bytes", bytes}, {kCrc, crc.str()}};
}

// Steps have at least 8 digits.
std::string checkpoint_name(const char* prefix, int64_t step) { return fmt::format("{}{:08}", prefix, step); }

// The step in a checkpoint's name; nothing unless checkpoint_name() writes it exactly like this.
std::optional<int64_t> step_in(const std::string& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return {};
  const auto step = parse_number<int64_t>(name.substr(prefix.size()), 0, INT64_MAX);
  return step && name == checkpoint_name(std::string(prefix).c_str(), *step) ? step : std::nullopt;
}

constexpr int64_t kLongestState = 4 << 20;  // bytes; enough for the counters of 100,000 ranks

// Whether the folder is a checkpoint of that step: its state.json says so, or is too damaged to say anything. Throws
// IoError if it cannot be read.
bool is_checkpoint(const std::string& folder, int64_t step) {
  const std::string path = folder + "/" + kState;
  if (name_type(folder) != fs::file_type::directory || name_type(path) != fs::file_type::regular) return false;
  std::string text;
  try {
    text = read_file(path, kLongestState);
  } catch (const FormatError&) {
    return false;  // too long
  }
  Json json;
  try {
    json = parse_json(text, path);
  } catch (const FormatError&) {
    return true;
  }
  try {
    return JsonFields(json, path).object("state").integer("step") == step;
  } catch (const FormatError&) {
    return false;
  }
}

// Whether the folder contains any file of a checkpoint.
bool holds_some(const std::string& folder, std::vector<std::string> files) {
  files.push_back(kState);
  return std::any_of(files.begin(), files.end(),
                     [&](const std::string& name) { return is_there(folder + "/" + name); });
}

// The content of state.json, after its checksum has been verified.
Json read_state(const std::string& path) {
  check_is_file(path);
  Json json = parse_json(read_file(path, kLongestState), path);
  const std::string crc = JsonFields(json, path).text(kCrc);
  json.erase(kCrc);
  RT_CHECK_AS(FormatError, crc == crc_of(json.text(2)), path, ": damaged: its checksum does not match");
  const int64_t schema = JsonFields(json, path).integer("schema", 1);
  RT_CHECK_AS(UsageError, schema <= kSchema, path, ": written by a newer version of ringtape: schema ", schema,
              ", this one reads ", kSchema, "; resume with that version or choose another --run");
  return json;
}

// Settings are stored by name. Early checkpoints have a checksum of all settings of their time instead, which cannot be
// compared with today's.
void check_settings(const std::string& path, const JsonFields& state, const Course& course) {
  if (state["settings"].is_string() || !course.changed) return;
  const JsonFields settings = state.object("settings");
  Course::Texts before;
  for (const std::string& name : settings.keys()) before[name] = settings.text(name.c_str());
  std::string changed;
  for (const std::string& one : course.changed(before)) changed += (changed.empty() ? ": " : ", ") + one;
  RT_CHECK_AS(UsageError, changed.empty(), path, ": was written with other settings than config.toml has now", changed,
              "; restore that file or choose another --run");
}

Json to_json(const DataIdentity& data) {
  return {{"train", data.train}, {"test", data.test}, {"labels", data.labels}, {"pixels", data.pixels}};
}

void check_data(const std::string& path, const JsonFields& state, const DataIdentity& now) {
  if (!state.has("data")) return;  // early checkpoints lack it
  const JsonFields data = state.object("data");
  // Early checkpoints lack the pixels, too.
  const DataIdentity then{data.integer("train"), data.integer("test"), data.text("labels"),
                          data.has("pixels") ? data.text("pixels") : now.pixels};
  RT_CHECK_AS(UsageError, then == now, path, ": was written with another data set, of ", then.str(), "; this one has ",
              now.str(), "; select the former with --data-dir or choose another --run");
}

}  // namespace

void write_checkpoint(const std::string& path, const TrainState& state, const std::vector<TensorFile>& files,
                      const Course& course, const std::function<void()>& check) {
  AtomicFolder folder(path);
  Json json{
      {"schema", kSchema}, {"settings", course.settings}, {"data", to_json(course.data)}, {"files", Json::object()}};
  for (const TensorFile& file : files) {
    write_safetensors(folder.file(file.name), file.tensors, file.metadata);
    json["files"][file.name] = describe_file(folder.file(file.name));
  }
  json["state"] = to_json(state);
  json[kCrc] = crc_of(json.text(2));
  write_file(folder.file(kState), json.text(2) + "\n");
  if (check) check();
  folder.commit();
}

TrainState check_checkpoint(const std::string& path, int64_t step, const Course& course) {
  const std::string file = path + "/" + kState;
  const Json json = read_state(file);
  const JsonFields all(json, file), files = all.object("files");
  const TrainState state = parse_train_state(all["state"], file + ": state");
  RT_CHECK_AS(FormatError, state.step == step, file, ": holds step ", state.step,
              ", which does not match the name of the checkpoint");
  for (const std::string& name : files.keys())
    RT_CHECK_AS(FormatError, std::find(course.files.begin(), course.files.end(), name) != course.files.end(), file,
                ": files: '", name, "' does not belong to a checkpoint");
  check_settings(path, all, course);
  check_data(path, all, course.data);
  (void)parse_train_state(all["state"], file + ": state", course.steps_per_epoch);
  for (const std::string& name : course.files) {
    const JsonFields written = files.object(name.c_str());
    const Json then{{"bytes", written.integer("bytes")}, {kCrc, written.text(kCrc)}},
        now = describe_file(path + "/" + name);
    RT_CHECK_AS(FormatError, now == then, path, "/", name, ": damaged: expected ", then.text(), ", got ", now.text());
  }
  return state;
}

std::string Checkpoints::path_of(int64_t step) const { return path_of(kPrefix, step); }
std::string Checkpoints::path_of(const char* prefix, int64_t step) const {
  return folder_ + "/" + checkpoint_name(prefix, step);
}

std::vector<int64_t> Checkpoints::steps(const char* prefix, bool all) const {
  std::vector<int64_t> out;
  for (const std::string& name : names_in(folder_)) {
    const auto step = step_in(name, prefix);
    if (step && (all || is_checkpoint(folder_ + "/" + name, *step))) out.push_back(*step);
  }
  std::sort(out.begin(), out.end(), std::greater());
  return out;
}

// Points a link at a checkpoint. Other processes always see the old or the new link. Anything that is not a link stays.
void Checkpoints::link(const std::string& name, int64_t step) const {
  const std::string path = folder_ + "/" + name, to = checkpoint_name(kPrefix, step);
  std::error_code error;  // ignored: a file system without links still has the folders
  const fs::file_type now = fs::symlink_status(path, error).type();
  if ((now != fs::file_type::symlink && now != fs::file_type::not_found) || fs::read_symlink(path, error) == to) return;
  const std::string temporary = temporary_name(path);
  fs::create_directory_symlink(to, temporary, error);
  if (!error) fs::rename(temporary, path, error);
  if (error) fs::remove(temporary, error);
}

void Checkpoints::set_aside(int64_t step) const {
  const std::string from = path_of(step), to = path_of(kAside, step);
  std::error_code error;
  if (is_checkpoint(to, step)) remove_folder(to);
  fs::rename(from, to, error);
  if (error)
    return log_warn(from, ": belongs to another course of the training, but cannot be renamed to ", to, ": ",
                    error.message());
  log_warn(from, ": belongs to another course of the training; renamed to ", to,
           is_checkpoint(to, step) ? ", which the next checkpoint removes" : "");
}

std::string Checkpoints::save(const TrainState& state, const std::vector<TensorFile>& files,
                              const Course& course) const {
  const std::string path = path_of(state.step);
  make_folder(folder_);
  const bool again = name_type(path) != fs::file_type::not_found;
  if (again) set_aside(state.step);
  write_checkpoint(path, state, files, course, check_);
  if (check_) check_();
  const std::vector<int64_t> aside = steps(kAside), all = steps(kPrefix);
  for (const int64_t step : aside)
    if (!(again && step == state.step) && remove_folder(path_of(kAside, step)))
      log_info("removed ", path_of(kAside, step));
  for (const int64_t step : all)
    if (step > state.step) set_aside(step);
  settle(state);
  return path;
}

void Checkpoints::settle(const TrainState& newest) const {
  const std::vector<int64_t> all = steps(kPrefix);
  const bool has_best = newest.best && is_there(path_of(newest.best->step));
  link("last", newest.step);
  if (has_best) link("best", newest.best->step);
  int64_t kept = 0;
  for (const int64_t step : all)
    if (step <= newest.step && ++kept > keep_ && !(newest.best && newest.best->step == step) &&
        !(needed_ && needed_(path_of(step))))
      remove_folder(path_of(step));
}

std::vector<int64_t> Checkpoints::steps_until(int64_t step) const {
  std::vector<int64_t> out = steps(kPrefix);
  std::erase_if(out, [&](int64_t each) { return each > step; });
  std::reverse(out.begin(), out.end());
  return out;
}

void Checkpoints::remove_all() const {
  const std::vector<std::string> names = names_in(folder_);
  const std::vector<int64_t> all = steps(kPrefix), aside = steps(kAside);
  for (const int64_t step : all) remove_folder(path_of(kPrefix, step));
  for (const int64_t step : aside) remove_folder(path_of(kAside, step));
  for (const char* name : kLinks)
    if (name_type(folder_ + "/" + name) == fs::file_type::symlink) fs::remove(folder_ + "/" + name);
  for (const std::string& name : names)
    if (is_temporary_name(name)) fs::remove_all(folder_ + "/" + name);
  std::error_code error;
  fs::remove(folder_, error);  // not removed if something else is in it
}

std::optional<Checkpoints::Found> Checkpoints::newest(const Course& course,
                                                      const std::function<void(const std::string&)>& unusable) const {
  bool some = false;
  for (const int64_t step : steps(kPrefix, true)) {
    const std::string path = path_of(step);
    try {
      some = some || holds_some(path, course.files);
      return Found{path, check_checkpoint(path, step, course)};
    } catch (const FormatError& e) {
      unusable(e.what());
    } catch (const IoError& e) {  // it may be as good as ever
      throw IoError(concat(e.what(), "; to resume from an earlier checkpoint, move ", path, " elsewhere"));
    }
  }
  RT_CHECK_AS(FormatError, !some, folder_,
              ": none of the checkpoints can be used; repair one, or start again with --overwrite");
  for (const char* name : kLinks)
    RT_CHECK_AS(IoError, name_type(folder_ + "/" + name) != fs::file_type::symlink, folder_, ": has the link '", name,
                "', but no checkpoint; bring the checkpoints back, or start again with --overwrite");
  return {};
}

void Checkpoints::load(const std::string& path, const std::vector<TensorFile>& files) {
  for (const TensorFile& file : files) load_tensors(path + "/" + file.name, file.tensors);
}

}  // namespace ringtape
