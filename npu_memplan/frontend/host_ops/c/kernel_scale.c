/* How int32 sums become int8: a multiplier, a shift to the right and (if there are any) one to the left for each
 * channel, or the same for all; rounded twice, as TFLite's reference does. */
typedef struct {
  const int32_t *multiplier, *shift, *left;
  int32_t each; /* 1: a multiplier and a shift for each channel, 0: the first for all */
  int32_t zero, low, high;
} npu_memplan_scale;

static inline int8_t npu_memplan_scaled(const npu_memplan_scale *scale, int32_t channel, int32_t total) {
  const int32_t at = channel * scale->each;
  const int32_t shift = scale->shift[at], mask = (int32_t)((1u << shift) - 1u);
  if (scale->left) total = (int32_t)((uint32_t)total << scale->left[at]);
  const int32_t high = (int32_t)(((int64_t)total * scale->multiplier[at] + (1 << 30)) >> 31);
  int32_t value = (high >> shift) + ((high & mask) > (mask >> 1) + (high < 0));
  value = (int32_t)((uint32_t)value + (uint32_t)scale->zero);
  value = value < scale->low ? scale->low : value;
  return (int8_t)(value > scale->high ? scale->high : value);
}

/* Four sums of the channels from `channel` on. */
static inline void npu_memplan_scale_four(const npu_memplan_scale *scale, int32_t channel, const int32_t *total,
                                          int8_t *output) {
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)
  int32x4_t value = vldrwq_s32(total);
  int32x4_t multiplier, shift;
  if (scale->each) {
    multiplier = vldrwq_s32(scale->multiplier + channel);
    shift = vnegq_s32(vldrwq_s32(scale->shift + channel));
    if (scale->left) value = vshlq_s32(value, vldrwq_s32(scale->left + channel));
  } else {
    multiplier = vdupq_n_s32(scale->multiplier[0]);
    shift = vdupq_n_s32(-scale->shift[0]);
    if (scale->left) value = vshlq_s32(value, vdupq_n_s32(scale->left[0]));
  }
  value = vqrdmulhq_s32(value, multiplier);
  value = vqaddq_s32(value, vshrq_n_s32(vandq_s32(value, shift), 31)); /* halves away from zero */
  value = vaddq_n_s32(vrshlq_s32(value, shift), scale->zero);
  value = vminq_s32(vmaxq_s32(value, vdupq_n_s32(scale->low)), vdupq_n_s32(scale->high));
  vstrbq_s32(output, value);
#else
  for (int32_t i = 0; i < 4; i++) output[i] = npu_memplan_scaled(scale, channel + i, total[i]);
#endif
}
