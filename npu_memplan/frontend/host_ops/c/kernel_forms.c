/* Which instructions the kernels below may use: Helium's, the DSP extension's, or those of any C compiler. All forms
 * compute the same bits. */
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)
#include <arm_mve.h>
#elif defined(__ARM_FEATURE_DSP) && defined(__GNUC__) && !defined(__ARM_BIG_ENDIAN)
#define NPU_MEMPLAN_DSP
/* Bytes 0 and 2 of `four`, or 1 and 3, as halfwords. */
__attribute__((unused)) static inline int32_t npu_memplan_evens(int32_t four) {
  int32_t pair;
  __asm__("sxtb16 %0, %1" : "=r"(pair) : "r"(four));
  return pair;
}
__attribute__((unused)) static inline int32_t npu_memplan_odds(int32_t four) {
  int32_t pair;
  __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(four));
  return pair;
}
/* Bytes 0 and 2 of `four`, or 1 and 3, as halfwords, each plus that of `plus`. */
__attribute__((unused)) static inline int32_t npu_memplan_even(int32_t plus, int32_t four) {
  int32_t pair;
  __asm__("sxtab16 %0, %1, %2" : "=r"(pair) : "r"(plus), "r"(four));
  return pair;
}
__attribute__((unused)) static inline int32_t npu_memplan_odd(int32_t plus, int32_t four) {
  int32_t pair;
  __asm__("sxtab16 %0, %1, %2, ror #8" : "=r"(pair) : "r"(plus), "r"(four));
  return pair;
}
/* `one` plus the lower halfword of `plus`. */
__attribute__((unused)) static inline int32_t npu_memplan_half(int32_t plus, int32_t one) { return one + (int16_t)plus; }
/* `total` plus the products of the bytes of `four` and the halfwords of their numbers. */
__attribute__((unused)) static inline int32_t npu_memplan_products(int32_t total, int32_t even, int32_t odd, int32_t four) {
  int32_t pair;
  __asm__("sxtb16 %2, %1\n\tsmlad %0, %3, %2, %0\n\tsxtb16 %1, %1, ror #8\n\tsmlad %0, %4, %1, %0"
          : "+r"(total), "+r"(four), "=&r"(pair)
          : "r"(even), "r"(odd));
  return total;
}
__attribute__((unused)) static inline int32_t npu_memplan_low(int32_t total, int32_t a, int32_t b) {
  __asm__("smlabb %0, %1, %2, %0" : "+r"(total) : "r"(a), "r"(b));
  return total;
}
__attribute__((unused)) static inline int32_t npu_memplan_high(int32_t total, int32_t a, int32_t b) {
  __asm__("smlatt %0, %1, %2, %0" : "+r"(total) : "r"(a), "r"(b));
  return total;
}
__attribute__((unused)) static inline int32_t npu_memplan_four(const int8_t *at) {
  int32_t four;
  memcpy(&four, at, 4);
  return four;
}
#endif
#if defined(__GNUC__) /* inner loops in functions of their own have the registers to themselves */
#define NPU_MEMPLAN_APART __attribute__((noinline))
#define NPU_MEMPLAN_STEP(pointer) __asm__("" : "+r"(pointer)) /* count with it, not from the end of a loop */
#else
#define NPU_MEMPLAN_STEP(pointer)
#define NPU_MEMPLAN_APART
#endif
/* The array that an operator does not have. */
#define npu_memplan_none() 0
