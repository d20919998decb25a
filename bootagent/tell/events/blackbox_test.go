// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
	"github.com/caisson-os/caisson/test/require"
)

func event(n int) spec.Event {
	return spec.Event{Time: time.Unix(int64(n), 0).UTC(), Boot: "b", Event: spec.EventEntered, Generation: uint64(n), Why: strings.Repeat("w", n%300), Console: []string{"one", "two"}}
}

func events(t *testing.T, b Box) []spec.Event {
	t.Helper()
	all, err := b.Events()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The newest events are there, in their order, and the file does not grow.
func TestTheRingIsBounded(t *testing.T) {
	b := BoxAt(filepath.Join(t.TempDir(), BoxName))
	if all := events(t, b); len(all) != 0 {
		t.Errorf("%d events before the first", len(all))
	}
	const many = 3*slots + 7
	var want []spec.Event
	for n := range many {
		if err := b.Add(event(n)); err != nil {
			t.Fatal(err)
		}
		if want = append(want, event(n)); len(want) > slots {
			want = want[1:]
		}
		if n%29 == 0 || n == many-1 {
			if diff := cmp.Diff(want, events(t, b)); diff != "" {
				t.Fatalf("after %d: %s", n, diff)
			}
		}
	}
	if info, err := os.Stat(b.file); err != nil || info.Size() != size || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestTheLastNumber: the disk may have been in other hands. Whatever number an event has there, what is noted
// from then on is read.
func TestTheLastNumber(t *testing.T) {
	for _, seq := range []uint64{math.MaxUint64, math.MaxUint64 - 1, math.MaxUint64 - 3} {
		b := BoxAt(filepath.Join(t.TempDir(), BoxName))
		data := make([]byte, size)
		planted, err := encode(noted{seq, event(0)})
		if err != nil {
			t.Fatal(err)
		}
		copy(data[seq%slots*slot:], planted)
		if err := os.WriteFile(b.file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		for n := range 5 {
			if err := b.Add(event(n + 1)); err != nil {
				t.Fatal(err)
			}
			all := events(t, b)
			if len(all) == 0 || all[len(all)-1].Generation != uint64(n+1) {
				t.Errorf("after number %d, event %d is not the last of %d", seq, n+1, len(all))
			}
		}
	}
}

// What is too long is shortened, so that something of every event is there; the last of
// the console stays.
func TestALongEventIsShortened(t *testing.T) {
	b := BoxAt(filepath.Join(t.TempDir(), BoxName))
	e := event(1)
	e.Why, e.Console = strings.Repeat("\x01é", 5000), nil
	for n := range 500 {
		e.Console = append(e.Console, fmt.Sprint("line ", n, strings.Repeat(".", 100)))
	}
	if err := b.Add(e); err != nil {
		t.Fatal(err)
	}
	got := events(t, b)
	if len(got) != 1 || got[0].Generation != 1 || !strings.HasPrefix(got[0].Why, "\x01é") || !strings.HasPrefix(got[0].Console[len(got[0].Console)-1], "line 499.") {
		t.Errorf("%+v", got)
	}
	e = spec.Event{Event: "e", Console: make([]string, 20)}
	for i := range e.Console {
		e.Console[i] = strings.Repeat("c", maxLine)
	}
	if err := b.Add(e); err != nil {
		t.Fatal(err)
	}
	if got := events(t, b)[1]; len(got.Console) < 15 {
		t.Errorf("%d lines of the console fit", len(got.Console))
	}
}

// The power goes while an event is written. Of what was not synced any sector may be on
// the disk, and any may not: all other events are there, the new one whole or not at
// all, and the next one follows. The model: a sector is written whole or not, and only
// between two calls of fsync(2) in any order.
func TestACutCostsOneSlot(t *testing.T) {
	require.Slow(t)
	const sector, cuts = 512, 16
	r := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	b := BoxAt(filepath.Join(dir, BoxName))
	add := func(n int) []byte {
		t.Helper()
		if err := b.Add(event(n)); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(b.file)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	before := add(0)
	for n := 1; n < 2*slots; n++ {
		was := events(t, b)
		after := add(n)
		is := events(t, b)
		for range cuts {
			torn := bytes.Clone(before)
			for at := 0; at < size; at += sector {
				if r.IntN(2) == 0 {
					copy(torn[at:at+sector], after[at:at+sector])
				}
			}
			held := parse(torn)
			var got []spec.Event
			for _, h := range held {
				got = append(got, h.Event)
			}
			// Either all of the new one, or none; the oldest one may be gone.
			lost := was
			if len(was) == slots {
				lost = was[1:]
			}
			if !cmp.Equal(got, was) && !cmp.Equal(got, lost) && !cmp.Equal(got, is) {
				t.Fatalf("a cut at event %d leaves %d events", n, len(got))
			}
			if n%16 == 0 {
				if err := os.WriteFile(b.file+"2", torn, 0o600); err != nil {
					t.Fatal(err)
				}
				again := BoxAt(b.file + "2")
				if err := again.Add(event(1000)); err != nil {
					t.Fatal(err)
				}
				if all := events(t, again); !cmp.Equal(all[len(all)-1], event(1000)) || len(all) < len(was)-1 {
					t.Fatalf("after a cut at event %d the next one is not the newest", n)
				}
			}
		}
		before = after
	}
	// A file system that lost its end, or a copy that was cut.
	for range 500 {
		n := r.IntN(size)
		for i, h := range parse(before[:n]) {
			if i > 0 && h.Event.Generation == 0 {
				t.Fatalf("cut at byte %d: %+v", n, h)
			}
		}
	}
}

// Who stands still while it notes does not keep others from going on: what they would
// note is not noted, and that is said.
func TestALockThatIsKept(t *testing.T) {
	b := BoxAt(filepath.Join(t.TempDir(), BoxName))
	if err := b.Add(event(1)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(b.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	b.patience = time.Millisecond
	if err := b.Add(event(2)); err == nil || !strings.Contains(err.Error(), "note entered in the black box: another process has held it for 1ms") {
		t.Errorf("error %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Add(event(3)); err != nil {
		t.Error(err)
	}
	if all := events(t, b); len(all) != 2 || all[1].Generation != 3 {
		t.Errorf("%+v", all)
	}
}

// Of several who note the first event none loses another's, also while the state is opened by
// who has the node's lock.
func TestTheFirstEventsOfSeveral(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		b := BoxAt(filepath.Join(dir, BoxName))
		var all sync.WaitGroup
		for n := range 6 {
			all.Go(func() {
				if err := b.Add(event(n)); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if _, err := state.Open(dir); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if noted := events(t, b); len(noted) != 6 {
			t.Fatalf("%d of 6 events", len(noted))
		}
	}
}

// A box whose making was cut is made whole.
func TestABoxThatIsNotWhole(t *testing.T) {
	b := BoxAt(filepath.Join(t.TempDir(), BoxName))
	for _, had := range []int{0, slot + 7} {
		if err := os.WriteFile(b.file, make([]byte, had), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.Add(event(1)); err != nil || len(events(t, b)) != 1 {
			t.Errorf("%d bytes: %v, %d events", had, err, len(events(t, b)))
		}
		if info, err := os.Stat(b.file); err != nil || info.Size() != size {
			t.Errorf("%v, %v", info, err)
		}
	}
}

// What somebody put in its place is not opened.
func TestALinkIsNoBox(t *testing.T) {
	dir := t.TempDir()
	b := BoxAt(filepath.Join(dir, BoxName))
	if err := os.Symlink("/etc/hostname", b.file); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Events(); err == nil {
		t.Error("a link was read")
	}
	if err := b.Add(event(1)); err == nil {
		t.Error("a link was written to")
	}
}

// Whatever is in the file: what is read is in order, bounded, and says the same when it
// is written again.
func FuzzParse(f *testing.F) {
	whole, err := encode(noted{3, event(3)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(append(make([]byte, 3*slot), whole...))
	f.Fuzz(func(t *testing.T, data []byte) {
		found := parse(data)
		if len(found) > slots {
			t.Fatalf("%d records", len(found))
		}
		for i, r := range found {
			if i > 0 && found[i-1].Seq >= r.Seq {
				t.Errorf("%d is before %d", found[i-1].Seq, r.Seq)
			}
			text, err := encode(r)
			if err != nil {
				continue // it could not have been shortened enough
			}
			if again, ok := decode(text); !ok || again.Seq != r.Seq {
				t.Errorf("%+v was read again as %+v", r, again)
			}
		}
	})
}

// TestGolden: a slot that a release filled is read by the next one.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/slot", Page: "../../../docs/formats/node-files.md", New: new(noted),
		Write: func(v any) ([]byte, error) { return encode(*v.(*noted)) },
		Read: func(data []byte) (any, error) {
			r, ok := decode(data)
			if !ok {
				return nil, errors.New("the slot is damaged")
			}
			return &r, nil
		},
		Types: []reflect.Type{reflect.TypeFor[noted](), reflect.TypeFor[spec.Event]()},
		Later: func(file, key []byte) []byte {
			line, _, _ := bytes.Cut(file, []byte("\n"))
			_, body, _ := bytes.Cut(line, []byte(" "))
			body = golden.AddKey(body, key)
			return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(body, castagnoli), body)
		}})
}
