/* The callbacks for messages together: which one is told, what it may do, and that the real libxdp and libbpf learn of theirs.
 * Linked with Slipring, or with libxdp and libbpf and Slipring preloaded. Interface PEER_IF is no good: queue 63. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <slipring.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xdp/libxdp.h>
#include <xdp/xsk.h>
#if __has_include(<bpf/libbpf.h>)
#include <bpf/libbpf.h>
#else
enum libbpf_print_level { LIBBPF_WARN };
typedef int (*libbpf_print_fn_t)(enum libbpf_print_level, const char *, va_list);
libbpf_print_fn_t libbpf_set_print(libbpf_print_fn_t);
#endif

#define CHECK(x)                                                                \
	do {                                                                    \
		if (!(x)) {                                                     \
			printf("line %d: not so: %s\n", __LINE__, #x);          \
			fflush(stdout);                                         \
			_exit(1);                                               \
		}                                                               \
	} while (0)

enum { SIZE = 1 << 18 };

static unsigned on_xdp, on_bpf, on_ours;
static char last[1024];
static slipring_print_fn (*set_ours)(slipring_print_fn);

static int xdp_print(enum libxdp_print_level level, const char *format, va_list args)
{
	CHECK(level == LIBXDP_WARN);
	__atomic_add_fetch(&on_xdp, 1, __ATOMIC_RELAXED);
	return vsnprintf(last, sizeof(last), format, args);
}

static int xdp_print_too(enum libxdp_print_level level, const char *format, va_list args)
{
	char text[1024];

	CHECK(level == LIBXDP_WARN);
	__atomic_add_fetch(&on_xdp, 1, __ATOMIC_RELAXED);
	return vsnprintf(text, sizeof(text), format, args);
}

static int bpf_print(enum libbpf_print_level level, const char *format, va_list args)
{
	CHECK(level == LIBBPF_WARN);
	on_bpf++;
	return vsnprintf(last, sizeof(last), format, args);
}

static void our_print(int level, const char *line)
{
	CHECK(level == SLIPRING_WARN);
	on_ours++;
	snprintf(last, sizeof(last), "%s", line);
}

static struct xsk_ring_prod fill, tx;
static struct xsk_ring_cons comp, rx;

static struct xsk_umem *good_umem(void)
{
	struct xsk_umem *umem = NULL;
	void *area = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(area != MAP_FAILED);
	CHECK(xsk_umem__create(&umem, area, SIZE, &fill, &comp, NULL) == 0);
	return umem;
}

/* A failure with one message. */
static void fail(void)
{
	struct xsk_umem_config config = { .frame_size = 1000 };
	struct xsk_umem *umem = NULL;
	struct xsk_ring_prod f;
	struct xsk_ring_cons c;
	void *area = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(area != MAP_FAILED);
	CHECK(xsk_umem__create(&umem, area, 64000, &f, &c, &config) == -EINVAL);
	munmap(area, 65536);
}

/* What a failure writes to stderr. */
static unsigned lines_on_stderr(void (*failure)(void))
{
	int saved = dup(2), c;
	unsigned lines = 0;
	FILE *file = tmpfile();

	CHECK(file && saved >= 0 && dup2(fileno(file), 2) == 2);
	failure();
	CHECK(dup2(saved, 2) == 2);
	close(saved);
	rewind(file);
	while ((c = fgetc(file)) != EOF)
		lines += c == '\n';
	fclose(file);
	return lines;
}

static void told(unsigned xdp, unsigned ours, unsigned bpf, unsigned err)
{
	on_xdp = on_ours = on_bpf = 0;
	CHECK(lines_on_stderr(fail) == err);
	CHECK(on_xdp == xdp && on_ours == ours && on_bpf == bpf);
	CHECK(err || !(xdp | ours | bpf) || (strstr(last, "1000") && strchr(last, '\n') == last + strlen(last) - 1));
}

/* The same function in the real library, and what it has now; -1: the library is not loaded. */
static void *real(const char *library, const char *name)
{
	void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);

	return handle ? dlsym(handle, name) : NULL;
}

