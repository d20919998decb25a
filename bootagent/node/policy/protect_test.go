// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/spec"
)

// One program that goes on trying is counted as one and has a record a minute, whatever its
// process is; parameters that are not protected have none.
func TestRefusedWrites(t *testing.T) {
	const key = "vm/swappiness"
	boot, file := &record.Boot{Live: record.Live{Protection: record.Protection{Keys: []string{key}}}}, filepath.Join(t.TempDir(), "boot.json")
	records := 0
	p := &Protection{Root: t.TempDir(), Owner: record.New(state.View(t.TempDir()), boot, file), Log: func(string, ...events.Field) { records++ }}
	at := time.Unix(600, 0)
	write := func(key, rival string, after time.Duration) spec.RefusedWrite {
		return spec.RefusedWrite{Key: key, Value: "1", Rival: rival, Count: 1, At: at.Add(after)}
	}
	if err := p.NoteRefused([]spec.RefusedWrite{
		write(key, "tuned (pid 7) of a.service", 0), write(key, "tuned (pid 8) of a.service", time.Second),
		write(key, "tuned (pid 9) of a.service", time.Minute), write(key, "tuned (pid 9) of b.service", 0), write("vm/other", "tuned", 0),
	}); err != nil {
		t.Fatal(err)
	}
	b, err := record.LoadBoot(file)
	if err != nil || len(b.Live.Refused) != 2 || b.Live.Refused[0].Count != 3 || b.Live.Refused[1].Count != 1 || records != 3 {
		t.Errorf("%+v, %d records, %v", b, records, err)
	}
	var many []spec.RefusedWrite
	for i := range 2 * maxRefused {
		many = append(many, write(key, fmt.Sprint(i), 0))
	}
	if err := p.NoteRefused(many); err != nil {
		t.Fatal(err)
	}
	if l := p.Owner.Boot().Live; len(l.Refused) != maxRefused || l.Refused[maxRefused-1].Rival != fmt.Sprint(2*maxRefused-1) {
		t.Errorf("%d are kept", len(l.Refused))
	}
}

// A directory of a test has no kernel to ask, and what is in trouble protects nothing.
func TestWithoutAKernel(t *testing.T) {
	boot := &record.Boot{Live: record.Live{Protection: record.Protection{Keys: []string{"vm/swappiness"}, Trouble: "no cgroup"}}}
	p := &Protection{Root: t.TempDir(), Owner: record.New(state.View(t.TempDir()), boot, "")}
	if err := p.Protect([]string{"vm/other"}); err != nil || p.Exempt(1) != nil || p.Protected() != nil || p.Kernel() {
		t.Errorf("%v, %v", err, p.Protected())
	}
	boot.Live.Protection.Trouble = ""
	if got := p.Protected(); len(got) != 1 || got[0] != "vm/swappiness" {
		t.Errorf("%v", got)
	}
}
