/* Rows of a uint8 image that is resized, one above and one below, and the shares of the two. */
typedef struct {
  const uint8_t *top, *bottom;
  const float *down;
  const float *across_end; /* of the shares of columns */
  int32_t depth;
} npu_memplan_rows;

#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
#define NPU_MEMPLAN_LOADED(at) vldrbq_u32(at)
#define NPU_MEMPLAN_LOADED_SOME(at) vldrbq_z_u32(at, some)
/* Four outputs, or some of these. */
#define NPU_MEMPLAN_MIX_FOUR(loaded)                                                                     \
  float32x4_t sum = vmulq_f32(vmulq_f32(vcvtq_f32_u32(loaded(a)), d0), a0);                              \
  sum = vaddq_f32(sum, vmulq_f32(vmulq_f32(vcvtq_f32_u32(loaded(b)), d1), a0));                          \
  sum = vaddq_f32(sum, vmulq_f32(vmulq_f32(vcvtq_f32_u32(loaded(c)), d0), a1));                  \
  sum = vaddq_f32(sum, vmulq_f32(vmulq_f32(vcvtq_f32_u32(loaded(d)), d1), a1));                  \
  const uint32x4_t four = vreinterpretq_u32_s32(vcvtq_s32_f32(vaddq_n_f32(sum, 0.5f)))
/* The outputs of a row; `across` has the shares of two columns for each place. */
static inline void npu_memplan_mix_row(const npu_memplan_rows *rows, const int32_t *columns, const float *across,
                                       uint8_t *output) {
  const float32x4_t d0 = vdupq_n_f32(rows->down[0]), d1 = vdupq_n_f32(rows->down[1]);
  const int32_t depth = rows->depth;
  const mve_pred16_t some = vctp32q((uint32_t)depth & 3u);
  for (; across < rows->across_end; columns += 2, across += 2) {
    const int32_t first = columns[0] * depth, right = columns[1] * depth - first;
    const uint8_t *a = rows->top + first, *b = rows->bottom + first, *c = a + right, *d = b + right;
    const float32x4_t a0 = vdupq_n_f32(across[0]), a1 = vdupq_n_f32(across[1]);
    for (int32_t fours = depth >> 2; fours > 0; fours--, a += 4, b += 4, c += 4, d += 4, output += 4) {
      NPU_MEMPLAN_STEP(a);
      NPU_MEMPLAN_STEP(b);
      NPU_MEMPLAN_STEP(c);
      NPU_MEMPLAN_STEP(d);
      NPU_MEMPLAN_MIX_FOUR(NPU_MEMPLAN_LOADED);
      vstrbq_u32(output, four);
    }
    if (depth & 3) {
      NPU_MEMPLAN_MIX_FOUR(NPU_MEMPLAN_LOADED_SOME);
      vstrbq_p_u32(output, four, some);
      output += depth & 3;
    }
  }
}
#else
/* One output of a uint8 image that is resized, in float32 as the reference computes it: `a` and `b` are in the rows
 * above and below, `right` is how far the column after is; `down` and `across` have the shares of rows and columns. */
NPU_MEMPLAN_APART static uint8_t npu_memplan_mix_floats(const uint8_t *a, const uint8_t *b, int32_t right,
                                                        const float *down, const float *across) {
  float sum = (float)a[0] * down[0] * across[0];
  sum = sum + (float)b[0] * down[1] * across[0];
  sum = sum + (float)a[right] * down[0] * across[1];
  sum = sum + (float)b[right] * down[1] * across[1];
  return (uint8_t)(int32_t)(sum + 0.5f);
}

/* A place between two columns: the shares of rows with 24 fraction bits, that of the column after, and what the input
 * above in that column counts; how far the column is, and how many outputs there are. */
typedef struct {
  uint32_t up, down, above, after;
  int32_t right, left;
} npu_memplan_place_in_24;

#define NPU_MEMPLAN_NEAR (1u << 14)
#if defined(__thumb2__) && defined(__GNUC__)
#define NPU_MEMPLAN_UNUSED __attribute__((unused))
#define NPU_MEMPLAN_MIX_NEXT(exit)                                                     \
  "ldrb r0, [r1, r8]\n\tmla r12, r0, r6, lr\n\tldrb r0, [r2, r8]\n\tmla r12, r0, r7, r12\n\t" \
  "ldrb r0, [r1], #1\n\tmla r12, r0, r4, r12\n\tldrb r0, [r2], #1\n\tmla r12, r0, r5, r12\n\t" \
  "cmp r10, r12, lsl #8\n\tbhi " exit "\n\tlsr r12, r12, #24\n\tstrb r12, [r3], #1\n\t"
/* Outputs until the first that is near a half; returns how many are left. It takes more registers than a compiler may
 * have: r4 to r7 are the weights, r10 is twice NPU_MEMPLAN_NEAR << 8, lr a half plus NPU_MEMPLAN_NEAR. */
