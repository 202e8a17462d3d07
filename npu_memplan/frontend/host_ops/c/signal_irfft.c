/* Real numbers of rows of half spectra: tangled, then a complex transform of half the length. */
static void npu_memplan_signal_irfft_SUFFIX(const SCALAR *input, const SCALAR *twiddle_pairs, const SCALAR *split_pairs,
                                            const int32_t *order, const int32_t *stages, SCALAR *work, SCALAR *output,
                                            int32_t rows, int32_t pitch, int32_t size, int32_t count) {
  COMPLEX *const tangled = (COMPLEX *)(void *)work;
  const COMPLEX *const splits = (const COMPLEX *)(const void *)split_pairs;
  for (int32_t row = 0; row < rows; row++) {
    const COMPLEX *const spectrum = (const COMPLEX *)(const void *)(input + row * pitch);
    COMPLEX *const result = (COMPLEX *)(void *)(output + row * 2 * size);
    tangled[0].r = (SCALAR)PLUS(spectrum[0].r, spectrum[size].r);
    tangled[0].i = (SCALAR)MINUS(spectrum[0].r, spectrum[size].r);
    tangled[0] = npu_memplan_divided_SUFFIX(tangled[0], 2);
    for (int32_t k = 1; k <= size / 2; k++) {
      const COMPLEX here = npu_memplan_divided_SUFFIX(spectrum[k], 2);
      COMPLEX mirrored = spectrum[size - k];
      mirrored.i = (SCALAR)NEGATED(mirrored.i);
      mirrored = npu_memplan_divided_SUFFIX(mirrored, 2);
      const COMPLEX even = npu_memplan_sum_SUFFIX(here, mirrored);
      const COMPLEX odd = npu_memplan_product_SUFFIX(npu_memplan_difference_SUFFIX(here, mirrored), splits[k - 1]);
      tangled[k] = npu_memplan_sum_SUFFIX(even, odd);
      tangled[size - k] = npu_memplan_difference_SUFFIX(even, odd);
      tangled[size - k].i = (SCALAR)NEGATED(tangled[size - k].i);
    }
    for (int32_t k = 0; k < size; k++) result[k] = tangled[order[k]];
    npu_memplan_transform_SUFFIX(result, (const COMPLEX *)(const void *)twiddle_pairs, stages, count, size, 1);
    FINISHED(output + row * 2 * size, 2 * size);
  }
}
