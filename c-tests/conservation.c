/* No frame is ever lost or in two places: small rings, random steps, several threads. */
#include "peer.h"

#include <pthread.h>

enum place { USER, FILL, RX, TX, PLACES };

/* C07. One socket, 64 frames, rings of 16. We know where we put each frame; the rings tell which came back. */
struct ledger {
	struct rig rig;
	enum place where[64];
	uint32_t at[PLACES];
};

static void move(struct ledger *l, uint64_t addr, enum place from, enum place to)
{
	uint64_t chunk = addr / l->rig.opt.chunk;

	CHECK(chunk < 64, "address 0x%llx is none of ours", (unsigned long long)addr);
	CHECK(l->where[chunk] == from, "frame %u was in place %d, not %d", (unsigned)chunk, l->where[chunk], from);
	l->where[chunk] = to;
	l->at[from]--;
	l->at[to]++;
}

static uint64_t free_frame(const struct ledger *l, uint32_t *random)
{
	uint32_t start = next_random(random);

	for (uint32_t i = 0; i < 64; i++)
		if (l->where[(start + i) % 64] == USER)
			return (uint64_t)((start + i) % 64) * l->rig.opt.chunk;
	return UINT64_MAX;
}

static void step_fill(struct ledger *l, uint32_t *random)
{
	uint64_t addr = free_frame(l, random);
	uint32_t idx = 0;

	if (addr == UINT64_MAX || !xsk_ring_prod__reserve(&l->rig.fill, 1, &idx))
		return;
	*xsk_ring_prod__fill_addr(&l->rig.fill, idx) = addr;
	xsk_ring_prod__submit(&l->rig.fill, 1);
	move(l, addr, USER, FILL);
}

static void step_send(struct ledger *l, uint32_t *random)
{
	uint64_t addr = free_frame(l, random);
	uint32_t idx = 0;

	if (addr == UINT64_MAX || !xsk_ring_prod__reserve(&l->rig.tx, 1, &idx))
		return;
	make_frame(l->rig.area + addr, FRAME_LEN, (uint32_t)(addr / l->rig.opt.chunk));
	*xsk_ring_prod__tx_desc(&l->rig.tx, idx) = (struct xdp_desc){ .addr = addr, .len = FRAME_LEN };
	xsk_ring_prod__submit(&l->rig.tx, 1);
	move(l, addr, USER, TX);
}

static void step_receive(struct ledger *l, uint32_t max)
{
	uint32_t idx = 0, n = xsk_ring_cons__peek(&l->rig.rx, max, &idx);

	for (uint32_t i = 0; i < n; i++) {
		struct xdp_desc d = *xsk_ring_cons__rx_desc(&l->rig.rx, idx + i);

		EQ(d.addr % l->rig.opt.chunk, HEADROOM, "offset in the chunk");
		frame_id(xsk_umem__get_data(l->rig.area, d.addr), d.len);
		move(l, d.addr, FILL, USER);
	}
	if (n)
		xsk_ring_cons__release(&l->rig.rx, n);
}

static void step_complete(struct ledger *l, uint32_t max)
{
	uint64_t addrs[16];
	uint32_t n = take_completions(&l->rig.comp, addrs, max);

	for (uint32_t i = 0; i < n; i++)
		move(l, addrs[i], TX, USER);
}

