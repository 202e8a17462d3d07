"""The exact search, compiled: fill sections from below until all items lie under a ceiling.

Invariant: a state is a floor for every section and the set of items not yet placed; it
stands for all placements of these at or above the floors. The search is complete: answer
`INFEASIBLE` is a proof. What makes it fast:

* only canonical placements: an item lies on the floor of a section whose candidates
  cover nothing lower, or the section's floor is raised to where one could next begin;
* floors rise to the least start of the items that still cover them, until nothing moves;
* the state splits at points that no remaining item crosses, and the parts are solved one
  by one: a part that fails returns to the choice made before the split;
* states that failed are remembered by the headroom above each floor, so a nogood holds
  for every ceiling of the same phase and across restarts;
* of equal items only the first unplaced one is tried;
* the section with the fewest candidates comes first, those that failed often before others.

This module imports numba; nobody imports it before a cheap planner has missed the bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .kernel_parts import chance, grown, mix, section_key

FOUND, INFEASIBLE, LIMIT = 1, 0, -1

# columns of the frames on the stack of choices
LO, HI, PARENT, AGENDA, CELLS, TRAIL, ITEMS, PLACED, SECTION, OPTION, OPTIONS, NEXT = range(12)
COLUMNS = 12

_U = np.uint64


@njit(cache=True)  # type: ignore[untyped-decorator]
def fill(
    size: Any,  # int64[n], bytes
    align: Any,  # int64[n], bytes
    cover_at: Any,  # int64[n + 1]: sections of item b are cover[cover_at[b]:cover_at[b + 1]], ascending
    cover: Any,
    member_at: Any,  # int64[s + 1]: items of section s are member[member_at[s]:member_at[s + 1]]
    member: Any,
    twin: Any,  # int64[n]: an equal item that must be placed before this one, or -1
    ceiling: int,  # bytes
    phase: int,  # ceiling modulo what all alignments divide: with equal headroom, equal phases align alike
    nodes: int,  # choices allowed
    score: Any,  # float64[n]: items of high score are tried first
    noise: float,  # amplitude of random numbers added to the scores
    rule: int,  # which section next: of `section_key`
    weight: Any,  # float64[s]: how often a section failed; kept between calls
    state: Any,  # uint64[1]: random numbers
    memo: Any,  # uint64[2, 2**k]: nogoods; kept between calls
    offset: Any,  # int64[n]: the answer
    counts: Any,  # int64[2]: choices made, added to; most items placed at once
) -> int:
    """FOUND (offsets are filled in), INFEASIBLE (proven) or LIMIT (nodes spent)."""
    count, sections = size.shape[0], member_at.shape[0] - 1
    floor = np.zeros(sections, np.int64)
    rest = np.zeros(sections, np.int64)  # bytes not yet placed
    placed = np.zeros(count, np.bool_)
    start = np.zeros(count, np.int64)  # least offset under the present floors
    supported = np.zeros(count, np.int64)  # 2 * frame stamp + whether all its floors are its start
    # the active (not yet placed) members of section s come first in its slice; slots are swapped, and
    # swapped back in reverse order. entry[i] is the place of slot i in `cover`, slot[q] its inverse
    member = member.copy()
    active = np.zeros(sections, np.int64)
    entry = np.zeros(member.shape[0], np.int64)
    slot = np.zeros(member.shape[0], np.int64)
    first, final = np.zeros(count, np.int64), np.zeros(count, np.int64)  # sections
    crossing = np.zeros(sections, np.int64)  # items not yet placed that reach beyond section s
    hash_1, hash_2 = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    begun_1, begun_2 = np.zeros(sections, np.uint64), np.zeros(sections, np.uint64)  # of items whose first s is
    for b in range(count):
        hash_1[b] = mix(_U(b) * _U(0x9E3779B97F4A7C15) + _U(0x632BE59BD9B4E019))
        hash_2[b] = mix(hash_1[b] ^ _U(0xA5A5A5A5A5A5A5A5))
        first[b], final[b] = cover[cover_at[b]], cover[cover_at[b + 1] - 1]
        begun_1[first[b]] += hash_1[b]
        begun_2[first[b]] += hash_2[b]
        for s in range(first[b], final[b]):
            crossing[s] += 1
        for q in range(cover_at[b], cover_at[b + 1]):
            s = cover[q]
            rest[s] += size[b]
            i = member_at[s] + active[s]
            member[i], entry[i], slot[q] = b, q, i
            active[s] += 1
    # a member that begins on the floor, when last seen: while it does, the floor stays
    witness = member[member_at[:sections]]
    mask = _U(memo.shape[1] - 1)
    # one frame a choice; each chosen item and each raised floor moves at least one section up
    depth = 2 * count + 8 * sections + 64
    frame = np.zeros((depth, COLUMNS), np.int64)
    f_h1, f_h2 = np.zeros(depth, np.uint64), np.zeros(depth, np.uint64)
    options = np.zeros(4096, np.int64)
    option_score = np.zeros(count + 1, np.float64)
    trail_section, trail_floor = np.zeros(8192, np.int64), np.zeros(8192, np.int64)
    trail = 0
    item_trail, item_start = np.zeros(8192, np.int64), np.zeros(8192, np.int64)
    item_trails = 0
    moved, moved_count = np.zeros(sections, np.int64), sections  # sections whose floor moved
    is_moved = np.ones(sections, np.bool_)
    for s in range(sections):
        moved[s] = s
    order = np.zeros(count + 1, np.int64)
    placed_count = 0
    # parts still to be solved, a linked list of cells
    cell = np.zeros((depth, 4), np.int64)  # LO, HI, PARENT, AGENDA (the next cell)
    cells = 0
    agenda = -1
    seen = np.zeros(count, np.bool_)
    option_end = 0
    level = np.int64(0)
    top = -1
    lo, hi, parent = 0, sections, -1
    left = nodes
    stamp = 0
    while True:
        # -- enter the part [lo, hi) ---------------------------------------
        failed = False
        while moved_count > 0 and not failed:
            # arrays grow out here only: names bound anew in an inner loop cost it reference counts
            while item_trails + member.shape[0] > item_trail.shape[0]:
                item_trail, item_start = grown(item_trail), grown(item_start)
            while trail + 2 * sections > trail_section.shape[0]:
                trail_section, trail_floor = grown(trail_section), grown(trail_floor)
            near, far = sections, 0  # sections whose least start may have changed
            for i in range(moved_count):
                s = moved[i]
                is_moved[s] = False
                near, far = min(near, s), max(far, s + 1)
                f = floor[s]
                for k in range(member_at[s], member_at[s] + active[s]):
                    b = member[k]
                    if f > start[b]:
                        item_trail[item_trails], item_start[item_trails] = b, start[b]
                        item_trails += 1
                        a = align[b]
                        start[b] = f if a == 1 else (f + a - 1) // a * a
                        near, far = min(near, first[b]), max(far, final[b] + 1)
            moved_count = 0
            for s in range(near, far):
                if active[s] == 0:
                    continue
                f = floor[s]
                b = witness[s]
                if placed[b] or start[b] > f:
                    low = np.int64(1 << 62)
                    for k in range(member_at[s], member_at[s] + active[s]):
                        b = member[k]
                        if start[b] < low:
                            low = start[b]
                            witness[s] = b
                            if low <= f:
                                break  # no start is below the floor
                    if low > f:
                        trail_section[trail], trail_floor[trail] = s, f
                        trail += 1
                        floor[s] = f = low
                        is_moved[s] = True
                        moved[moved_count] = s
                        moved_count += 1
                if f + rest[s] > ceiling:
                    failed = True
                    weight[s] += 1.0
                    break
        h1, h2 = _U(0x2545F4914F6CDD1D), _U(0x9E6C63D0876A9A47) ^ _U(phase)
        if not failed:
            # split where no remaining item crosses
            while cells + sections > cell.shape[0]:
                cell = grown(cell)
            begin, parts = lo, 0
            first_lo = first_hi = lo
            any_rest = False
            for s in range(lo, hi):
                any_rest = any_rest or active[s] > 0
                if crossing[s] == 0 and any_rest:
                    parts += 1
                    if parts == 1:
                        first_lo, first_hi = begin, s + 1
                    else:
                        cell[cells, LO], cell[cells, HI] = begin, s + 1
                        cell[cells, PARENT], cell[cells, AGENDA] = parent, agenda
                        agenda = cells
                        cells += 1
                    any_rest = False
                if crossing[s] == 0:
                    begin = s + 1
            if parts == 0:
                if agenda < 0:
                    counts[0] += nodes - left
                    return FOUND
                lo, hi, parent, agenda = cell[agenda, LO], cell[agenda, HI], cell[agenda, PARENT], cell[agenda, AGENDA]
                continue
            lo, hi = first_lo, first_hi
            for s in range(lo, hi):
                if active[s] > 0:
                    z = mix(_U(s) * _U(0xC2B2AE3D27D4EB4F) + _U(ceiling - floor[s]) * _U(0xD6E8FEB86659FD93))
                    h1 += begun_1[s] + z
                    h2 += begun_2[s] + (z ^ (z >> _U(29))) * _U(0xBF58476D1CE4E5B9)
            failed = memo[0, h1 & mask] == h1 and memo[1, h1 & mask] == h2
        if failed:
            for i in range(moved_count):
                is_moved[moved[i]] = False
            moved_count = 0
            top = parent
        else:
            # -- choose a section and list its candidates ------------------
            stamp += 1
            chosen = -1
            chosen_key = 1e300
            for s in range(lo, hi):
                if active[s] == 0:
                    continue
                f = floor[s]
                slack = ceiling - f - rest[s]
                candidates = 1 if slack > 0 else 0
                if slack > 0 and section_key(rule, 2, slack, f, weight[s], ceiling) >= chosen_key:
                    continue  # something begins at the floor, and keys only grow with the count
                eligible = True
                for k in range(member_at[s], member_at[s] + active[s]):
                    b = member[k]
                    if start[b] == f:
                        if supported[b] < 2 * stamp:
                            supported[b] = 2 * stamp + 1
                            for q in range(cover_at[b], cover_at[b + 1]):
                                if floor[cover[q]] < f:
                                    supported[b] = 2 * stamp
                                    break
                        if supported[b] == 2 * stamp:
                            # something may still fit below it: a lower section must decide first
                            eligible = False
                            break
                        if twin[b] < 0 or placed[twin[b]]:
                            candidates += 1
                            if (
                                candidates > 1
                                and section_key(rule, candidates, slack, f, weight[s], ceiling) >= chosen_key
                            ):
                                eligible = False  # keys only grow with the count
                                break
                if not eligible:
                    continue
                key = section_key(rule, candidates, slack, f, weight[s], ceiling)
                if key < chosen_key:
                    chosen, chosen_key = s, key
                    if key < 0.0:
                        break  # no choice: nothing comes before it
            f = floor[chosen]
            top += 1
            if top == frame.shape[0]:
                frame, f_h1, f_h2 = grown(frame), grown(f_h1), grown(f_h2)
            frame[top, LO], frame[top, HI], frame[top, PARENT] = lo, hi, parent
            frame[top, AGENDA], frame[top, CELLS] = agenda, cells
            frame[top, ITEMS] = item_trails
            frame[top, TRAIL], frame[top, PLACED], frame[top, SECTION] = trail, placed_count, chosen
            f_h1[top], f_h2[top] = h1, h2
            while option_end + count + 1 > options.shape[0]:
                options = grown(options)
            found = 0
            for k in range(member_at[chosen], member_at[chosen] + active[chosen]):
                b = member[k]
                if start[b] == f and (twin[b] < 0 or placed[twin[b]]):
                    value = score[b]
                    if noise > 0.0:
                        value += noise * chance(state)
                    j = found
                    while j > 0 and option_score[j - 1] < value:
                        option_score[j] = option_score[j - 1]
                        options[option_end + j] = options[option_end + j - 1]
                        j -= 1
                    option_score[j] = value
                    options[option_end + j] = b
                    found += 1
            if f + rest[chosen] < ceiling:
                options[option_end + found] = -1  # nothing begins at the floor
                found += 1
            frame[top, OPTION], frame[top, OPTIONS], frame[top, NEXT] = option_end, found, 0
            option_end += found
        # -- take the next option of the top frame ------------------------
        while True:
            if top < 0:
                counts[0] += nodes - left
                return INFEASIBLE
            while trail > frame[top, TRAIL]:
                trail -= 1
                floor[trail_section[trail]] = trail_floor[trail]
            while item_trails > frame[top, ITEMS]:
                item_trails -= 1
                b = item_trail[item_trails]
                start[b] = item_start[item_trails]
            while placed_count > frame[top, PLACED]:
                placed_count -= 1
                b = order[placed_count]
                placed[b] = False
                begun_1[first[b]] += hash_1[b]
                begun_2[first[b]] += hash_2[b]
                for s in range(first[b], final[b]):
                    crossing[s] += 1
                for q in range(cover_at[b], cover_at[b + 1]):
                    x = cover[q]
                    rest[x] += size[b]
                    active[x] += 1
            if frame[top, NEXT] == frame[top, OPTIONS]:
                memo[0, f_h1[top] & mask], memo[1, f_h1[top] & mask] = f_h1[top], f_h2[top]
                top = frame[top, PARENT]
                continue
            if left <= 0:
                counts[0] += nodes
                return LIMIT
            b = options[frame[top, OPTION] + frame[top, NEXT]]
            frame[top, NEXT] += 1
            if b >= 0:
                break
            # nothing begins at the floor: the next start is a higher item's, or the top of one that is elsewhere
            s = frame[top, SECTION]
            f = floor[s]
            for k in range(member_at[s], member_at[s] + active[s]):
                seen[member[k]] = True
            level = np.int64(1 << 62)
            for i in range(count):
                if not placed[i] and frame[top, LO] <= first[i] < frame[top, HI]:
                    at = start[i] if seen[i] else start[i] + size[i]
                    if f < at < level:
                        level = at
                seen[i] = False
            if level + rest[s] <= ceiling:
                break
        option_end = frame[top, OPTION] + frame[top, OPTIONS]
        cells, agenda = frame[top, CELLS], frame[top, AGENDA]
        left -= 1
        s = frame[top, SECTION]
        f = floor[s]
        if b >= 0:
            placed[b] = True
            begun_1[first[b]] -= hash_1[b]
            begun_2[first[b]] -= hash_2[b]
            for x in range(first[b], final[b]):
                crossing[x] -= 1
            order[placed_count] = b
            placed_count += 1
            counts[1] = max(counts[1], placed_count)
            offset[b] = f
            for q in range(cover_at[b], cover_at[b + 1]):
                x = cover[q]
                trail_section[trail], trail_floor[trail] = x, floor[x]
                trail += 1
                floor[x] = f + size[b]
                rest[x] -= size[b]
                active[x] -= 1
                i, j = slot[q], member_at[x] + active[x]
                other, e = member[j], entry[j]
                member[j], entry[j], slot[q] = b, q, j
                member[i], entry[i], slot[e] = other, e, i
                is_moved[x] = True
                moved[moved_count] = x
                moved_count += 1
        else:
            trail_section[trail], trail_floor[trail] = s, f
            trail += 1
            floor[s] = level
            is_moved[s] = True
            moved[moved_count] = s
            moved_count += 1
        lo, hi, parent = frame[top, LO], frame[top, HI], top
