// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// entry is a loader on a disk, by the name of its file.
type entry struct {
	file    string
	number  int64
	id      string // of its bytes
	counted bool   // on trial: systemd-boot counts its starts
	left    int    // starts that are left to it
}

// named is "caisson-<number>-<id>.efi", with systemd-boot's count before the end: "+3", and
// once it was started "+2-1".
var named = regexp.MustCompile(`^caisson-([0-9]{1,18})-([0-9a-f]{12})(?:\+([0-9]{1,9})(?:-[0-9]{1,9})?)?\.efi$`)

// parse reads the name of a file. What is not called so is not ours.
func parse(file string) (e entry, ok bool) {
	m := named.FindStringSubmatch(file)
	if m == nil {
		return e, false
	}
	e = entry{file: file, id: m[2], counted: m[3] != ""}
	e.number, _ = strconv.ParseInt(m[1], 10, 64) // it has few enough digits
	if e.counted {
		e.left, _ = strconv.Atoi(m[3]) // likewise
	}
	return e, true
}

// tries is how often a loader that is new is started before the one before it is again.
const tries = 3

// good is the file's name without a count, trial the one that it begins with.
func (e entry) good() string  { return fmt.Sprintf("caisson-%d-%s.efi", e.number, e.id) }
func (e entry) trial() string { return fmt.Sprintf("caisson-%d-%s+%d.efi", e.number, e.id, tries) }

// spent reports whether a loader was started as often as it may be, and never proved itself.
func (e entry) spent() bool { return e.counted && e.left == 0 }

// of is the entry of a loader that fleet:current names.
func of(l spec.Loader) entry {
	return entry{number: l.Number, id: digest.Hex(l.Image.Digest)[:12]}
}

// inOrder sorts entries as systemd-boot does, see systemd-boot(7): what is spent comes last,
// and the higher number first. It starts the first one, spent or not.
func inOrder(list []entry) {
	slices.SortFunc(list, func(a, b entry) int {
		switch {
		case a.spent() != b.spent() && a.spent():
			return 1
		case a.spent() != b.spent():
			return -1
		}
		return cmp.Or(cmp.Compare(b.number, a.number), cmp.Compare(b.id, a.id))
	})
}

// Why says why the loader that is wanted does not come, or does not start.
type Why struct {
	Text  string // "" where nothing is to be said
	Ahead bool   // a newer one starts: nothing is wrong with the disk
}

// plan says which entries go and whether a loader comes, and where it does not, why. A number
// only rises; one that is spent is not tried again; the newest that is good always stays.
func plan(list []entry, want entry) (goes []entry, comes bool, why Why) {
	newest, starts := int64(-1), int64(-1) // and the newest that may still be started
	for _, e := range list {
		newest = max(newest, e.number)
		if !e.spent() {
			starts = max(starts, e.number)
		}
	}
	back := func(has int64) Why {
		return Why{fmt.Sprintf("fleet:current names loader %d, the disk has %d, and loaders never go back", want.number, has), want.number < starts}
	}
	for _, e := range list {
		switch {
		case e.number == want.number && e.id == want.id && e.spent():
			return nil, false, Why{Text: fmt.Sprintf("loader %d was started %d times and did not come up: the one before it is used", e.number, tries)}
		case e.number == want.number && e.id == want.id && e.number < starts:
			return nil, false, back(starts)
		case e.number == want.number && e.id == want.id:
			return nil, false, Why{}
		case e.number == want.number:
			return nil, false, Why{Text: fmt.Sprintf("fleet:current names another loader %d than the one on the disk", e.number)}
		}
	}
	if want.number < newest {
		return nil, false, back(newest)
	}
	good := slices.DeleteFunc(slices.Clone(list), func(e entry) bool { return e.counted })
	inOrder(good)
	for _, e := range list {
		switch {
		case len(good) > 0 && e != good[0], len(good) == 0 && e.spent() && len(list) > 1:
			goes = append(goes, e)
		}
	}
	return goes, true, Why{}
}
