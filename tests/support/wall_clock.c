/* Preloaded into a program: its wall clock is as far off as the file says that MONARCH_TEST_CLOCK names, 8 bytes of
 * seconds, and jumps when that changes. Durations and deadlines that come from the wall clock go wrong by it, and those
 * of the monotonic clocks do not; the machine's own clock stays as it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int (*clock_function)(clockid_t, struct timespec *);

static clock_function real_clock;
static const volatile int64_t *offset;

__attribute__((constructor)) static void prepare(void) {
  real_clock = (clock_function)dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("MONARCH_TEST_CLOCK");
  const int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) offset = page;
  close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
  if (real_clock == NULL) prepare();
  const int result = real_clock(clock, out);
  if (result == 0 && offset != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    out->tv_sec += *offset;
  return result;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  (void)zone;
  struct timespec now;
  const int result = clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return result;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}