TEST(C07_small_rings_random_steps)
{
	uint32_t random = 20240607, kept[PLACES];
	struct ledger l;
	struct peer p;
	uint8_t frame[FRAME_LEN];

	memset(&l, 0, sizeof(l));
	rig_open(&l.rig, (struct rig_options){ .chunk = 2048, .chunks = 64, .fill = 16, .comp = 16, .rx = 16, .tx = 16 });
	peer_open(&p);
	l.at[USER] = 64;
	for (uint32_t step = 0; step < 100000; step++) {
		/* In each stretch of 1000 steps one of the four is left out, so that each ring runs full or dry. */
		uint32_t paused = step / 1000 % 6, action = next_random(&random) % 6;

		if (action == paused)
			continue;
		switch (action) {
		case 0: step_fill(&l, &random); break;
		case 1: step_send(&l, &random); break;
		case 2: step_receive(&l, 1 + next_random(&random) % 16); break;
		case 3: step_complete(&l, 1 + next_random(&random) % 16); break;
		case 4: rig_kick(&l.rig); break;
		case 5:
			peer_send(&p, FRAME_LEN, step);
			peer_receive_bytes(&p, frame, sizeof(frame), 0); /* its own ring must not fill up */
			break;
		}
	}

	/* At rest: what was sent has completed, what the peer sent has been received, the rest lies in the fill ring. */
	for (uint64_t end = now_ms() + 2000; l.at[TX] && now_ms() < end;) {
		rig_kick(&l.rig);
		step_complete(&l, 16);
	}
	EQ(l.at[TX], 0, "frames that never completed");
	step_receive(&l, 16);
	memcpy(kept, l.at, sizeof(kept));
	EQ(kept[USER] + kept[FILL], 64, "all frames");
	EQ(ring_pending(&l.rig.fill), kept[FILL], "frames in the fill ring");
	/* And those come out again, each once. */
	for (uint32_t i = 0; i < kept[FILL]; i++) {
		peer_send(&p, FRAME_LEN, i);
		for (uint64_t end = now_ms() + 1000; l.at[FILL] == kept[FILL] - i && now_ms() < end;)
			step_receive(&l, 1);
	}
	EQ(l.at[USER], 64, "frames back home");
	peer_close(&p);
	rig_close(&l.rig);
}

/* C04. Several threads, each with its socket on one umem and one queue, send at once; one more thread drains. */
struct crowd {
	struct rig first;
	struct xsk_socket *xsk[8];
	struct xsk_ring_prod tx[8];
	uint32_t sockets, per_socket, frames;
	_Atomic uint8_t *in_flight; /* by chunk */
	_Atomic uint32_t sent_back[8], foreign;
};

struct member {
	struct crowd *crowd;
	uint32_t id;
};

static void *send_some(void *arg)
{
	struct member *m = arg;
	struct crowd *c = m->crowd;
	uint32_t sent = 0, frames = c->frames / c->sockets, base = m->id * frames, next = 0;
	uint64_t last = now_ms();

	while (sent < c->per_socket) {
		uint32_t idx = 0, n = 0;

		/* Our own chunks in turn; one that has not come back yet makes us wait for it. */
		while (n < 16 && sent + n < c->per_socket && !c->in_flight[base + (next + n) % frames] && n < frames)
			n++;
		if (n && xsk_ring_prod__reserve(&c->tx[m->id], n, &idx) == n) {
			for (uint32_t i = 0; i < n; i++, next++) {
				uint32_t chunk = base + next % frames;

				c->in_flight[chunk] = 1;
				*xsk_ring_prod__tx_desc(&c->tx[m->id], idx + i) =
					(struct xdp_desc){ .addr = (uint64_t)chunk * c->first.opt.chunk, .len = FRAME_LEN };
			}
			xsk_ring_prod__submit(&c->tx[m->id], n);
			sent += n;
			last = now_ms();
		}
		CHECK(now_ms() - last < 8000, "thread %u: nothing moved for 8 s, %u sent", m->id, sent);
		if (kick_fd(xsk_socket__fd(c->xsk[m->id])) == EAGAIN)
			sched_yield(); /* more threads than processors: let the one that drains have its turn */
	}
	while (ring_pending(&c->tx[m->id])) {
		CHECK(now_ms() - last < 8000, "thread %u: %u never left", m->id, ring_pending(&c->tx[m->id]));
		if (kick_fd(xsk_socket__fd(c->xsk[m->id])) == EAGAIN)
			sched_yield();
	}
	return NULL;
}

