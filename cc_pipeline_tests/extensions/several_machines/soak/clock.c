/* A library to be loaded before a program (LD_PRELOAD), by which it sees another time than it is: later by as many
   seconds as the file MOVED_CLOCK says (a number of 64 bits, which may change while the program runs).

   The time of day and the times of files move, and what waits until a time of day waits as long as without it. Clocks
   that count from the start of the machine stay: whoever waits some seconds waits some seconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *told;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("MOVED_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *found = mmap(NULL, sizeof *told, PROT_READ, MAP_SHARED, file, 0);
  if (found != MAP_FAILED) told = found;
  close(file);
}

static int64_t ahead(void) { return told ? *told : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
  int done = (int)syscall(SYS_clock_gettime, clock, now);
  if (!done && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
  return done;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec found;
  clock_gettime(CLOCK_REALTIME, &found);
  if (now) *now = (struct timeval){found.tv_sec, found.tv_nsec / 1000};
  return 0;
}

time_t time(time_t *place) {
  struct timespec found;
  clock_gettime(CLOCK_REALTIME, &found);
  if (place) *place = found.tv_sec;
  return found.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
  if (base != TIME_UTC) return 0;
  clock_gettime(CLOCK_REALTIME, now);
  return base;
}

/* A moment to wait for, as the kernel knows it. Nobody says which clock it is of: one of the machine's start counts
   from there, and is far before now. */
static struct timespec until(const struct timespec *moment) {
  struct timespec real, found = *moment;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &real);
  if (found.tv_sec > real.tv_sec / 2) found.tv_sec -= ahead();
  return found;
}

#define NEXT(name, version) \
  static __typeof__(name) *next; \
  if (!next) next = (__typeof__(name) *)dlvsym(RTLD_NEXT, #name, version); \
  if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

int pthread_cond_timedwait(pthread_cond_t *restrict one, pthread_mutex_t *restrict lock, const struct timespec *restrict moment) {
  NEXT(pthread_cond_timedwait, "GLIBC_2.3.2");
  struct timespec real = until(moment);
  return next(one, lock, &real);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict lock, const struct timespec *restrict moment) {
  NEXT(pthread_mutex_timedlock, "GLIBC_2.34");
  struct timespec real = until(moment);
  return next(lock, &real);
}

int sem_timedwait(sem_t *restrict one, const struct timespec *restrict moment) {
  NEXT(sem_timedwait, "GLIBC_2.34");
  struct timespec real = until(moment);
  return next(one, &real);
}

int clock_nanosleep(clockid_t clock, int how, const struct timespec *wanted, struct timespec *left) {
  struct timespec real = (how & TIMER_ABSTIME) && clock == CLOCK_REALTIME ? until(wanted) : *wanted;
  return syscall(SYS_clock_nanosleep, clock, how, &real, left) ? errno : 0;
}

#define MOVED(of) do { int64_t by = ahead(); (of)->st_mtim.tv_sec += by; (of)->st_atim.tv_sec += by; (of)->st_ctim.tv_sec += by; } while (0)
#define STAT(name, kind, args, pass) \
  int name args { \
    static int (*next) args; \
    if (!next) next = (int (*) args)dlsym(RTLD_NEXT, #name); \
    int done = next pass; \
    if (!done) MOVED(found); \
    return done; \
  }
STAT(stat, stat, (const char *restrict path, struct stat *restrict found), (path, found))
STAT(lstat, stat, (const char *restrict path, struct stat *restrict found), (path, found))
STAT(fstat, stat, (int file, struct stat *found), (file, found))
STAT(fstatat, stat, (int at, const char *restrict path, struct stat *restrict found, int how), (at, path, found, how))
STAT(stat64, stat64, (const char *restrict path, struct stat64 *restrict found), (path, found))
STAT(lstat64, stat64, (const char *restrict path, struct stat64 *restrict found), (path, found))
STAT(fstat64, stat64, (int file, struct stat64 *found), (file, found))
STAT(fstatat64, stat64, (int at, const char *restrict path, struct stat64 *restrict found, int how), (at, path, found, how))
/* of programs that were built against an older C library */
STAT(__xstat, stat, (int version, const char *path, struct stat *found), (version, path, found))
STAT(__lxstat, stat, (int version, const char *path, struct stat *found), (version, path, found))
STAT(__fxstat, stat, (int version, int file, struct stat *found), (version, file, found))
STAT(__fxstatat, stat, (int version, int at, const char *path, struct stat *found, int how), (version, at, path, found, how))
STAT(__xstat64, stat64, (int version, const char *path, struct stat64 *found), (version, path, found))
STAT(__lxstat64, stat64, (int version, const char *path, struct stat64 *found), (version, path, found))
STAT(__fxstat64, stat64, (int version, int file, struct stat64 *found), (version, file, found))
STAT(__fxstatat64, stat64, (int version, int at, const char *path, struct stat64 *found, int how), (version, at, path, found, how))

int statx(int at, const char *restrict path, int how, unsigned int wanted, struct statx *restrict found) {
  int done = (int)syscall(SYS_statx, at, path, how, wanted, found);
  if (!done) {
    int64_t by = ahead();
    found->stx_mtime.tv_sec += by;
    found->stx_atime.tv_sec += by;
    found->stx_ctime.tv_sec += by;
    found->stx_btime.tv_sec += by;
  }
  return done;
}

static void back(const struct timespec given[2], struct timespec real[2]) {
  for (int at = 0; at < 2; at++) {
    real[at] = given[at];
    if (real[at].tv_nsec != UTIME_NOW && real[at].tv_nsec != UTIME_OMIT) real[at].tv_sec -= ahead();
  }
}

int utimensat(int at, const char *path, const struct timespec given[2], int how) {
  struct timespec real[2];
  if (given) back(given, real);
  return (int)syscall(SYS_utimensat, at, path, given ? real : NULL, how);
}

int futimens(int file, const struct timespec given[2]) {
  struct timespec real[2];
  if (given) back(given, real);
  return (int)syscall(SYS_utimensat, file, NULL, given ? real : NULL, 0);
}
