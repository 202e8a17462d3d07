/* Register-level driver of one Ethos-U55, U65 or U85.
 *
 * Call ethosu_init once, then ethosu_run for each command stream. Every error of the NPU has a
 * code of its own; after a fault the NPU takes no job until ethosu_init has reset it. */
#ifndef NPU_MEMPLAN_ETHOSU_H
#define NPU_MEMPLAN_ETHOSU_H

#include <stdint.h>

enum ethosu_result {
  ETHOSU_OK = 0,
  ETHOSU_BAD_ARGUMENT = 1,     /* a null or unaligned pointer, too many regions */
  ETHOSU_WRONG_NPU = 2,        /* CONFIG is not what the program was compiled for */
  ETHOSU_RESET_TIMEOUT = 3,    /* STATUS.reset_status stayed set */
  ETHOSU_RESET_REFUSED = 4,    /* PROT did not take the requested security and privilege */
  ETHOSU_TIMEOUT = 5,          /* the job did not end within ETHOSU_WAIT_POLLS looks at it */
  ETHOSU_BUS_ERROR = 6,        /* STATUS.bus_status: an AXI access was refused */
  ETHOSU_PARSE_ERROR = 7,      /* STATUS.cmd_parse_error: an illegal command stream */
  ETHOSU_WEIGHT_FAULT = 8,     /* STATUS.wd_fault: the weight decoder met a bad stream */
  ETHOSU_ECC_FAULT = 9,        /* STATUS.ecc_fault: internal RAM lost data */
  ETHOSU_NOT_FINISHED = 10     /* stopped without reaching the end of the stream */
};

#define ETHOSU_PORT_COUNTERS 4

struct ethosu_info {
  uint32_t id;
  uint32_t config;
  uint32_t status;     /* STATUS when the last job ended or failed */
  uint32_t queue_read; /* bytes of the command stream read by then */
  uint64_t cycles;     /* PMU cycle counter of the last job */
  uint32_t beats[ETHOSU_PORT_COUNTERS]; /* of the last job: port 0 read, written; port 1 read, written */
};

/* Resets the NPU (secure, privileged) and checks that it is the one `expected_config` describes. */
enum ethosu_result ethosu_init(uint32_t expected_config);

/* Runs the stream of `bytes` bytes; bases[i] becomes base pointer i, region_config the register REGIONCFG. All pointers
 * are multiples of 16. */
enum ethosu_result ethosu_run(const uint32_t *stream, uint32_t bytes, const void *const bases[], int32_t count,
                              uint32_t region_config);

/* What is known of the NPU and its last job. */
const struct ethosu_info *ethosu_last(void);

/* One sentence for a result. */
const char *ethosu_text(enum ethosu_result result);

/* The NPU's interrupt handler; goes into the vector table. */
void npu_interrupt(void);

#endif
