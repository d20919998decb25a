// SPDX-License-Identifier: Apache-2.0

package tunable

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
)

// Same reports whether two values mean the same to the kernel: the same fields,
// however separated, where a field is text, a number in any of the kernel's
// bases, or a list of numbers and ranges.
func Same(a, b string) bool {
	var x, y string
	for a != b {
		x, a = cutField(a)
		y, b = cutField(b)
		if x == "" || y == "" {
			return x == y
		}
		if !sameField(x, y) {
			return false
		}
	}
	return true
}

// cutField returns the first field of a text and what follows it. It makes no list: most
// values are one field, and a thousand are compared in a run.
func cutField(s string) (field, rest string) {
	s = strings.TrimLeftFunc(s, unicode.IsSpace)
	if n := strings.IndexFunc(s, unicode.IsSpace); n >= 0 {
		return s[:n], s[n:]
	}
	return s, ""
}

func sameField(a, b string) bool {
	if a == b {
		return true
	}
	x, okA := number(a)
	y, okB := number(b)
	if okA && okB {
		return x == y
	}
	r, okA := ranges(a)
	s, okB := ranges(b)
	return okA && okB && slices.Equal(r, s)
}

// number reads what simple_strtoul(…, 0) does: decimal, 0x… and 0…
func number(s string) (int64, bool) {
	if strings.ContainsAny(s, "_bBoO") && !strings.HasPrefix(strings.ToLower(s), "0x") || strings.Contains(s, "_") {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 0, 64)
	return n, err == nil
}

// ranges reads a list such as "1,3-5" as its merged ranges.
func ranges(s string) ([][2]uint64, bool) {
	var list [][2]uint64
	for _, part := range strings.Split(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		low, err1 := strconv.ParseUint(from, 10, 32)
		high, err2 := strconv.ParseUint(to, 10, 32)
		if err1 != nil || err2 != nil || low > high {
			return nil, false
		}
		list = append(list, [2]uint64{low, high})
	}
	slices.SortFunc(list, func(a, b [2]uint64) int { return int(int64(a[0]) - int64(b[0])) })
	merged := list[:1]
	for _, r := range list[1:] {
		last := &merged[len(merged)-1]
		if r[0] <= last[1]+1 {
			last[1] = max(last[1], r[1])
			continue
		}
		merged = append(merged, r)
	}
	return merged, true
}

// Adopt returns entries with what is wanted as the original of what is. A key that is
// not there has nothing to put back.
func (i *Item) Adopt() (entries []item.Entry, err error) {
	defer i.kind.Done()
	for _, w := range i.want {
		now, readErr := i.kind.Files.Read(w.Key)
		if errors.Is(readErr, fs.ErrNotExist) {
			continue
		}
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		e := i.entry(w.Key, prior{Value: w.Value})
		e.Applied = item.Raw(now)
		entries = append(entries, e)
	}
	return entries, err
}

// Kept adds what is set now of the keys that were wanted and have an original.
func (i *Item) Kept(items *spec.Items) {
	if i.kind.Keep == nil {
		return
	}
	defer i.kind.Done()
	kept := map[string]string{}
	for _, e := range i.journal.Entries(i.kind.Name) {
		if now, err := i.kind.Files.Read(e.Key); err == nil && e.Applied != nil {
			kept[e.Key] = now
		}
	}
	for _, key := range slices.Sorted(maps.Keys(kept)) {
		i.kind.Keep(items, key, kept[key])
	}
}