__attribute__((naked, noinline)) static int32_t npu_memplan_mix_integers(
    const npu_memplan_place_in_24 *place NPU_MEMPLAN_UNUSED, const uint8_t *a NPU_MEMPLAN_UNUSED,
    const uint8_t *b NPU_MEMPLAN_UNUSED, uint8_t *output NPU_MEMPLAN_UNUSED) {
  __asm__(
      "push {r4-r10, lr}\n\tldm r0, {r4-r9}\n\tsubs r7, r7, r6\n\tsubs r4, r4, r6\n\tsubs r5, r5, r7\n\t"
      "mov r10, #0x800000\n\tadd lr, r10, #0x4000\n\t"
      "ands r0, r9, #3\n\tbeq 0f\n\tsub r9, r9, r0\n\tadd r9, r9, #4\n\tcmp r0, #2\n\tbhi 1f\n\tbeq 2f\n\tb 3f\n"
      "0:\n\t" NPU_MEMPLAN_MIX_NEXT("7f") "1:\n\t" NPU_MEMPLAN_MIX_NEXT("6f")
      "2:\n\t" NPU_MEMPLAN_MIX_NEXT("5f") "3:\n\t" NPU_MEMPLAN_MIX_NEXT("4f")
      "subs r9, r9, #4\n\tbne 0b\n\tb 7f\n"
      "4:\n\tsub r9, r9, #1\n5:\n\tsub r9, r9, #1\n6:\n\tsub r9, r9, #1\n7:\n\tmov r0, r9\n\tpop {r4-r10, pc}");
}
#else
static int32_t npu_memplan_mix_integers(const npu_memplan_place_in_24 *place, const uint8_t *a, const uint8_t *b,
                                        uint8_t *output) {
  const uint8_t *c = a + place->right, *d = b + place->right;
  const uint32_t wc = place->above, wd = place->after - wc, wa = place->up - wc, wb = place->down - wd;
  int32_t left = place->left;
  for (; left > 0; left--) {
    const uint32_t sum = (1u << 23) + NPU_MEMPLAN_NEAR + *a++ * wa + *b++ * wb + *c++ * wc + *d++ * wd;
    if (sum << 8 < 2 * NPU_MEMPLAN_NEAR << 8) break;
    *output++ = (uint8_t)(sum >> 24);
  }
  return left;
}
#endif
/* The last `left` outputs of a place, the first of which integers do not decide. */
NPU_MEMPLAN_APART static void npu_memplan_mix_rest(npu_memplan_place_in_24 *place, const uint8_t *a, const uint8_t *b,
                                                   uint8_t *output, int32_t left, const float *down,
                                                   const float *across) {
  const int32_t depth = place->left;
  while (left > 0) {
    const int32_t k = depth - left--;
    output[k] = npu_memplan_mix_floats(a + k, b + k, place->right, down, across);
    place->left = left;
    if (left > 0) left = npu_memplan_mix_integers(place, a + k + 1, b + k + 1, output + k + 1);
  }
  place->left = depth;
}

/* The outputs of a row: weights with 24 fraction bits decide unless they are near a half, where floats do. The sums of
 * the two differ by less than 2^-10, even where shares are -0.5 to 1.5. */
NPU_MEMPLAN_APART static void npu_memplan_mix_row(const npu_memplan_rows *rows, const int32_t *columns,
                                                  const float *across, uint8_t *output) {
  const int32_t depth = rows->depth;
  const uint8_t *const top = rows->top, *const bottom = rows->bottom;
  const float one = 16777216.0f, high = rows->down[0] * one;
  npu_memplan_place_in_24 place;
  place.up = (uint32_t)(int32_t)high, place.down = (1u << 24) - place.up, place.left = depth;
  for (; across < rows->across_end; columns += 2, across += 2, output += depth) {
    const int32_t first = columns[0] * depth;
    place.right = columns[1] * depth - first;
    place.above = (uint32_t)(int32_t)(high * across[1]), place.after = (uint32_t)(int32_t)(across[1] * one);
    const int32_t left = npu_memplan_mix_integers(&place, top + first, bottom + first, output);
    if (left > 0) npu_memplan_mix_rest(&place, top + first, bottom + first, output, left, rows->down, across);
  }
}
#endif

/* An image of uint8 in another size, in float32 as the reference computes it. `rows` and `columns` have two places for
 * each place of the output, the weights what each counts. */
static void npu_memplan_kernel_bilinear(const uint8_t *input, const int32_t *rows, const float *row_weights,
                                        const int32_t *columns, const float *column_weights, uint8_t *output,
                                        int32_t images, int32_t in_h, int32_t in_w, int32_t out_h, int32_t out_w,
                                        int32_t depth) {
  npu_memplan_rows both;
  both.depth = depth, both.across_end = column_weights + 2 * out_w;
  for (int32_t image = 0; image < images; image++, input += in_h * in_w * depth) {
    for (int32_t y = 0; y < out_h; y++, output += out_w * depth) {
      both.top = input + rows[2 * y] * in_w * depth, both.bottom = input + rows[2 * y + 1] * in_w * depth;
      both.down = row_weights + 2 * y;
      npu_memplan_mix_row(&both, columns, column_weights, output);
    }
  }
}
