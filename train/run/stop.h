#pragma once

namespace ringtape {

// These functions set what the signals that ask a process to end do from now on: SIGTERM, SIGINT, SIGHUP (its terminal
// has gone) and SIGUSR1 (sent by Slurm's --signal some time before the end). A SIGHUP that the process ignored when it
// began, as under nohup, stays ignored. Each call replaces the previous setting. Call them from the main thread.

// Blocks the signals until the next of these calls. Child processes started meanwhile inherit this.
void hold_stops();

// A signal ends the process at once with exit code 75 (comm::kPreempted): nothing has to be saved yet. `speaks`: with a
// message on standard error.
void stop_at_once(bool speaks);

// The first signal sets a flag that stop_requested() returns; the trainer checks it after each step and stops. The same
// signal again at least one second later ends the process as by default. An earlier one is ignored, since a scheduler
// and a launcher may both signal each rank; another one, too: Slurm sends SIGTERM some time after its --signal.
void stop_after_step();
bool stop_requested();

// What to do after a stop that came while another rank ended, so that no checkpoint of this step is there.
inline constexpr const char* kWithoutCheckpoint =
    "no checkpoint was written; the same command with --resume goes on from the newest one, or from the beginning";

// Restores the default: a signal ends the process. For a run that has failed.
void stop_as_always();

}  // namespace ringtape
