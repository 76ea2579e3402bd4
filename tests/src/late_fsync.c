/* Preloaded into PostgreSQL: each flush of its WAL takes longer, as on a slower disk. PostgreSQL flushes the WAL by
 * fdatasync, and other files by fsync. Its own commit_delay differs: it applies only beside other open transactions, and
 * delays a commit before it waits for the flush that it shares with others. */

#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int fdatasync(int descriptor) {
  const char *microseconds = getenv("WEIR_LATE_FSYNC_US");
  if (microseconds != NULL) {
    long delay = atol(microseconds);
    struct timespec left = {delay / 1000000, delay % 1000000 * 1000};
    while (nanosleep(&left, &left) != 0) {
    }
  }
  return (int)syscall(SYS_fdatasync, descriptor);
}
