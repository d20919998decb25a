// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/test/attack"
)

func forgeries(t *testing.T) []attack.StateDisk {
	rows := attack.LoadClass[attack.StateDisk](t, "statedisk")
	return slices.DeleteFunc(rows, func(r attack.StateDisk) bool { return r.Lines == nil })
}

// believed returns what the kind of a row's line is given, and the lines set aside.
func believed(t *testing.T, row attack.StateDisk, r rules) (given []item.Entry, damaged int) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, File), row.Journal(t, "ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := open(dir, item.Scopes{Kernel: "ours", Root: "ours", Disk: "ours"}, r)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close() // the test is over
	return j.Entries(row.Lines[0].Item), j.DamagedLines()
}

// What somebody has written into the journal reaches no kind unless it could be the
// node's own; what cannot be is counted as damage.
func TestForgedLines(t *testing.T) {
	rows := forgeries(t)
	for _, row := range rows {
		t.Run(row.Name, func(t *testing.T) {
			got, damaged := believed(t, row, whole)
			if control := row.Check == ""; (len(got) > 0) != control {
				t.Errorf("the kind is given %+v", got)
			}
			_, name, _ := strings.Cut(row.Check, "/")
			if wants := slices.Contains(whole.entry.Names(), name); (damaged > 0) != wants {
				t.Errorf("%d damaged lines", damaged)
			}
		})
	}
	if len(rows) < 15 {
		t.Errorf("%d rows", len(rows))
	}
}

// TestNoCheckIsVacuous takes each check away: the lines that name it then reach
// their kind.
func TestNoCheckIsVacuous(t *testing.T) {
	named := map[string]bool{}
	for _, row := range forgeries(t) {
		_, name, attacks := strings.Cut(row.Check, "/")
		if !attacks {
			continue
		}
		named[name] = true
		if got, _ := believed(t, row, rules{whole.entry.Without(name), whole.alive.Without(name)}); len(got) == 0 {
			t.Errorf("%s: without %q all is the same", row.Name, name)
		}
	}
	for _, name := range slices.Concat(whole.entry.Names(), whole.alive.Names()) {
		if !named[name] {
			t.Errorf("no row names the check %q", name)
		}
	}
}

// TestForeignJournal: neither a pipe nor a link in the journal's place is waited
// for, followed or written to.
func TestForeignJournal(t *testing.T) {
	for what, place := range map[string]func(string) error{
		"a pipe": func(name string) error { return syscall.Mkfifo(name, 0o600) },
		"a link": func(name string) error {
			return errors.Join(os.WriteFile(name+".victim", nil, 0o600), os.Symlink(name+".victim", name))
		},
		"a second name": func(name string) error {
			return errors.Join(os.WriteFile(name+".victim", nil, 0o600), os.Link(name+".victim", name))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			if err := place(filepath.Join(dir, File)); err != nil {
				t.Fatal(err)
			}
			if j, err := Open(dir, scopes); !errors.Is(err, ownfiles.ErrShared) {
				t.Errorf("%v, %v; want ErrShared", j, err)
			}
		})
	}
}

// TestGolden: the journal that 0.9.0 wrote is read, and written byte-equal.
func TestGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/golden/journal")
	if err != nil {
		t.Fatal(err)
	}
	var lines []line
	for text := range bytes.Lines(golden) {
		l, err := whole.decodeLine(bytes.TrimSuffix(text, []byte("\n")))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		lines = append(lines, l)
	}
	if again, err := encode(lines); err != nil || !bytes.Equal(again, golden) {
		t.Errorf("written otherwise: %v\n%s", err, again)
	}
	if entries, _, damaged := whole.decode(golden); len(damaged) > 0 || len(entries) != 1 || string(entries[id{"sysctl", "vm.swappiness"}].Prior) != `"60"` {
		t.Errorf("it has %+v, damaged %q", entries, damaged)
	}
}

// An agent that a node goes back to keeps the originals that a later one wrote down.
func TestAKeyOfALaterReleaseIsNoDamage(t *testing.T) {
	text := `{"add":{"item":"sysctl","key":"a","prior":"1","scope":"kernel","scopeId":"k","later":{"b":1}},"since":1}`
	l, err := whole.decodeLine(fmt.Appendf(nil, "%08x %s", crc32.Checksum([]byte(text), castagnoli), text))
	if err != nil || string(l.Add.Prior) != `"1"` {
		t.Errorf("%+v, %v", l, err)
	}
}