static void crowd_sends(uint32_t sockets, uint32_t per_socket, uint32_t comp)
{
	struct member members[8];
	pthread_t threads[8];
	struct xsk_socket_config config;
	struct crowd c;
	uint32_t total = 0;
	uint64_t last;

	memset(&c, 0, sizeof(c));
	c.sockets = sockets;
	c.per_socket = per_socket;
	c.frames = 512;
	rig_open(&c.first, (struct rig_options){ .no_rx = true, .chunk = 2048, .chunks = c.frames, .comp = comp, .tx = 64 });
	c.in_flight = calloc(c.frames, 1);
	c.xsk[0] = c.first.xsk;
	c.tx[0] = c.first.tx;
	config = rig_config(&c.first.opt);
	for (uint32_t i = 1; i < sockets; i++)
		EQ(xsk_socket__create_shared(&c.xsk[i], ifname_of(A), 0, c.first.umem, NULL, &c.tx[i], &c.first.fill,
					     &c.first.comp, &config),
		   0, "another socket on the queue");
	for (uint32_t i = 0; i < c.frames; i++)
		make_frame(c.first.area + i * 2048, FRAME_LEN, i);
	for (uint32_t i = 0; i < sockets; i++) {
		members[i] = (struct member){ &c, i };
		EQ(pthread_create(&threads[i], NULL, send_some, &members[i]), 0, "pthread_create");
	}
	for (last = now_ms(); total < sockets * per_socket;) {
		uint64_t addrs[64];
		uint32_t n = take_completions(&c.first.comp, addrs, 64);

		for (uint32_t i = 0; i < n; i++) {
			uint64_t chunk = addrs[i] / 2048;

			CHECK(addrs[i] % 2048 == 0 && chunk < c.frames, "foreign address 0x%llx", (unsigned long long)addrs[i]);
			CHECK(c.in_flight[chunk], "frame %u completed twice", (unsigned)chunk);
			c.sent_back[chunk / (c.frames / sockets)]++;
			c.in_flight[chunk] = 0;
		}
		total += n;
		if (n)
			last = now_ms();
		else
			sched_yield();
		CHECK(now_ms() - last < 8000, "%u completions of %u", total, sockets * per_socket);
	}
	for (uint32_t i = 0; i < sockets; i++)
		pthread_join(threads[i], NULL);
	for (uint32_t i = 0; i < sockets; i++)
		EQ(c.sent_back[i], per_socket, "completions of the socket");
	EQ(take_completions(&c.first.comp, NULL, 64), 0, "completions too many");
	for (uint32_t i = 1; i < sockets; i++)
		xsk_socket__delete(c.xsk[i]);
	free((void *)c.in_flight);
	rig_close(&c.first);
}

TEST(C04_two_threads_two_sockets)
{
	crowd_sends(2, 20000, 256);
}

/* The ring has far fewer places than there are frames: the threads fight for each. */
TEST(C04_eight_threads_small_ring)
{
	crowd_sends(8, 2000, 8);
}

/* C06. Four threads fill and receive under one mutex of the program's, in random order. */
struct shared_receiver {
	struct rig rig;
	pthread_mutex_t lock;
	bool ours[256];
	uint32_t received, wanted;
	_Atomic uint32_t threads;
};

static void *fill_and_receive(void *arg)
{
	struct shared_receiver *s = arg;
	uint32_t random = ++s->threads;
	uint64_t last = now_ms();

	for (;;) {
		uint32_t idx = 0, n, start = next_random(&random);

		pthread_mutex_lock(&s->lock);
		if (s->received >= s->wanted) {
			pthread_mutex_unlock(&s->lock);
			return NULL;
		}
		n = xsk_ring_cons__peek(&s->rig.rx, 1 + start % 32, &idx);
		for (uint32_t i = 0; i < n; i++) {
			struct xdp_desc d = *xsk_ring_cons__rx_desc(&s->rig.rx, idx + i);
			uint64_t chunk = d.addr / s->rig.opt.chunk;

			CHECK(chunk < 256 && !s->ours[chunk], "frame %u came while it was ours", (unsigned)chunk);
			frame_id(xsk_umem__get_data(s->rig.area, d.addr), d.len);
			s->ours[chunk] = true;
		}
		if (n) {
			xsk_ring_cons__release(&s->rig.rx, n);
			last = now_ms();
		}
		s->received += n;
		for (uint32_t i = 0; i < 32; i++) {
			uint32_t chunk = (start + i * 7) % 256;

			if (!s->ours[chunk] || !xsk_ring_prod__reserve(&s->rig.fill, 1, &idx))
				continue;
			*xsk_ring_prod__fill_addr(&s->rig.fill, idx) = (uint64_t)chunk * s->rig.opt.chunk;
			xsk_ring_prod__submit(&s->rig.fill, 1);
			s->ours[chunk] = false;
		}
		pthread_mutex_unlock(&s->lock);
		CHECK(now_ms() - last < 8000, "no frame for 8 s, %u received", s->received);
		if (!n)
			sched_yield();
	}
}

