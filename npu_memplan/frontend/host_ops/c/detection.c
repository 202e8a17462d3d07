/* Detections of boxes that were predicted against anchors: decoded, then thinned out where they overlap. */
static void npu_memplan_sort_SUFFIX(const float *scores, int32_t *order, int32_t *spare, int32_t count) {
  /* merges runs that double; the higher score first, of equal ones the one that stood first */
  for (int32_t run = 1; run < count; run *= 2) {
    for (int32_t start = 0; start < count; start += 2 * run) {
      const int32_t middle = start + run < count ? start + run : count;
      const int32_t end = middle + run < count ? middle + run : count;
      int32_t left = start, right = middle;
      for (int32_t at = start; at < end; at++) {
        const bool later = left >= middle || (right < end && scores[order[right]] > scores[order[left]]);
        spare[at] = later ? order[right++] : order[left++];
      }
    }
    memcpy(order, spare, (size_t)count * sizeof(int32_t));
  }
}

static float npu_memplan_overlap_SUFFIX(const float *a, const float *b) {
  const float area_a = (a[2] - a[0]) * (a[3] - a[1]), area_b = (b[2] - b[0]) * (b[3] - b[1]);
  if (area_a <= 0 || area_b <= 0) return 0.0f;
  const float top = a[0] < b[0] ? b[0] : a[0], left = a[1] < b[1] ? b[1] : a[1];
  const float bottom = b[2] < a[2] ? b[2] : a[2], right = b[3] < a[3] ? b[3] : a[3];
  const float height = bottom - top < 0.0f ? 0.0f : bottom - top, width = right - left < 0.0f ? 0.0f : right - left;
  return height * width / (area_a + area_b - height * width);
}

/* Chooses at most `most` boxes by score, none that overlaps a chosen one too much; how many. */
static int32_t npu_memplan_choose_SUFFIX(const float *boxes, const float *scores, int32_t count, int32_t most,
                                         int32_t *order, int32_t *spare, uint8_t *free, int32_t *chosen) {
  int32_t kept = 0, found = 0;
  for (int32_t i = 0; i < count; i++) {
    if (scores[i] >= THRESHOLD) order[kept++] = i;
  }
  npu_memplan_sort_SUFFIX(scores, order, spare, kept);
  memset(free, 1, (size_t)kept);
  for (int32_t i = 0; i < kept && found < most; i++) {
    if (!free[i]) continue;
    chosen[found++] = order[i];
    for (int32_t j = i + 1; j < kept; j++) {
      if (free[j] && npu_memplan_overlap_SUFFIX(boxes + 4 * order[i], boxes + 4 * order[j]) > OVERLAP) free[j] = 0;
    }
  }
  return found;
}

/* Corners of all boxes; false when one is empty. */
static bool npu_memplan_decode_SUFFIX(const BOX_TYPE *encoded, const ANCHOR_TYPE *anchors, float *boxes, int32_t count,
                                      int32_t pitch) {
  for (int32_t i = 0; i < count; i++) {
    const BOX_TYPE *const code = encoded + i * pitch;
    const ANCHOR_TYPE *const anchor = anchors + 4 * i;
    const double height = ANCHOR(anchor[2]), width = ANCHOR(anchor[3]);
    const float y = (float)(BOX(code[0]) / (double)Y_SCALE * height + (double)ANCHOR(anchor[0]));
    const float x = (float)(BOX(code[1]) / (double)X_SCALE * width + (double)ANCHOR(anchor[1]));
    const float half_height = (float)(0.5 * exp(BOX(code[2]) / (double)H_SCALE) * height);
    const float half_width = (float)(0.5 * exp(BOX(code[3]) / (double)W_SCALE) * width);
    boxes[4 * i] = y - half_height;
    boxes[4 * i + 1] = x - half_width;
    boxes[4 * i + 2] = y + half_height;
    boxes[4 * i + 3] = x + half_width;
    if (boxes[4 * i] >= boxes[4 * i + 2] || boxes[4 * i + 1] >= boxes[4 * i + 3]) return false;
  }
  return true;
}
