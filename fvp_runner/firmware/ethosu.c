#include "ethosu.h"

#include "board.h"

/* Looks at STATUS (or at the interrupt's flag) before a job or a reset is given up. */
#ifndef ETHOSU_WAIT_POLLS
#define ETHOSU_WAIT_POLLS 1000000000u
#endif
#ifndef ETHOSU_USE_INTERRUPT
#define ETHOSU_USE_INTERRUPT 0
#endif

/* board.h may say that the NPU is an Ethos-U85: its PMU is in a second page, and its ports are set up otherwise. */
#ifndef BOARD_NPU_U85
#define BOARD_NPU_U85 0
#endif

#define NPU(offset) (*(volatile uint32_t *)(BOARD_NPU_BASE + (offset)))
#define NVIC_ISER (*(volatile uint32_t *)(0xE000E100u + 4u * (BOARD_NPU_IRQ / 32u)))

enum {
  ID = 0x000,
  STATUS = 0x004,
  CMD = 0x008,
  RESET = 0x00C,
  QBASE = 0x010,
  QREAD = 0x018,
  QCONFIG = 0x01C,
  QSIZE = 0x020,
  PROT = 0x024,
  CONFIG = 0x028,
  REGIONCFG = 0x03C,
  PORT_SETTINGS = 0x040,
  PMU = BOARD_NPU_U85 ? 0x1000 : 0,
  BASEP0 = 0x080,
  PMCR = PMU + 0x180,
  PMCNTENSET = PMU + 0x184,
  PMCCNTR = PMU + 0x1A0,
  PMCCNTR_CFG = PMU + 0x1A8,
  PMEVCNTR0 = PMU + 0x300,
  PMEVTYPER0 = PMU + 0x380
};

#define STATUS_RUNNING (1u << 0)
#define STATUS_IRQ (1u << 1)
#define STATUS_BUS (1u << 2)
#define STATUS_RESET (1u << 3)
#define STATUS_PARSE (1u << 4)
#define STATUS_END (1u << 5)
#define STATUS_WEIGHT (1u << 7)
#define STATUS_ECC (1u << 8)
#define STATUS_BRANCH (1u << 9) /* Ethos-U85; on the others the bit is never set */
#define STATUS_FAULTS (STATUS_BUS | STATUS_PARSE | STATUS_WEIGHT | STATUS_ECC | STATUS_BRANCH)

#define CMD_RUN (1u << 0)
#define CMD_CLEAR_IRQ (1u << 1)

/* Bit 0: privileged; bit 1: non-secure. */
#define PROTECTION 1u
#if BOARD_NPU_U85
/* MEM_ATTR 0 to 3, of which REGIONCFG and QCONFIG choose one: the SRAM port, then the external one. AXI_SRAM, AXI_EXT:
 * 64 outstanding reads, 32 writes, bursts of 256 bytes; the hardware has its own limits below. */
static const uint32_t port_settings[] = {0u, 0u, 4u, 4u, 0x21F3Fu, 0x21F3Fu};
#else
/* AXI_LIMIT 0 to 3: 32 outstanding reads, 16 writes, bursts of 64 bytes, device-independent memory type. */
static const uint32_t port_settings[] = {0x0F1F0000u, 0x0F1F0000u, 0x0F1F0000u, 0x0F1F0000u};
#endif
/* PMU: count cycles from "NPU active" (35) to "NPU idle" (32). */
#define PMU_WINDOW (35u | 32u << 16)
/* PMU events of the four counters: data beats read and written on port 0, then on port 1. */
static const uint32_t beat_events[ETHOSU_PORT_COUNTERS] = {130u, 135u, 386u, 391u};
/* CONFIG without the bits that no program depends on (functional safety, custom DMA). */
#define CONFIG_MASK 0xF00000FFu

static struct ethosu_info info;
#if ETHOSU_USE_INTERRUPT
static volatile uint32_t interrupt_status;
#endif

const struct ethosu_info *ethosu_last(void) { return &info; }

const char *ethosu_text(enum ethosu_result result) {
  switch (result) {
    case ETHOSU_OK: return "no error";
    case ETHOSU_BAD_ARGUMENT: return "a pointer is null or not a multiple of 16, or there are too many regions";
    case ETHOSU_WRONG_NPU: return "the NPU is not the one the program was compiled for";
    case ETHOSU_RESET_TIMEOUT: return "the NPU's reset did not end";
    case ETHOSU_RESET_REFUSED: return "the NPU refused the reset's security and privilege";
    case ETHOSU_TIMEOUT: return "the NPU did not finish in time";
    case ETHOSU_BUS_ERROR: return "bus error: the NPU reached an address that nothing answers";
    case ETHOSU_PARSE_ERROR: return "parse error: the command stream is illegal";
    case ETHOSU_WEIGHT_FAULT: return "weight decoder fault: the weight stream is damaged";
    case ETHOSU_ECC_FAULT: return "ECC fault in the NPU's memory";
    case ETHOSU_NOT_FINISHED: return "the NPU stopped before the end of the command stream";
  }
  return "unknown error";
}

