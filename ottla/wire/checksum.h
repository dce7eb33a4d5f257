/* CRC-32C (Castagnoli), the checksum of record batches v2: the reflected polynomial 0x82f63b78
 * (RFC 3720, B.4). Two implementations give the same result: one uses the processor's instruction
 * on three streams at once, the other uses eight tables. The compiler may use the instruction only
 * in the first of these functions, so that the rest of the build runs on any processor. CRC-32 of
 * messages v0 and v1, polynomial 0xedb88320 (RFC 1952), always uses tables. */

#ifndef OTTLA_CHECKSUM_H
#define OTTLA_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { OTTLA_LANE = 512 };                     /* bytes of one of the three streams */

static uint32_t ottla_crc32c_tables[8][256];
static uint32_t ottla_crc32_tables[8][256];
static uint32_t ottla_skip_one[4][256];        /* what a checksum becomes after OTTLA_LANE zeros */
static uint32_t ottla_skip_two[4][256];        /* ... and after 2 * OTTLA_LANE */

static uint32_t ottla_crc_by_tables(
    const uint32_t (*table)[256], uint32_t crc, const uint8_t *at, size_t size) {
    for (; size >= 8; size -= 8, at += 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16
            | (uint32_t)at[3] << 24);
        crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255]
            ^ table[4][low >> 24] ^ table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]]
            ^ table[0][at[7]];
    }
    for (; size; size--, at++) crc = table[0][(crc ^ *at) & 255] ^ crc >> 8;
    return crc;
}

static uint32_t ottla_crc32c_table(uint32_t crc, const uint8_t *at, size_t size) {
    return ottla_crc_by_tables((const uint32_t (*)[256])ottla_crc32c_tables, crc, at, size);
}

static uint32_t ottla_crc32_table(uint32_t crc, const uint8_t *at, size_t size) {
    return ottla_crc_by_tables((const uint32_t (*)[256])ottla_crc32_tables, crc, at, size);
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#define OTTLA_CRC_TARGET __attribute__((target("sse4.2")))
#define OTTLA_CRC_8(crc, word) (uint32_t)_mm_crc32_u64((crc), (word))
#define OTTLA_CRC_1(crc, byte) _mm_crc32_u8((crc), (byte))
static int ottla_crc_hardware_present(void) { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__) && defined(__linux__) && defined(__GNUC__)
#include <sys/auxv.h>
#ifdef __clang__
#define OTTLA_CRC_TARGET __attribute__((target("crc")))
#else
#define OTTLA_CRC_TARGET __attribute__((target("+crc")))
#endif
#include <arm_acle.h>
#define OTTLA_CRC_8(crc, word) __crc32cd((crc), (word))
#define OTTLA_CRC_1(crc, byte) __crc32cb((crc), (byte))
static int ottla_crc_hardware_present(void) {
    return (getauxval(AT_HWCAP) & (1 << 7)) != 0;     /* HWCAP_CRC32 */
}
#endif

#ifdef OTTLA_CRC_TARGET
static inline uint32_t ottla_skip(const uint32_t (*table)[256], uint32_t crc) {
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255]
        ^ table[3][crc >> 24];
}

/* The instruction takes three cycles, but one can start in each cycle: three independent streams
 * keep the unit busy. */
OTTLA_CRC_TARGET
static uint32_t ottla_crc32c_hardware(uint32_t crc, const uint8_t *at, size_t size) {
    uint64_t word;
    for (; size >= 3 * OTTLA_LANE; size -= 3 * OTTLA_LANE, at += 3 * OTTLA_LANE) {
        uint32_t second = 0, third = 0;
        uint64_t word2, word3;
        for (int i = 0; i < OTTLA_LANE; i += 8) {
            memcpy(&word, at + i, 8);
            memcpy(&word2, at + OTTLA_LANE + i, 8);
            memcpy(&word3, at + 2 * OTTLA_LANE + i, 8);
            crc = OTTLA_CRC_8(crc, word);
            second = OTTLA_CRC_8(second, word2);
            third = OTTLA_CRC_8(third, word3);
        }
        crc = ottla_skip((const uint32_t (*)[256])ottla_skip_two, crc)
            ^ ottla_skip((const uint32_t (*)[256])ottla_skip_one, second) ^ third;
    }
    for (; size >= 8; size -= 8, at += 8) {
        memcpy(&word, at, 8);
        crc = OTTLA_CRC_8(crc, word);
    }
    for (; size; size--, at++) crc = OTTLA_CRC_1(crc, *at);
    return crc;
}
#else
static int ottla_crc_hardware_present(void) { return 0; }
static uint32_t ottla_crc32c_hardware(uint32_t crc, const uint8_t *at, size_t size) {
    return ottla_crc32c_table(crc, at, size);
}
#endif

static void ottla_fill_skip(uint32_t table[4][256], size_t zeros) {
    static const uint8_t nothing[2 * OTTLA_LANE];
    for (int k = 0; k < 4; k++)
        for (uint32_t byte = 0; byte < 256; byte++)
            table[k][byte] = ottla_crc32c_table(byte << 8 * k, nothing, zeros);
}

static void ottla_fill_tables(uint32_t table[8][256], uint32_t polynomial) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        table[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int byte = 0; byte < 256; byte++)
            table[k][byte] = table[0][table[k - 1][byte] & 255] ^ table[k - 1][byte] >> 8;
}

/* Fills the tables, once, on import; returns whether the processor has the instruction. */
static int ottla_crc_prepare(void) {
    ottla_fill_tables(ottla_crc32c_tables, 0x82f63b78u);
    ottla_fill_tables(ottla_crc32_tables, 0xedb88320u);
    if (!ottla_crc_hardware_present()) return 0;
    ottla_fill_skip(ottla_skip_one, OTTLA_LANE);
    ottla_fill_skip(ottla_skip_two, 2 * OTTLA_LANE);
    return 1;
}

#endif
