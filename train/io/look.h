#pragma once
#include <filesystem>
#include <string>
#include <vector>

// What is on the disk. What cannot be read is never taken for what is not there: these throw IoError, with the path and
// the system's reason, if they cannot find out, and for a link to nothing (its disk may not be mounted), also if it is
// a folder above the path.
namespace ringtape {

// The type of what has this name, or not_found. type_at() follows a link at the end of the path, name_type() does not.
std::filesystem::file_type type_at(const std::string& path);
std::filesystem::file_type name_type(const std::string& path);

bool is_there(const std::string& path);      // anything has this name
bool is_folder_at(const std::string& path);  // a folder, or a link to one

// The names in a folder, in order; none if there is no such folder.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace ringtape