TEST(C06_threads_receive_under_a_mutex)
{
	struct shared_receiver s;
	pthread_t threads[4];
	struct rig sender;
	uint32_t sent = 0, home = 0;

	engine_only("a lossless wire");
	memset(&s, 0, sizeof(s));
	rig_open(&s.rig, (struct rig_options){ .port = WAIT_B, .chunk = 2048, .fill = 64, .rx = 64 });
	rig_open(&sender, (struct rig_options){ .port = WAIT_A, .chunk = 2048, .no_rx = true });
	memset(s.ours, true, sizeof(s.ours));
	pthread_mutex_init(&s.lock, NULL);
	s.wanted = 200000;
	for (int i = 0; i < 4; i++)
		EQ(pthread_create(&threads[i], NULL, fill_and_receive, &s), 0, "pthread_create");
	for (uint32_t i = 0; i < 256; i++)
		make_frame(sender.area + i * 2048, FRAME_LEN, i);
	while (sent < s.wanted) {
		uint32_t idx = 0;

		take_completions(&sender.comp, NULL, 256);
		if (xsk_ring_prod__reserve(&sender.tx, 32, &idx) == 32) {
			for (uint32_t i = 0; i < 32; i++, sent++)
				*xsk_ring_prod__tx_desc(&sender.tx, idx + i) =
					(struct xdp_desc){ .addr = (uint64_t)(sent % 256) * 2048, .len = FRAME_LEN };
			xsk_ring_prod__submit(&sender.tx, 32);
		}
		if (rig_kick(&sender) == EAGAIN)
			sched_yield();
	}
	while (ring_pending(&sender.tx)) {
		take_completions(&sender.comp, NULL, 256);
		if (rig_kick(&sender) == EAGAIN)
			sched_yield();
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	EQ(s.received, s.wanted, "frames received");
	for (uint32_t i = 0; i < 256; i++)
		home += s.ours[i];
	EQ(home + ring_pending(&s.rig.fill), 256, "frames at rest");
	rig_close(&sender);
	rig_close(&s.rig);
}

#ifdef HAVE_PROD_CANCEL
/* C08. TX slots that were reserved and not used are handed back: our header has what libxdp's lacks. */
TEST(C08_cancel)
{
	struct rig r;
	struct peer p;
	uint32_t done = 0, got = 0, sent = 0;

	_Static_assert(sizeof(struct xsk_ring_prod) == 48, "the ring struct is part of the ABI");
	rig_open(&r, (struct rig_options){ .no_rx = true, .tx = 64 });
	peer_open(&p);
	for (uint32_t round = 0; round < 100; round++) {
		uint32_t idx = 0;

		EQ(xsk_ring_prod__reserve(&r.tx, 64, &idx), 64, "room for 64");
		xsk_ring_prod__cancel(&r.tx, 13);
		for (uint32_t i = 0; i < 51; i++, sent++) {
			uint32_t chunk = sent % 256;

			make_frame(r.area + chunk * 4096, FRAME_LEN, sent);
			*xsk_ring_prod__tx_desc(&r.tx, idx + i) = (struct xdp_desc){ .addr = chunk * 4096, .len = FRAME_LEN };
		}
		xsk_ring_prod__submit(&r.tx, 51);
		while (ring_pending(&r.tx))
			rig_kick(&r);
		for (uint64_t end = now_ms() + 1000; done < sent && now_ms() < end;)
			done += take_completions(&r.comp, NULL, 64);
		for (; got < sent; got++)
			EQ(peer_receive(&p, FRAME_LEN), got, "frame");
	}
	EQ(done, 5100, "completions");
	EQ(got, 5100, "frames at the peer");
	peer_close(&p);
	rig_close(&r);
}
#endif
