// A project with folders core/ and nn/ of its own, as many have, and with names of its own in a file that says
// `using namespace ringtape;`.
// Prints:
//   42
//   5
//   13
#include <ringtape/ringtape.h>

#include <cstdio>

#include "core/random.h"
#include "nn/module.h"

using namespace ringtape;

// Each is defined and used: one that ringtape has, too, would be ambiguous.
// clang-format off
#define TYPES(X)                                                                                             \
  X(Block) X(Bounds) X(Cell) X(Config) X(Decoder) X(Encoder) X(Entry) X(Erasing) X(Event) X(File) X(Frame)   \
  X(Inbox) X(Interval) X(Item) X(Jitter) X(Kind) X(Layer) X(Line) X(Logger) X(Message) X(Mixture) X(Model)   \
  X(Net) X(Network) X(Phase) X(Pixel) X(Point) X(Progress) X(Range) X(Rectangle) X(Request) X(Result)        \
  X(Runtime) X(Scope) X(Several) X(Sides) X(Size) X(Sorted) X(Source) X(Sources) X(Status) X(Stopwatch)      \
  X(Table) X(Taps) X(Timer) X(Token) X(Turned) X(Value) X(Weights)
#define FUNCTIONS(X)                                                                                         \
  X(add_forward) X(augment) X(between) X(combine) X(copy) X(erase) X(linear_forward) X(matmul_forward)       \
  X(mix) X(place) X(reach) X(relu_forward) X(weight)
// clang-format on
#define X(name)   \
  struct name {}; \
  using Own##name = name;
TYPES(X)
#undef X
#define X(name) \
  int name(int x) { return x; }
FUNCTIONS(X)
#undef X

int main() {
  Affine layer;
  std::printf("%d\n%g\n", OwnRandom().next(), layer(full({1}, 2)).item());
#define X(name) +name(1)
  std::printf("%d\n", 0 FUNCTIONS(X));
}