static void order(void)
{
	libxdp_print_fn_t first_xdp, (*real_xdp)(libxdp_print_fn_t);
	libbpf_print_fn_t first_bpf, (*real_bpf)(libbpf_print_fn_t);

	real_xdp = (libxdp_print_fn_t(*)(libxdp_print_fn_t))real("libxdp.so.1", "libxdp_set_print");
	real_bpf = (libbpf_print_fn_t(*)(libbpf_print_fn_t))real("libbpf.so.1", "libbpf_set_print");
#ifdef WITH_LIBXDP
	CHECK(real_xdp && real_xdp != libxdp_set_print);
	CHECK(real_bpf && real_bpf != libbpf_set_print);
#endif
	told(0, 0, 0, 1);

	/* libbpf's alone. */
	first_bpf = libbpf_set_print(bpf_print);
	CHECK(first_bpf);
	told(0, 0, 1, 0);
	/* Slipring's is nearer, libxdp's is the nearest. */
	CHECK(set_ours(our_print) == NULL);
	told(0, 1, 0, 0);
	first_xdp = libxdp_set_print(xdp_print);
	CHECK(first_xdp);
	told(1, 0, 0, 0);
	CHECK(libxdp_set_print(xdp_print) == xdp_print);
	/* The real ones have them too. (This takes them away there.) */
	CHECK(!real_xdp || real_xdp(xdp_print) == xdp_print);
	CHECK(!real_bpf || real_bpf(bpf_print) == bpf_print);

	/* Silence in libxdp's place: Slipring's was given by name and stays. */
	CHECK(libxdp_set_print(NULL) == xdp_print);
	told(0, 1, 0, 0);
	CHECK(set_ours(NULL) == our_print);
	told(0, 0, 0, 0);
	/* Back to the beginning in libxdp's: libbpf's again; silence there is for libbpf only. */
	CHECK(libxdp_set_print(first_xdp) == NULL);
	told(0, 0, 1, 0);
	CHECK(libbpf_set_print(NULL) == bpf_print);
	told(0, 0, 0, 1);
	CHECK(libbpf_set_print(bpf_print) == NULL);
	told(0, 0, 1, 0);
	CHECK(libbpf_set_print(first_bpf) == bpf_print);
	told(0, 0, 0, 1);
	/* As never set: the first one comes back again. */
	CHECK(libbpf_set_print(first_bpf) == first_bpf);
	CHECK(libxdp_set_print(first_xdp) == first_xdp);
}

/* D-class: a message must not be given while the library holds the UMEM. */
static struct xsk_umem *held;
static unsigned depth, deepest;

static int busy_print(enum libxdp_print_level level, const char *format, va_list args)
{
	struct xsk_socket *xsk = NULL;
	int ret;

	(void)level;
	(void)format;
	(void)args;
	on_xdp++;
	deepest = ++depth > deepest ? depth : deepest;
	CHECK(xsk_umem__fd(held) >= 0);
	CHECK(xsk_socket__create(&xsk, NULL, 0, held, &rx, &tx, NULL) == -EFAULT);
	ret = xsk_socket__create(&xsk, getenv("PEER_IF"), 63, held, &rx, &tx, NULL);
	CHECK(ret < 0);
	depth--;
	errno = E2BIG;
	return 0;
}

static void fail_with_umem_held(void)
{
	struct xsk_socket *xsk = NULL;
	int ret = xsk_socket__create(&xsk, getenv("PEER_IF"), 63, held, &rx, &tx, NULL);

	CHECK(ret < 0 && errno == -ret && errno != E2BIG && !xsk);
}

static void reentry(void)
{
	unsigned messages;

	held = good_umem();
	on_xdp = 0;
	libxdp_set_print(xdp_print);
	fail_with_umem_held();
	messages = on_xdp;
	CHECK(messages);

	/* Two failures inside the callback, each told on stderr: a callback is not called for itself. */
	libxdp_set_print(busy_print);
	on_xdp = 0;
	CHECK(lines_on_stderr(fail_with_umem_held) == messages * (1 + messages));
	CHECK(on_xdp == messages && deepest == 1);
	libxdp_set_print(xdp_print);
	CHECK(xsk_umem__delete(held) == 0);
}

static int stop;

static void *fail_often(void *unused)
{
	(void)unused;
	for (int i = 0; i < 300; i++)
		fail();
	return NULL;
}

static void *exchange_often(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		libxdp_print_fn_t old = libxdp_set_print(xdp_print_too);

		CHECK(old == xdp_print_too);
		CHECK(libbpf_set_print(bpf_print));
	}
	return NULL;
}

/* Each message once, whoever sets callbacks meanwhile. */
static void threads(void)
{
	pthread_t failing[4], exchanging[2];

	libxdp_set_print(xdp_print_too);
	on_xdp = on_bpf = 0;
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&exchanging[i], NULL, exchange_often, NULL));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&failing[i], NULL, fail_often, NULL));
	for (int i = 0; i < 4; i++)
		pthread_join(failing[i], NULL);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(exchanging[i], NULL);
	CHECK(on_xdp == 4 * 300 && on_bpf == 0);
}

static void succeed(void)
{
	struct xsk_umem *umem = good_umem();
	struct xsk_socket *xsk = NULL;

	CHECK(xsk_socket__create(&xsk, getenv("PEER_IF"), 0, umem, &rx, &tx, NULL) == 0);
	xsk_socket__delete(xsk);
	CHECK(xsk_umem__delete(umem) == 0);
}

int main(void)
{
	alarm(60);
	*(void **)&set_ours = dlsym(RTLD_DEFAULT, "slipring_set_print");
	CHECK(set_ours && getenv("PEER_IF"));
	order();

	/* C64: nothing at all on success, the default program's coming and going included. */
	libxdp_set_print(xdp_print);
	on_xdp = 0;
	CHECK(lines_on_stderr(succeed) == 0 && on_xdp == 0);

	reentry();
	threads();
	return 0;
}
