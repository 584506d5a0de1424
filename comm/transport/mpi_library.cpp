#include "comm/transport/mpi_library.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

#include "core/check.h"

namespace ringtape::comm {

namespace {

constexpr const char* kLibrary = "libmpi.so.40";  // of Open MPI 4 and 5

template <class T> void find(void* library, const char* name, T& to) {
  void* const symbol = ::dlsym(library, name);
  RT_CHECK_AS(CommError, symbol, "mpi: ", kLibrary, " has no ", name, ": it is not Open MPI 4 or 5");
  to = reinterpret_cast<T>(symbol);
}

std::atomic<bool> abandoned{false};

void finalize() {
  int finalized = 1;
  if (!abandoned && mpi().Finalized(&finalized) == 0 && !finalized) mpi().Finalize();
}

Mpi load() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);  // its own plug-ins need its symbols
  RT_CHECK_AS(CommError, library, "mpi: cannot load ", kLibrary, " (", ::dlerror(),
              "); install Open MPI: ./setup.sh test");
  Mpi m{};
  find(library, "MPI_Init_thread", m.Init_thread);
  find(library, "MPI_Initialized", m.Initialized);
  find(library, "MPI_Finalized", m.Finalized);
  find(library, "MPI_Finalize", m.Finalize);
  find(library, "MPI_Comm_rank", m.Comm_rank);
  find(library, "MPI_Comm_size", m.Comm_size);
  find(library, "MPI_Comm_group", m.Comm_group);
  find(library, "MPI_Comm_create_group", m.Comm_create_group);
  find(library, "MPI_Comm_set_errhandler", m.Comm_set_errhandler);
  find(library, "MPI_Comm_free", m.Comm_free);
  find(library, "MPI_Group_incl", m.Group_incl);
  find(library, "MPI_Group_free", m.Group_free);
  find(library, "MPI_Isend", m.Isend);
  find(library, "MPI_Irecv", m.Irecv);
  find(library, "MPI_Test", m.Test);
  find(library, "MPI_Error_string", m.Error_string);
  find(library, "ompi_mpi_comm_world", m.world);
  find(library, "ompi_mpi_byte", m.byte);
  find(library, "ompi_mpi_errors_return", m.errors_return);
  return m;
}

}  // namespace

void Mpi::check(int error, const char* call) const {
  if (error == 0) return;
  char text[1024] = "";  // MPI_MAX_ERROR_STRING is 256
  int bytes = 0;
  Error_string(error, text, &bytes);
  throw CommError(concat("mpi: ", call, " failed: ", std::string_view(text, size_t(bytes))));
}

void abandon_mpi() { abandoned = true; }

const Mpi& mpi() {
  static const Mpi library = load();
  static const bool started = [] {
    int initialized = 0, level = 0;
    library.check(library.Initialized(&initialized), "MPI_Initialized");
    if (!initialized) {
      library.check(library.Init_thread(nullptr, nullptr, Mpi::kThreadSerialized, &level), "MPI_Init_thread");
      RT_CHECK_AS(CommError, level >= Mpi::kThreadSerialized, "mpi: this Open MPI was built without threads");
      std::atexit(finalize);
    }
    library.check(library.Comm_set_errhandler(library.world, library.errors_return), "MPI_Comm_set_errhandler");
    return true;
  }();
  (void)started;
  return library;
}

}  // namespace ringtape::comm
