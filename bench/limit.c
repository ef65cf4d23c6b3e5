/* The limit for HashRing.indices: the same work as a plain C loop. indices.py compiles and calls it.
 *
 * It computes phash2 of a binary (Erlang/OTP, erts/emulator/beam/erl_term_hashing.c: Bob Jenkins' mix, 12
 * bytes at a time) and takes the low 21 bits. It looks them up in the table of seeds, and the bucket in the table
 * of destinations. It is not shipped.
 */
#include <stdint.h>
#include <string.h>

#define MIX(a, b, c)                                  \
	do {                                          \
		a -= b; a -= c; a ^= (c >> 13);       \
		b -= c; b -= a; b ^= (a << 8);        \
		c -= a; c -= b; c ^= (b >> 13);       \
		a -= b; a -= c; a ^= (c >> 12);       \
		b -= c; b -= a; b ^= (a << 16);       \
		c -= a; c -= b; c ^= (b >> 5);        \
		a -= b; a -= c; a ^= (c >> 3);        \
		b -= c; b -= a; b ^= (a << 10);       \
		c -= a; c -= b; c ^= (b >> 15);       \
	} while (0)

#define GOLDEN 0x9E3779B9u
#define HCONST_13 (13u * GOLDEN)

static uint32_t hash_binary(const uint8_t *key, uint32_t length)
{
	if (length == 0)
		return HCONST_13;
	uint32_t a = GOLDEN, b = GOLDEN, c = HCONST_13, left = length, words[3];

	for (; left >= 12; left -= 12, key += 12) {
		memcpy(words, key, 12);
		a += words[0]; b += words[1]; c += words[2];
		MIX(a, b, c);
	}
	uint8_t tail[12] = {0};
	memcpy(tail, key, left);
	memcpy(words, tail, 12);
	a += words[0]; b += words[1]; c += (words[2] << 8) + length;
	MIX(a, b, c);
	return c;
}

/* Little-endian machines only, as NumPy's uint32 views are on them. */
void route(const int32_t *offsets, const uint8_t *data, int64_t count, const uint8_t *bucket_of_seed,
	   const int32_t *destination_of_bucket, int32_t *found)
{
	for (int64_t i = 0; i < count; i++) {
		uint32_t hash = hash_binary(data + offsets[i], offsets[i + 1] - offsets[i]);
		found[i] = destination_of_bucket[bucket_of_seed[hash & 0x1FFFFF]];
	}
}
