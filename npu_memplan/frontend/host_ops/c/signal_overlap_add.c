/* Adds frames that overlap; `sums` holds what later frames still add to. */
static void npu_memplan_signal_overlap_add_SUFFIX(const SCALAR *input, SCALAR *sums, SCALAR *output, int32_t rows,
                                                  int32_t frames, int32_t size, int32_t step) {
  for (int32_t frame = 0; frame < rows * frames; frame++) {
    SCALAR *const sum = sums + frame / frames * size;
    for (int32_t i = 0; i < size; i++) sum[i] = ADDED(input[frame * size + i], sum[i]);
    memcpy(output + frame * step, sum, (size_t)step * sizeof(SCALAR));
    memmove(sum, sum + step, (size_t)(size - step) * sizeof(SCALAR));
    memset(sum + size - step, 0, (size_t)step * sizeof(SCALAR));
  }
}
