/* Where messages go: stderr, Slipring's callback, libxdp's callback; and the two functions about error numbers. The message
 * is that of a UMEM with a chunk size that nobody allows. */
#include <errno.h>
#include <slipring.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xdp/libxdp.h>
#include <xdp/xsk.h>

#define CHECK(x)                                                                 \
	do {                                                                     \
		if (!(x)) {                                                      \
			fprintf(stdout, "line %d: not so: %s\n", __LINE__, #x);  \
			exit(1);                                                 \
		}                                                                \
	} while (0)

static char libxdp_text[512], slipring_text[512];

static int on_libxdp(enum libxdp_print_level level, const char *format, va_list args)
{
	CHECK(level == LIBXDP_WARN);
	return vsnprintf(libxdp_text, sizeof(libxdp_text), format, args);
}

static void on_slipring(int level, const char *line)
{
	CHECK(level == SLIPRING_WARN);
	snprintf(slipring_text, sizeof(slipring_text), "%s", line);
}

/* Makes the library complain, and gives what it wrote to stderr. */
static const char *complaint(void)
{
	static char text[512];
	struct xsk_umem_config config = { .frame_size = 1000 };
	struct xsk_umem *umem = NULL;
	struct xsk_ring_prod fill;
	struct xsk_ring_cons comp;
	void *area = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int saved = dup(2);
	FILE *file = tmpfile();
	size_t length;

	CHECK(area != MAP_FAILED && saved >= 0 && file);
	libxdp_text[0] = slipring_text[0] = 0;
	CHECK(dup2(fileno(file), 2) == 2);
	CHECK(xsk_umem__create(&umem, area, 64000, &fill, &comp, &config) == -EINVAL);
	CHECK(dup2(saved, 2) == 2);
	close(saved);
	rewind(file);
	length = fread(text, 1, sizeof(text) - 1, file);
	text[length] = 0;
	fclose(file);
	munmap(area, 65536);
	return text;
}

static int is_message(const char *text)
{
	return strncmp(text, "slipring: ", 10) == 0 && strchr(text, '\n') == text + strlen(text) - 1;
}

static void error_numbers(void)
{
	char text[64];
	long number;

	CHECK(libxdp_get_error(text) == 0);
	for (number = 1; number <= 4095; number++)
		CHECK(libxdp_get_error((void *)(intptr_t)-number) == -number);
	CHECK(libxdp_get_error((void *)(intptr_t)-4096) == 0);
	CHECK(libxdp_get_error((void *)(intptr_t)4096) == 0);
	errno = ENOBUFS;
	CHECK(libxdp_get_error(NULL) == -ENOBUFS);

	for (number = 1; number <= 133; number++) {
		if (number == 41 || number == 58) /* no such errors on Linux */
			continue;
		CHECK(libxdp_strerror((int)-number, text, sizeof(text)) == 0 && strcmp(text, strerror((int)number)) == 0);
		CHECK(libxdp_strerror((int)number, text, sizeof(text)) == 0 && strcmp(text, strerror((int)number)) == 0);
	}
	CHECK(libxdp_strerror(100000, text, sizeof(text)) < 0 && strstr(text, "100000"));
	CHECK(libxdp_strerror(EINVAL, text, 8) != 0 && strlen(text) < 8);
	CHECK(libxdp_strerror(EINVAL, NULL, 8) == -EINVAL && libxdp_strerror(EINVAL, text, 0) == -EINVAL);
	CHECK(libxdp_strerror((int)0x80000000, text, sizeof(text)) < 0);
}

int main(void)
{
	libxdp_print_fn_t first;
	const char *line;

	CHECK(strcmp(slipring_version(), SLIPRING_VERSION) == 0);

	line = complaint();
	CHECK(is_message(line) && strstr(line, "1000"));

	CHECK(slipring_set_print(on_slipring) == NULL);
	CHECK(*complaint() == 0 && is_message(slipring_text) && strstr(slipring_text, "1000"));

	first = libxdp_set_print(on_libxdp);
	CHECK(first != NULL);
	CHECK(*complaint() == 0 && is_message(libxdp_text) && strstr(libxdp_text, "1000") && *slipring_text == 0);
	CHECK(slipring_set_print(NULL) == on_slipring);
	CHECK(*complaint() == 0 && is_message(libxdp_text));

	/* NULL is silence, and the callback of the beginning can be put back. */
	CHECK(libxdp_set_print(NULL) == on_libxdp);
	CHECK(*complaint() == 0 && *libxdp_text == 0);
	CHECK(libxdp_set_print(first) == NULL);
	CHECK(is_message(complaint()));

	error_numbers();
	return 0;
}
