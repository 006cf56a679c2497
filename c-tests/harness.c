/* The runner: see harness.h. Each test is a child process, so that a crash or a hang is one failed test. */
#include "harness.h"

#include <dirent.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef AF_XDP
#define AF_XDP 44
#endif

#define SKIPPED 77

static struct test *first, **last = &first;

void harness_add(struct test *test)
{
	*last = test;
	last = &test->next;
}

enum provider provider(void)
{
	const char *name = getenv("PROVIDER");

	if (!name || !strcmp(name, "engine"))
		return ENGINE;
	if (!strcmp(name, "direct"))
		return DIRECT;
	if (!strcmp(name, "libxdp"))
		return LIBXDP;
	fprintf(stderr, "PROVIDER=%s is none of engine, direct, libxdp\n", name);
	exit(2);
}

const char *ifname_of(enum port port)
{
	static const char *const veth[] = { "va", "vb", "vc", "vd", "ve", "vf", "vg", "vh" };
	static const char *const engine[] = { "sra", "srb", "src", "srd", "sma", "smb", "sja", "sjb", "swa", "swb", "slo", "snu" };

	if (!on_kernel())
		return engine[port];
	CHECK(port < sizeof(veth) / sizeof(veth[0]), "interface %d exists on the engine only", port);
	return veth[port];
}

/* The wires are named after this process, so that any number of tests can run at once. The library may read the
 * environment before main, so the program starts itself anew with it. */
static void set_devices(char **argv)
{
	char devices[512], self[4096];
	int id = (int)getpid();
	ssize_t len;

	if (getenv("SLIPRING_DEVICES"))
		return;
	snprintf(devices, sizeof(devices),
		 "sra=wire:t%d/a srb=wire:t%d/b src=wire:u%d/a srd=wire:u%d/b sma=wire:m%d/a?queues=8 smb=wire:m%d/b?queues=8 "
		 "sja=wire:j%d/a?mtu=8000 sjb=wire:j%d/b?mtu=8000 "
		 "swa=wire:w%d/a?full=wait swb=wire:w%d/b?full=wait slo=loop snu=null",
		 id, id, id, id, id, id, id, id, id, id);
	setenv("SLIPRING_DEVICES", devices, 1);
	/* By its name: under valgrind the link itself leads to valgrind. */
	len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	self[len < 0 ? 0 : len] = 0;
	execv(self, argv);
	perror("execv");
	exit(2);
}

/* Where a failure is told, also while the test looks at what comes on stderr. */
static int report = STDERR_FILENO;
static FILE *heard;

void hear_stderr(void)
{
	report = dup(STDERR_FILENO);
	heard = tmpfile();
	CHECK(report >= 0 && heard && dup2(fileno(heard), STDERR_FILENO) == STDERR_FILENO, "tmpfile: %s", strerror(errno));
}

void stderr_was_silent(const char *what)
{
	char text[256] = "";

	fflush(stderr);
	if (pread(fileno(heard), text, sizeof(text) - 1, 0) != 0)
		FAIL("%s: on stderr: %s", what, text);
	dup2(report, STDERR_FILENO);
	close(report);
	report = STDERR_FILENO;
	fclose(heard);
}

static void message(const char *before, const char *format, va_list args)
{
	char text[512];
	int n = snprintf(text, sizeof(text), "%s", before);

	n += vsnprintf(text + n, sizeof(text) - (size_t)n - 1, format, args);
	if (n > (int)sizeof(text) - 2)
		n = sizeof(text) - 2;
	text[n] = '\n';
	if (write(report, text, (size_t)n + 1) < 0)
		return;
}

void harness_fail(const char *file, int line, const char *format, ...)
{
	char before[160];
	va_list args;

	snprintf(before, sizeof(before), "  %s:%d: ", file, line);
	va_start(args, format);
	message(before, format, args);
	va_end(args);
	_exit(1);
}

void skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	message("  skipped: ", format, args);
	va_end(args);
	_exit(SKIPPED);
}

uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void sleep_ms(unsigned ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

struct footprint footprint(void)
{
	struct footprint f = { 0, 0 };
	char line[1024];
	DIR *dir = opendir("/proc/self/fd");
	FILE *maps;

	CHECK(dir, "opendir: %s", strerror(errno));
	while (readdir(dir))
		f.descriptors++;
	closedir(dir);
	maps = fopen("/proc/self/maps", "r");
	CHECK(maps, "fopen: %s", strerror(errno));
	while (fgets(line, sizeof(line), maps)) {
		/* The sixth field is the file; memory of malloc and stacks have none or [name]. */
		char path[512];

		if (sscanf(line, "%*s %*s %*s %*s %*s %511s", path) == 1 && path[0] != '[')
			f.mappings++;
	}
	fclose(maps);
	return f;
}

static int run_one(const struct test *test)
{
	const char *factor = getenv("TEST_TIMEOUT_FACTOR"); /* for sanitizers and valgrind */
	unsigned limit = 20 * (factor ? (unsigned)atoi(factor) : 1);
	int status;
	pid_t child;

	if (getenv("TEST_NO_FORK")) {
		test->run();
		return 0;
	}
	fflush(NULL);
	child = fork();
	if (child == 0) {
		alarm(limit);
		test->run();
		exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child) {
		perror("fork");
		return 1;
	}
	if (on_kernel())
		sleep_ms(60); /* until the kernel has let go of the queues */
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	fprintf(stderr, "  ended by signal %d (%s)%s\n", WTERMSIG(status), strsignal(WTERMSIG(status)),
		WTERMSIG(status) == SIGALRM ? ": it hung" : "");
	return 1;
}

static bool wanted(const struct test *test, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], test->name))
			return true;
	return argc < 2;
}

int main(int argc, char **argv)
{
	unsigned passed = 0, skipped = 0, failed = 0;

	if (argc == 2 && !strcmp(argv[1], "-l")) {
		for (struct test *t = first; t; t = t->next)
			puts(t->name);
		return 0;
	}
	if (on_kernel()) {
		int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);

		if (fd < 0) {
			printf("skipped: no AF_XDP sockets here: %s\n", strerror(errno));
			return SKIPPED;
		}
		close(fd);
	} else {
		set_devices(argv);
	}
	for (struct test *t = first; t; t = t->next) {
		uint64_t begin = now_ms();
		int code;

		if (!wanted(t, argc, argv))
			continue;
		code = run_one(t);
		printf("%s %s (%llu ms)\n", code == 0 ? "ok" : code == SKIPPED ? "skip" : "FAILED", t->name,
		       (unsigned long long)(now_ms() - begin));
		fflush(stdout);
		passed += code == 0;
		skipped += code == SKIPPED;
		failed += code != 0 && code != SKIPPED;
	}
	printf("%u passed, %u skipped, %u failed\n", passed, skipped, failed);
	if (failed)
		return 1;
	if (passed + skipped == 0) {
		fprintf(stderr, "no test has that name\n");
		return 2;
	}
	return passed ? 0 : SKIPPED;
}
