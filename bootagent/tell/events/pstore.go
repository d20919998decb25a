// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PStore is where the kernel shows what firmware or reserved memory kept of a kernel
// that died, see Documentation/ABI/testing/pstore. Most machines have nothing there.
const PStore = "/sys/fs/pstore"

// Dump is the last log of a kernel that died.
type Dump struct {
	Reason  string // the kernel's word: Panic, Oops …
	Time    time.Time
	Console []string
	files   []string
}

// Forget frees the room that the dump takes. Firmware has little of it, and where it is
// full the next death leaves no word.
func (d Dump) Forget() error {
	for _, file := range d.files {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("forget what the kernel left: %w", err)
		}
	}
	return nil
}

// Why is the line that says why the kernel died.
func (d Dump) Why() string {
	n := fatal(d.Console)
	if n < 0 {
		return d.Reason
	}
	_, text, _ := strings.Cut(d.Console[n], "] ")
	return fmt.Sprintf("%s: %s", d.Reason, cmp.Or(text, d.Console[n]))
}

// fatal finds the first line that says why a kernel died, -1 without one: those after it
// say what came of it.
func fatal(lines []string) int {
	return slices.IndexFunc(lines, func(line string) bool {
		return strings.Contains(line, "Kernel panic") || strings.Contains(line, "BUG:") || strings.Contains(line, "Oops:")
	})
}

// leadUp is how much of what an event has room for is from before that line.
const leadUp = 8

// around keeps the lines that an event has room for: those at the one that says why,
// since a trace is longer than that, or the last ones.
func around(lines []string) []string {
	from := max(0, len(lines)-maxLines)
	if n := fatal(lines); n >= 0 {
		from = max(0, min(from, n-leadUp))
	}
	return lines[from:min(len(lines), from+maxLines)]
}

// part is the first line of a dump in firmware, which takes it in pieces of a kilobyte:
// the first has the newest lines.
var part = regexp.MustCompile(`^([A-Za-z]+)#(\d+) Part(\d+)\n`)

const maxDump = 1 << 20

// piece is one of them.
type piece struct {
	file, text string
	number     int
}

// Dumps returns what is there, oldest first.
func Dumps(dir string) []Dump {
	names, _ := filepath.Glob(filepath.Join(dir, "dmesg-*")) // the pattern is valid
	type death struct {
		reason, count string
		minute        int64
	}
	dumps, pieces := map[death]*Dump{}, map[death][]piece{}
	for _, name := range names {
		text, at, err := readDump(name)
		m := part.FindStringSubmatch(text)
		if err != nil || m == nil {
			continue
		}
		which := death{m[1], m[2], at.Unix() / 60} // writing takes its time
		if before := (death{m[1], m[2], which.minute - 1}); dumps[before] != nil {
			which = before
		}
		dumps[which] = cmp.Or(dumps[which], &Dump{Reason: m[1], Time: at})
		number, _ := strconv.Atoi(m[3]) // digits; one too large comes first
		pieces[which] = append(pieces[which], piece{name, text[len(m[0]):], number})
	}
	for which, d := range dumps {
		slices.SortFunc(pieces[which], func(a, b piece) int { return cmp.Compare(b.number, a.number) })
		for _, p := range pieces[which] {
			d.files = append(d.files, p.file)
			for line := range strings.Lines(p.text) {
				d.Console = append(d.Console, short(unleveled(line)))
			}
		}
		d.Console = around(d.Console)
	}
	return slices.SortedFunc(func(yield func(Dump) bool) {
		for _, d := range dumps {
			if !yield(*d) {
				return
			}
		}
	}, func(a, b Dump) int { return a.Time.Compare(b.Time) })
}

func readDump(name string) (text string, at time.Time, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", at, err
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return "", at, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxDump))
	return string(data), info.ModTime(), err
}

// unleveled is a line without the kernel's mark of how grave it is.
func unleveled(line string) string {
	line = strings.TrimRight(line, "\n")
	if head, rest, ok := strings.Cut(line, ">"); ok && strings.HasPrefix(head, "<") && len(head) <= 4 {
		return rest
	}
	return line
}
