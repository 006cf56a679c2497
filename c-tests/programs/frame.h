/* The test frame of the client programs, and the receiver's book-keeping over it.
 *
 *   0  destination and source address (12 bytes)
 *  12  ethertype 0x88b5 (local experimental)
 *  14  magic, 2 bytes
 *  16  sender, 4 bytes
 *  20  sum over everything else that is ours, 4 bytes
 *  24  sequence number, 8 bytes
 *  32  payload
 *
 * Fields after the ethertype are in the machine's own byte order: both ends run on one machine. */
#ifndef PROGRAMS_FRAME_H
#define PROGRAMS_FRAME_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_MIN 32u
#define FRAME_MAGIC 0x5352u
#define MAX_SENDERS 256u

/* Two running sums, so that words that change places are noticed too. */
struct frame_sum {
	uint64_t a, b;
};

static inline void sum_word(struct frame_sum *s, uint64_t word)
{
	s->a += word;
	s->b += s->a;
}

static inline struct frame_sum payload_sum(const uint8_t *frame, uint32_t length)
{
	struct frame_sum s = { length, 0 };
	uint64_t word;
	uint32_t at = FRAME_MIN;

	for (; at + 8 <= length; at += 8) {
		memcpy(&word, frame + at, 8);
		sum_word(&s, word);
	}
	word = 0;
	memcpy(&word, frame + at, length - at);
	sum_word(&s, word);
	return s;
}

static inline uint32_t whole_sum(struct frame_sum s, uint32_t sender, uint64_t sequence)
{
	uint64_t folded;

	sum_word(&s, sender);
	sum_word(&s, sequence);
	folded = s.a ^ (s.b * 0x9e3779b97f4a7c15u);
	return (uint32_t)(folded ^ (folded >> 32));
}

/* The parts of a frame that do not change from one sending to the next. Returns the sum over its payload. */
static inline struct frame_sum frame_prepare(uint8_t *frame, uint32_t length, uint32_t seed)
{
	static const uint8_t head[14] = { 0x02, 0, 0, 0, 0, 0x0b, 0x02, 0, 0, 0, 0, 0x0a, 0x88, 0xb5 };
	const uint16_t magic = FRAME_MAGIC;
	uint32_t x = seed * 2654435761u + 1;

	memcpy(frame, head, sizeof(head));
	memcpy(frame + 14, &magic, 2);
	for (uint32_t at = FRAME_MIN; at < length; at++) {
		x = x * 1664525u + 1013904223u;
		frame[at] = (uint8_t)(x >> 24);
	}
	return payload_sum(frame, length);
}

static inline void frame_stamp(uint8_t *frame, struct frame_sum payload, uint32_t sender, uint64_t sequence)
{
	uint32_t sum = whole_sum(payload, sender, sequence);

	memcpy(frame + 16, &sender, 4);
	memcpy(frame + 20, &sum, 4);
	memcpy(frame + 24, &sequence, 8);
}

/* A receiver remembers the last WINDOW sequence numbers of each sender; what is older counts as a duplicate. */
#define WINDOW 65536u

struct seen {
	uint64_t next; /* one more than the largest number seen */
	uint64_t unique, duplicated, out_of_order;
	uint64_t bits[WINDOW / 64];
};

struct checker {
	struct seen *senders[MAX_SENDERS];
	uint64_t frames, bytes, unique, duplicated, out_of_order, corrupt, foreign;
};

static inline void seen_count(struct checker *c, struct seen *s, uint64_t sequence)
{
	uint64_t mask = (uint64_t)1 << (sequence % 64);
	uint64_t *word = &s->bits[sequence % WINDOW / 64];

	if (sequence >= s->next) {
		if (sequence - s->next >= WINDOW) {
			memset(s->bits, 0, sizeof(s->bits));
		} else {
			for (uint64_t gap = s->next; gap < sequence; gap++)
				s->bits[gap % WINDOW / 64] &= ~((uint64_t)1 << (gap % 64));
		}
		s->next = sequence + 1;
		*word |= mask;
	} else if (s->next - sequence > WINDOW || (*word & mask)) {
		s->duplicated++;
		c->duplicated++;
		return;
	} else {
		*word |= mask;
		s->out_of_order++;
		c->out_of_order++;
	}
	s->unique++;
	c->unique++;
}

/* One received frame. Frames without our ethertype and magic (a host's own chatter) are counted and passed over. */
static inline void check_frame(struct checker *c, const uint8_t *frame, uint32_t length)
{
	uint32_t sender, sum;
	uint64_t sequence;
	uint16_t magic;

	c->frames++;
	c->bytes += length;
	if (length < FRAME_MIN || frame[12] != 0x88 || frame[13] != 0xb5 || (memcpy(&magic, frame + 14, 2), magic != FRAME_MAGIC)) {
		c->foreign++;
		return;
	}
	memcpy(&sender, frame + 16, 4);
	memcpy(&sum, frame + 20, 4);
	memcpy(&sequence, frame + 24, 8);
	if (sender >= MAX_SENDERS || whole_sum(payload_sum(frame, length), sender, sequence) != sum) {
		c->corrupt++;
		return;
	}
	if (!c->senders[sender]) {
		c->senders[sender] = calloc(1, sizeof(struct seen));
		if (!c->senders[sender])
			abort();
	}
	seen_count(c, c->senders[sender], sequence);
}

static inline void checker_free(struct checker *c)
{
	for (uint32_t i = 0; i < MAX_SENDERS; i++)
		free(c->senders[i]);
}

#endif
