/* Transforms of rows of real numbers, filled up with zeros: a complex one of half the length, then untangled. */
static void npu_memplan_signal_rfft_SUFFIX(const SCALAR *input, const SCALAR *twiddle_pairs, const SCALAR *split_pairs,
                                           const int32_t *order, const int32_t *stages, SCALAR *work, SCALAR *output,
                                           int32_t rows, int32_t length, int32_t size, int32_t count, int32_t pitch) {
  COMPLEX *const data = (COMPLEX *)(void *)work;
  const COMPLEX *const splits = (const COMPLEX *)(const void *)split_pairs;
  for (int32_t row = 0; row < rows; row++) {
    const SCALAR *const samples = input + row * length;
    COMPLEX *const result = (COMPLEX *)(void *)(output + row * pitch);
    for (int32_t k = 0; k < size; k++) {
      data[k].r = 2 * order[k] < length ? samples[2 * order[k]] : 0;
      data[k].i = 2 * order[k] + 1 < length ? samples[2 * order[k] + 1] : 0;
    }
    npu_memplan_transform_SUFFIX(data, (const COMPLEX *)(const void *)twiddle_pairs, stages, count, size, 0);
    const COMPLEX mean = npu_memplan_divided_SUFFIX(data[0], 2);
    result[0].r = (SCALAR)PLUS(mean.r, mean.i);
    result[size].r = (SCALAR)MINUS(mean.r, mean.i);
    result[0].i = result[size].i = 0;
    for (int32_t k = 1; k <= size / 2; k++) {
      const COMPLEX here = npu_memplan_divided_SUFFIX(data[k], 2);
      COMPLEX mirrored = data[size - k];
      mirrored.i = (SCALAR)NEGATED(mirrored.i);
      mirrored = npu_memplan_divided_SUFFIX(mirrored, 2);
      const COMPLEX even = npu_memplan_sum_SUFFIX(here, mirrored);
      const COMPLEX odd = npu_memplan_product_SUFFIX(npu_memplan_difference_SUFFIX(here, mirrored), splits[k - 1]);
      result[k].r = (SCALAR)HALF(PLUS(even.r, odd.r));
      result[k].i = (SCALAR)HALF(PLUS(even.i, odd.i));
      result[size - k].r = (SCALAR)HALF(MINUS(even.r, odd.r));
      result[size - k].i = (SCALAR)HALF(MINUS(odd.i, even.i));
    }
  }
}
