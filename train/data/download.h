#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace ringtape {

// A file that a data set is published as. It is the one list of where the sets come from.
struct PublishedFile {
  const char* set;      // "cifar10"
  const char* url;      // of its folder, with the / at its end
  const char* name;     // there, and here
  int64_t bytes;        // no more are fetched
  const char* sha256;
  // Below the data folder: where it belongs, "" for the folder itself; of an archive, what it unpacks to.
  const char* folder;
  const char* unpacked_sha256 = "";  // of what a .gz holds, where that is known too: copies packed anew are as good
  bool archive = false;              // a .tar.gz that lies in the data folder, and is unpacked
};
std::span<const PublishedFile> published_files();
bool is_published(const std::string& set);

std::string place_of(const PublishedFile& file, const std::string& dir);  // its path below the data folder

// Gets the file, from `from` in place of its own URL's folder unless that is empty: fetched by curl over http, https or
// from a file: URL into NAME.part, which a later call takes up where it ended, checked, unpacked by tar beside its
// place and renamed. Returns whether there was anything to do. Throws IoError, with the URL and where to put the file
// by hand, if it cannot be fetched or comes slower than 1 kB/s for a minute; FormatError for another content or a
// longer one, which is deleted.
bool download(const PublishedFile& file, const std::string& dir, const std::string& from, bool show_progress);

}  // namespace ringtape
