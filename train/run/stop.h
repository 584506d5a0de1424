#pragma once

namespace ringtape {

// What SIGTERM and SIGINT do to a training, from its first moment to its last; each call
// replaces the one before. For the first thread.

// They wait for the next of these. A program that is started now begins like that, too.
void hold_stops();

// One ends the process at once, with the exit code of what can be gone on with: of the run there
// is nothing yet. Says so, if it `speaks`.
void stop_at_once(bool speaks);

// The first is a wish, which the training asks for and follows; one that comes a second later, or after that, ends the
// process as it always does. Sooner it is the same wish: a scheduler and a launcher both tell each rank.
void stop_behind_a_step();
bool stop_requested();

// One ends the process as it always does: the training has failed.
void stop_as_always();

}  // namespace ringtape
