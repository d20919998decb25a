// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/sense/watch"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Every kind has its row in the table of what tells of it, but for the kinds that
// nothing could tell of.
func TestEveryKindIsWatched(t *testing.T) {
	for _, i := range items.Table(spec.Items{}, items.Options{}) {
		if silent := slices.Contains([]string{"exec", "accounts", "secrets"}, i.Name()); silent != (watch.Sources(i.Name()) == nil) {
			t.Errorf("%s: hints from %v", i.Name(), watch.Sources(i.Name()))
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
			s := newService(Config{Node: session.Options{Root: t.TempDir()}})
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
