#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ringtape {

// A regular file in a tar archive: its content is `size` bytes of the archive from `offset` on.
struct TarMember {
  std::string name;
  int64_t offset = 0, size = 0;
};

struct TarIndex {
  std::vector<TarMember> members;  // in the archive's order
  int64_t links = 0, others = 0;   // which are not among them, nor are folders; others: devices and the like
};

// Lists an uncompressed archive as tar, GNU tar (long names) and pax write it, without reading its members. A name
// loses a "./" at its begin. Throws IoError for a file that cannot be read; FormatError, one line with the archive's
// path, for one that is compressed, damaged or cut off, that goes on behind its end marker, for a name that is
// absolute, contains ".." or comes twice, and for sparse files. Takes memory in proportion to the names.
TarIndex index_tar(const std::string& path);

// Files of an archive that belong together: indices of its members, -1 for none.
struct TarSample {
  std::string key;  // what the names begin with
  int64_t image = -1, label = -1;
};

struct TarSamples {
  std::vector<TarSample> samples;  // those with an image, in the archive's order
  int64_t unused = 0;              // members that are neither image nor label, and those of samples without an image
  std::string dotted = {};  // of these, the first that would be an image if its key ended at its last dot; "": none
};

// The samples of an archive by WebDataset's convention: the members of one stand together and have the same name up to
// the first dot after the last slash. What follows that dot tells what a member is: an image (kImageEndings), a label
// (.cls, else .json), or something else. Throws FormatError for a sample of two images, for one whose members are not
// together, and for a label of more than 1 MiB.
TarSamples tar_samples(const TarIndex& index, const std::string& path);

// The label in the content of a member: of .cls the number that is its text, of .json the number "label" of its object;
// -1 for a .json without "label". Throws FormatError with `where` unless it is one from 0 to 2^31 - 1.
int64_t tar_label(const TarMember& member, std::string_view content, const std::string& where);

}  // namespace ringtape
