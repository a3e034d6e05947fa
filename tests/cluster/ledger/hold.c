/* hold PATTERN FOLDER SECONDS: what a container of the storm does with its devices. For every device file that the
 * pattern finds it locks FOLDER/held/<name>, for so long. A lock ends with its process however that ends, so that a
 * container that is killed leaves none. Whoever finds a lock taken writes "<name> <host name>" to FOLDER/doubles;
 * everybody writes a line to FOLDER/ran. The time of a lock's file is when its device was last in use.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST 64

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(2);
}

/* One write, so that lines of several containers are not mixed. */
static void note(const char *folder, const char *name, const char *line)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0 || write(file, line, strlen(line)) != (ssize_t)strlen(line))
        fail(path);
    close(file);
}

int main(int count, char **words)
{
    if (count != 4)
        return 64;
    const char *pattern = words[1], *folder = words[2], *host = getenv("HOSTNAME") ? getenv("HOSTNAME") : "?";
    double seconds = atof(words[3]);
    int mine[MOST];
    size_t locked = 0;
    glob_t nodes;
    if (glob(pattern, 0, NULL, &nodes) != 0 || nodes.gl_pathc > MOST)
        fail(pattern);
    for (size_t at = 0; at < nodes.gl_pathc; at++) {
        const char *device = strrchr(nodes.gl_pathv[at], '/') + 1;
        char text[4096];
        snprintf(text, sizeof text, "%s/held/%s", folder, device);
        int file = open(text, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (file < 0)
            fail(text);
        if (fcntl(file, F_SETLK, &whole) == 0) {
            mine[locked++] = file;
            continue;
        }
        if (errno != EAGAIN && errno != EACCES)
            fail(text);
        snprintf(text, sizeof text, "%s %s\n", device, host);
        note(folder, "doubles", text);
    }
    char line[4096];
    snprintf(line, sizeof line, "%s\n", host);
    note(folder, "ran", line);
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
    for (size_t at = 0; at < locked; at++)
        if (futimens(mine[at], NULL) != 0)
            fail("the time of a lock");
    return 0;
}
