/* A program with an allocator of its own, as with jemalloc or a sanitizer's runtime: it comes before the preload. A block of
 * it must never reach libc's allocator, nor one of libc's this one. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Alignas(4096) char arena[64 << 20];
static size_t used;
static unsigned frees;

void *malloc(size_t size)
{
	size_t at = __atomic_fetch_add(&used, (size + 31) & ~(size_t)15, __ATOMIC_RELAXED);

	if (at + size + 16 > sizeof(arena))
		_exit(4);
	memcpy(arena + at, &size, sizeof(size));
	return arena + at + 16;
}

static void check(void *block)
{
	if ((char *)block < arena || (char *)block >= arena + sizeof(arena))
		_exit(3);
}

void free(void *block)
{
	if (!block)
		return;
	check(block);
	__atomic_fetch_add(&frees, 1, __ATOMIC_RELAXED);
}

void *calloc(size_t n, size_t size)
{
	return malloc(n * size);
}

void *realloc(void *block, size_t size)
{
	void *new = malloc(size);
	size_t old;

	if (block) {
		check(block);
		memcpy(&old, (char *)block - 16, sizeof(old));
		memcpy(new, block, old < size ? old : size);
		free(block);
	}
	return new;
}

void *aligned_alloc(size_t align, size_t size)
{
	char *block = malloc(size + align);

	block += (align - (uintptr_t)block % align) % align;
	memcpy(block - 16, &size, sizeof(size));
	return block;
}

void *memalign(size_t align, size_t size)
{
	return aligned_alloc(align, size);
}

int posix_memalign(void **block, size_t align, size_t size)
{
	*block = aligned_alloc(align, size);
	return 0;
}

int main(void)
{
	int (*create)(void **, void *, uint64_t, void *, void *, void *);
	unsigned before = frees;
	char rings[2][64];
	void *umem;

	*(void **)&create = dlsym(RTLD_DEFAULT, "xsk_umem__create");
	if (!create)
		return 1;
	/* A refusal with a message, which is put together in the heap. */
	for (int i = 0; i < 100; i++)
		if (create(&umem, arena + 64, 4096, rings[0], rings[1], NULL) >= 0)
			return 2;
	return frees == before ? 5 : 0;
}
