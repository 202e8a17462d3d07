/* A complex transform of mixed radix (4, 2, 3, 5), decimated in time, with the roundings of KISS FFT: fixed-point
 * numbers are divided by the radix before each butterfly. `stages`: radix, elements of a part, stride of the twiddles. */
typedef struct {
  SCALAR r, i;
} npu_memplan_complex_SUFFIX;

static inline COMPLEX npu_memplan_product_SUFFIX(COMPLEX a, COMPLEX b) {
  const COMPLEX product = {ROUNDED(WIDE(a.r) * b.r - WIDE(a.i) * b.i), ROUNDED(WIDE(a.r) * b.i + WIDE(a.i) * b.r)};
  return product;
}

static inline COMPLEX npu_memplan_sum_SUFFIX(COMPLEX a, COMPLEX b) {
  const COMPLEX sum = {(SCALAR)PLUS(a.r, b.r), (SCALAR)PLUS(a.i, b.i)};
  return sum;
}

static inline COMPLEX npu_memplan_difference_SUFFIX(COMPLEX a, COMPLEX b) {
  const COMPLEX difference = {(SCALAR)MINUS(a.r, b.r), (SCALAR)MINUS(a.i, b.i)};
  return difference;
}

/* a + b turned by a quarter: against the clock, or with it */
static inline COMPLEX npu_memplan_turned_SUFFIX(COMPLEX a, COMPLEX b, int32_t clockwise) {
  const COMPLEX left = {(SCALAR)MINUS(a.r, b.i), (SCALAR)PLUS(a.i, b.r)};
  const COMPLEX right = {(SCALAR)PLUS(a.r, b.i), (SCALAR)MINUS(a.i, b.r)};
  return clockwise ? right : left;
}

static inline COMPLEX npu_memplan_divided_SUFFIX(COMPLEX a, int32_t radix) {
  const COMPLEX divided = {DIVIDED(a.r, radix), DIVIDED(a.i, radix)};
  return divided;
}

static inline COMPLEX npu_memplan_scaled_SUFFIX(COMPLEX a, SCALAR b) {
  const COMPLEX scaled = {ROUNDED(WIDE(a.r) * b), ROUNDED(WIDE(a.i) * b)};
  return scaled;
}

/* One butterfly of up to five elements, `part` apart; element q is first turned by twiddle q * stride. */
static void npu_memplan_butterfly_SUFFIX(COMPLEX *data, const COMPLEX *twiddles, int32_t radix, int32_t part,
                                         int32_t stride, int32_t place, int32_t inverse) {
  COMPLEX x[5];
  for (int32_t q = 0; q < radix; q++) {
    x[q] = npu_memplan_divided_SUFFIX(data[q * part], radix);
    if (q > 0) x[q] = npu_memplan_product_SUFFIX(x[q], twiddles[q * place * stride]);
  }
  if (radix == 2) {
    data[part] = npu_memplan_difference_SUFFIX(x[0], x[1]);
    data[0] = npu_memplan_sum_SUFFIX(x[0], x[1]);
  } else if (radix == 4) {
    const COMPLEX even = npu_memplan_sum_SUFFIX(x[0], x[2]), odd = npu_memplan_sum_SUFFIX(x[1], x[3]);
    const COMPLEX across = npu_memplan_difference_SUFFIX(x[0], x[2]), turned = npu_memplan_difference_SUFFIX(x[1], x[3]);
    data[2 * part] = npu_memplan_difference_SUFFIX(even, odd);
    data[0] = npu_memplan_sum_SUFFIX(even, odd);
    data[part] = npu_memplan_turned_SUFFIX(across, turned, !inverse);
    data[3 * part] = npu_memplan_turned_SUFFIX(across, turned, inverse);
  } else if (radix == 3) {
    const COMPLEX sum = npu_memplan_sum_SUFFIX(x[1], x[2]);
    COMPLEX turned = npu_memplan_difference_SUFFIX(x[1], x[2]);
    const COMPLEX middle = {(SCALAR)MINUS(x[0].r, HALF(sum.r)), (SCALAR)MINUS(x[0].i, HALF(sum.i))};
    turned = npu_memplan_scaled_SUFFIX(turned, twiddles[stride * part].i);
    data[0] = npu_memplan_sum_SUFFIX(x[0], sum);
    data[2 * part] = npu_memplan_turned_SUFFIX(middle, turned, 1);
    data[part] = npu_memplan_turned_SUFFIX(middle, turned, 0);
  } else {
    const COMPLEX a = twiddles[stride * part], b = twiddles[2 * stride * part];
    const COMPLEX outer = npu_memplan_sum_SUFFIX(x[1], x[4]), outer_turn = npu_memplan_difference_SUFFIX(x[1], x[4]);
    const COMPLEX inner = npu_memplan_sum_SUFFIX(x[2], x[3]), inner_turn = npu_memplan_difference_SUFFIX(x[2], x[3]);
    data[0].r = (SCALAR)PLUS(x[0].r, PLUS(outer.r, inner.r));
    data[0].i = (SCALAR)PLUS(x[0].i, PLUS(outer.i, inner.i));
    for (int32_t far = 0; far < 2; far++) {
      const COMPLEX near = far ? b : a, other = far ? a : b;
      const COMPLEX outer_part = npu_memplan_scaled_SUFFIX(outer, near.r);
      const COMPLEX inner_part = npu_memplan_scaled_SUFFIX(inner, other.r);
      const COMPLEX middle = {(SCALAR)PLUS(PLUS(x[0].r, outer_part.r), inner_part.r),
                              (SCALAR)PLUS(PLUS(x[0].i, outer_part.i), inner_part.i)};
      const COMPLEX first = npu_memplan_scaled_SUFFIX(outer_turn, near.i);
      const COMPLEX second = npu_memplan_scaled_SUFFIX(inner_turn, other.i);
      COMPLEX turn;
      if (far) {
        turn.r = (SCALAR)MINUS(second.i, first.i);
        turn.i = (SCALAR)MINUS(first.r, second.r);
        data[2 * part] = npu_memplan_sum_SUFFIX(middle, turn);
        data[3 * part] = npu_memplan_difference_SUFFIX(middle, turn);
      } else {
        turn.r = (SCALAR)PLUS(first.i, second.i);
        turn.i = (SCALAR)MINUS(NEGATED(first.r), second.r);
        data[part] = npu_memplan_difference_SUFFIX(middle, turn);
        data[4 * part] = npu_memplan_sum_SUFFIX(middle, turn);
      }
    }
  }
}

static void npu_memplan_transform_SUFFIX(COMPLEX *data, const COMPLEX *twiddles, const int32_t *stages, int32_t count,
                                         int32_t size, int32_t inverse) {
  for (int32_t stage = 0; stage < count; stage++) {
    const int32_t radix = stages[3 * stage], part = stages[3 * stage + 1], stride = stages[3 * stage + 2];
    for (int32_t first = 0; first < size; first += radix * part) {
      for (int32_t place = 0; place < part; place++) {
        npu_memplan_butterfly_SUFFIX(data + first + place, twiddles, radix, part, stride, place, inverse);
      }
    }
  }
}
