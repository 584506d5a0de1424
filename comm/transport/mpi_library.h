#pragma once
#include <string>

// The few functions of Open MPI 4 and 5 that the mpi transport calls. They are looked up when it is opened, so that the
// program does not depend on MPI otherwise. Its handles are pointers to objects that the library exports (mpi.h:
// MPI_COMM_WORLD is &ompi_mpi_comm_world).
namespace ringtape::comm {

struct Mpi {
  struct Object;  // opaque
  using Handle = Object*;
  struct Status {
    int source, tag, error, cancelled;
    size_t bytes;
  };
  static constexpr int kThreadSerialized = 2;

  int (*Init_thread)(int*, char***, int, int*);
  int (*Initialized)(int*);
  int (*Finalized)(int*);
  int (*Finalize)();
  int (*Comm_rank)(Handle, int*);
  int (*Comm_size)(Handle, int*);
  int (*Comm_group)(Handle, Handle*);
  int (*Comm_create_group)(Handle, Handle, int, Handle*);
  int (*Comm_set_errhandler)(Handle, Handle);
  int (*Comm_free)(Handle*);
  int (*Group_incl)(Handle, int, const int*, Handle*);
  int (*Group_free)(Handle*);
  int (*Isend)(const void*, int, Handle, int, int, Handle, Handle*);
  int (*Irecv)(void*, int, Handle, int, int, Handle, Handle*);
  int (*Test)(Handle*, int*, Status*);
  int (*Error_string)(int, char*, int*);
  Handle world, byte, errors_return;

  void check(int error, const char* call) const;  // throws CommError with MPI's own text
};

// Loads the library and starts MPI at the first call. Throws a CommError that says what is missing. MPI is finalised
// when the process ends.
const Mpi& mpi();

// After a failure: prevents the finalisation of MPI, which would wait for dead ranks. mpirun ends the job when this
// process exits.
void abandon_mpi();

}  // namespace ringtape::comm