void npu_interrupt(void) {
#if ETHOSU_USE_INTERRUPT
  interrupt_status = NPU(STATUS) | STATUS_IRQ;
#endif
  NPU(CMD) = CMD_CLEAR_IRQ;
  (void)NPU(STATUS); /* the line is low before the handler returns */
}

static void write64(uint32_t offset, uint64_t value) {
  NPU(offset) = (uint32_t)value;
  NPU(offset + 4u) = (uint32_t)(value >> 32);
}

enum ethosu_result ethosu_init(uint32_t expected_config) {
  info.id = NPU(ID);
  info.config = NPU(CONFIG);
  if ((info.config ^ expected_config) & CONFIG_MASK) return ETHOSU_WRONG_NPU;
  NPU(RESET) = PROTECTION;
  uint32_t polls = ETHOSU_WAIT_POLLS;
  while (NPU(STATUS) & STATUS_RESET) {
    if (polls-- == 0) return ETHOSU_RESET_TIMEOUT;
  }
  if (NPU(PROT) != PROTECTION) return ETHOSU_RESET_REFUSED;
  for (uint32_t i = 0; i < sizeof port_settings / 4u; i++) NPU(PORT_SETTINGS + 4u * i) = port_settings[i];
  NPU(CMD) = 0; /* clock and power stay on between jobs */
  NPU(PMCR) = 1u; /* the PMU counts */
  NPU(PMCCNTR_CFG) = PMU_WINDOW;
  for (uint32_t i = 0; i < ETHOSU_PORT_COUNTERS; i++) NPU(PMEVTYPER0 + 4u * i) = beat_events[i];
  NPU(PMCNTENSET) = 1u << 31 | ((1u << ETHOSU_PORT_COUNTERS) - 1u);
#if ETHOSU_USE_INTERRUPT
  NVIC_ISER = 1u << (BOARD_NPU_IRQ % 32u);
  __asm__ volatile("cpsie i" ::: "memory");
#endif
  return ETHOSU_OK;
}

/* STATUS when the job ended; without STATUS_IRQ it did not end in time. */
static uint32_t wait_end(void) {
  uint32_t status = 0;
  for (uint32_t polls = ETHOSU_WAIT_POLLS; polls > 0; polls--) {
#if ETHOSU_USE_INTERRUPT
    status = interrupt_status;
#else
    status = NPU(STATUS);
#endif
    if (status & (STATUS_IRQ | STATUS_FAULTS)) return status | STATUS_IRQ;
  }
#if ETHOSU_USE_INTERRUPT
  status = NPU(STATUS);
#endif
  return status & ~STATUS_IRQ;
}

static enum ethosu_result judge(uint32_t status) {
  if (!(status & STATUS_IRQ)) return ETHOSU_TIMEOUT;
  if (status & STATUS_BUS) return ETHOSU_BUS_ERROR;
  if (status & (STATUS_PARSE | STATUS_BRANCH)) return ETHOSU_PARSE_ERROR;
  if (status & STATUS_WEIGHT) return ETHOSU_WEIGHT_FAULT;
  if (status & STATUS_ECC) return ETHOSU_ECC_FAULT;
  if (!(status & STATUS_END)) return ETHOSU_NOT_FINISHED;
  return ETHOSU_OK;
}

enum ethosu_result ethosu_run(const uint32_t *stream, uint32_t bytes, const void *const bases[], int32_t count,
                              uint32_t region_config) {
  info.status = info.queue_read = 0;
  info.cycles = 0;
  for (uint32_t i = 0; i < ETHOSU_PORT_COUNTERS; i++) info.beats[i] = 0;
  if (stream == 0 || bytes == 0 || bytes % 4u || (uintptr_t)stream % 16u || count < 0 || count > 8) {
    return ETHOSU_BAD_ARGUMENT;
  }
  for (int32_t i = 0; i < count; i++) {
    if ((uintptr_t)bases[i] % 16u) return ETHOSU_BAD_ARGUMENT;
    write64(BASEP0 + 8u * (uint32_t)i, (uintptr_t)bases[i]);
  }
  write64(QBASE, (uintptr_t)stream);
  NPU(QSIZE) = bytes;
  NPU(QCONFIG) = 2; /* streams and constants through the second read port */
  NPU(REGIONCFG) = region_config;
  NPU(PMCR) = 1u | 1u << 1 | 1u << 2; /* all counters back to zero */
#if ETHOSU_USE_INTERRUPT
  interrupt_status = 0;
#endif
  __asm__ volatile("dsb" ::: "memory"); /* what the CPU wrote is in memory before the NPU looks */
  NPU(CMD) = CMD_RUN;
  info.status = wait_end();
  __asm__ volatile("dsb" ::: "memory");
  info.queue_read = NPU(QREAD);
  info.cycles = NPU(PMCCNTR);
  info.cycles |= (uint64_t)(NPU(PMCCNTR + 4u) & 0xFFFFu) << 32;
  for (uint32_t i = 0; i < ETHOSU_PORT_COUNTERS; i++) info.beats[i] = NPU(PMEVCNTR0 + 4u * i);
  const enum ethosu_result result = judge(info.status);
  if (result != ETHOSU_TIMEOUT) NPU(CMD) = CMD_CLEAR_IRQ;
  return result;
}
