#pragma once

// A file of the project's own, with a name that ringtape has, too.
struct OwnRandom {
  int state = 41;
  int next() { return ++state; }
};
