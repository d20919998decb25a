// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// Every kind has its row in the table of what tells of it, but for the kinds that say
// why nothing could.
func TestEveryKindIsWatched(t *testing.T) {
	for _, i := range items.Table(spec.Items{}, items.Options{}) {
		if silent := itemtest.Says(t, "../items", i.Name(), itemtest.Untold); silent == slices.ContainsFunc(items.Hints, func(h item.Hint) bool { return h.Kind == i.Name() }) {
			t.Errorf("%s is in items.Hints, or else the file of its suite says // %s…: %v", i.Name(), itemtest.Untold, silent)
		}
	}
}

// What a look waits for is not held against the next one: only what it computes is.
func TestWaitingIsNoEffort(t *testing.T) {
	began := begin()
	time.Sleep(100 * time.Millisecond)
	if rest := began.rest(); rest >= idle*50*time.Millisecond {
		t.Errorf("after a look that waited for 100 ms, the next one waits %s", rest)
	}
	for began = begin(); used()-began.used < 20*time.Millisecond; {
	}
	if rest := began.rest(); rest < idle*10*time.Millisecond {
		t.Errorf("after a look that took 20 ms of a processor, the next one waits %s", rest)
	}
}

// A verb that was called after the service had looked, and before it waits, is not missed:
// whatever time its files have.
func TestAVerbBeforeTheWait(t *testing.T) {
	for name, write := range map[string]func(dir string) error{
		"a new file": func(dir string) error { return os.WriteFile(filepath.Join(dir, paths.Corrections), nil, 0o644) },
		"in the same moment": func(dir string) error {
			state := filepath.Join(dir, "state.json")
			info, err := os.Stat(state)
			if err != nil {
				return err
			}
			return errors.Join(os.WriteFile(state+".new", nil, 0o644), os.Chtimes(state+".new", info.ModTime(), info.ModTime()), os.Rename(state+".new", state))
		},
		"by a clock that was set back": func(dir string) error {
			book, before := filepath.Join(dir, paths.Corrections), time.Now().Add(-time.Hour)
			return errors.Join(os.WriteFile(book, nil, 0o644), os.Chtimes(book, before, before))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(DaemonConfig{Node: session.Options{Root: t.TempDir()}})
			dir := filepath.Join(s.o.Root, paths.State)
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "state.json"), nil, 0o644)); err != nil {
				t.Fatal(err)
			}
			s.sees()
			if err := write(dir); err != nil {
				t.Fatal(err)
			}
			if !s.heed(t.Context(), nil, time.After(time.Second)) {
				t.Error("it waits")
			}
		})
	}
}

// A service that is told to end lets what it does beside its looks end, for a while.
func TestLeave(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		var said bytes.Buffer
		s := newService(DaemonConfig{Node: session.Options{Say: func(format string, args ...any) { fmt.Fprintf(&said, format, args...) }}})
		ctx, cancel := context.WithCancel(t.Context())
		goOn := make(chan struct{})
		undone := false
		s.beside.acts.Go(func() {
			<-ctx.Done()
			if hangs {
				<-goOn
				return
			}
			time.Sleep(50 * time.Millisecond)
			undone = true
		})
		cancel()
		if hangs {
			s.leave(10 * time.Millisecond)
			close(goOn)
			if !strings.Contains(said.String(), "has not ended within 10ms: the next start goes on with it") {
				t.Errorf("said %q", said.String())
			}
			continue
		}
		if s.leave(time.Minute); !undone || said.Len() > 0 {
			t.Errorf("undone: %v, said %q", undone, said.String())
		}
	}
}

// What watches is closed once, whatever of it could be opened.
func TestWatchEnds(t *testing.T) {
	s := newService(DaemonConfig{Node: session.Options{Root: t.TempDir(), Say: t.Logf}})
	s.watch()()
}

// programPages returns how much of its program this process has in memory, in KiB.
func programPages(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// A process that gave its program's pages back goes on.
func TestGiveBack(t *testing.T) {
	for i := range 3 {
		before := programPages(t)
		if err := giveBack(); err != nil {
			t.Fatal(err)
		}
		if after := programPages(t); i == 0 && after > before/2+2048 { // later ones have little to give
			t.Errorf("%d KiB of the program before, %d after", before, after)
		}
		if text := fmt.Sprintf("%d %s", 7, strings.ToUpper("works")); text != "7 WORKS" {
			t.Error(text)
		}
	}
}
