#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace ringtape {

// A published file of a data set. published_files() is the only list of download sources.
struct PublishedFile {
  const char* set;   // "cifar10"
  const char* url;   // of its folder, with a / at the end
  const char* name;  // the same at the URL and here
  int64_t bytes;     // its size; not more is fetched
  const char* sha256;
  // Its place below the data folder, "" for the folder itself; for an archive, the folder that it unpacks to.
  const char* folder;
  const char* unpacked_sha256 = "";  // of the content of a .gz, if known: recompressed copies are accepted
  bool archive = false;              // a .tar.gz in the data folder, which is unpacked
};
std::span<const PublishedFile> published_files();
bool is_published(const std::string& set);

std::string place_of(const PublishedFile& file, const std::string& dir);  // its path below the data folder

// Fetches the file, from the URL `from` instead of its own folder's URL unless `from` is empty. curl fetches it by
// http, https or from a file: URL into NAME.part, which a later call resumes; then it is checked, unpacked by tar next
// to its place and renamed. Returns whether there was anything to do. Throws IoError, with the URL and where to put the
// file by hand, if the file cannot be fetched or arrives slower than 1 kB/s for a minute; FormatError for a different
// content or a longer file, which is deleted.
bool download(const PublishedFile& file, const std::string& dir, const std::string& from, bool show_progress);

}  // namespace ringtape
