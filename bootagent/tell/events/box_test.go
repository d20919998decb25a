// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// What is tried and fails again and again is noted once a boot; of a refusal, once a code.
func TestWhatComesAgainIsNotedOnceABoot(t *testing.T) {
	box := BoxAt(filepath.Join(t.TempDir(), BoxName))
	g := state.Generation{Generation: 3, Epoch: 1, Overlay: "sha256:a", Layer: "sha256:b"}
	for _, c := range []struct {
		boot string
		e    spec.Event
		want int
	}{
		{"one", spec.Event{Event: spec.EventTakenBack, Why: "no room"}, 1},
		{"one", spec.Event{Event: spec.EventTakenBack, Why: "no room"}, 1},
		{"one", spec.Event{Event: spec.EventTakenBack, Why: "no such file"}, 2},
		{"two", spec.Event{Event: spec.EventTakenBack, Why: "no room"}, 3},
		{"two", spec.Event{Event: spec.EventRefused, Code: "replay", Why: "at noon"}, 4},
		{"two", spec.Event{Event: spec.EventRefused, Code: "replay", Why: "a minute later"}, 4},
		{"two", spec.Event{Event: spec.EventRefused, Code: "expired", Why: "a minute later"}, 5},
	} {
		if err := Note(box, c.boot, g, c.e); err != nil {
			t.Fatal(err)
		}
		events, err := box.Events()
		if err != nil || len(events) != c.want {
			t.Fatalf("%d events, %v after %+v; want %d", len(events), err, c, c.want)
		}
		if e := events[0]; e.Generation != 3 || e.Epoch != 1 || e.Overlay != g.Overlay || e.Layer != g.Layer || e.Boot != "one" || e.Time.IsZero() {
			t.Errorf("%+v", e)
		}
	}
}

// The deadline of a new generation is noted without the node's lock: the agent may be
// what hangs.
func TestADeadlineIsInTheBlackBox(t *testing.T) {
	root := t.TempDir()
	folder, err := state.Open(root + paths.State)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(root+paths.Run, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := record.SaveBoot(root+paths.RunBoot, &record.Boot{RootID: "root", Generation: state.Generation{Generation: 2, Overlay: "sha256:a"}}); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(root + paths.RunLock)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // the test is over
	if err := Deadline(root, "boot", "it did not prove itself in time"); err != nil {
		t.Fatal(err)
	}
	events, err := BoxAt(folder.Path(BoxName)).Events()
	if err != nil || len(events) != 1 || events[0].Event != spec.EventDeadline || events[0].Generation != 2 || events[0].Boot != "boot" || events[0].Why != "it did not prove itself in time" {
		t.Errorf("%+v, %v", events, err)
	}
}

// A record is an entry of systemd's journal with its fields, who did it among them.
func TestRecordsAreJournalEntries(t *testing.T) {
	root := shortDir(t)
	socket := root + journalSocket
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // the test is over
	l := Log{Root: root, By: "ann/sync", Say: t.Logf}
	l.Changes([]spec.Drift{{Item: "sysctl", Key: "vm/swappiness", From: "60", To: "10", Action: spec.ActionChange, Rival: "sysctl (pid 7)"}}, 3, "drift")
	l.Record("test", Field{"why", "two\nlines"})
	for _, want := range []string{
		"MESSAGE=change by=ann/sync item=sysctl key=vm.swappiness from=60 to=10 action=change generation=3 why=drift rival=\"sysctl (pid 7)\" PRIORITY=6 SYSLOG_IDENTIFIER=caisson-agent " +
			"CAISSON_EVENT=change CAISSON_BY=ann/sync CAISSON_ITEM=sysctl CAISSON_KEY=vm.swappiness CAISSON_FROM=60 CAISSON_TO=10 CAISSON_ACTION=change CAISSON_GENERATION=3 CAISSON_WHY=drift CAISSON_RIVAL=sysctl (pid 7) ",
		"MESSAGE=test by=ann/sync why=\"two\\nlines\" PRIORITY=6 SYSLOG_IDENTIFIER=caisson-agent CAISSON_EVENT=test CAISSON_BY=ann/sync CAISSON_WHY \x09\x00\x00\x00\x00\x00\x00\x00two lines ",
	} {
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		entry := make([]byte, 1<<16)
		size, err := conn.Read(entry)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(bytes.ReplaceAll(entry[:size], []byte("\n"), []byte(" "))); got != want {
			t.Errorf("entry\n%q, want\n%q", got, want)
		}
	}
}

// Where no journal takes it, a record is a line of NAME=value, quoted where that is needed.
func TestRecordsAreLines(t *testing.T) {
	var said []string
	l := Log{Root: t.TempDir(), By: "ann/operation run", Say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
	l.Record("operation", Field{"operation", "disks/trim"}, Field{"what", ""}, Field{"why", `a "b"`}, Field{"count", 2})
	const want = `operation by="ann/operation run" operation=disks/trim what="" why="a \"b\"" count=2`
	if len(said) != 1 || said[0] != want {
		t.Errorf("%q, want %q", said, want)
	}
}

func TestFieldsAreQuoted(t *testing.T) {
	for in, want := range map[string]string{"a": "a", "": `""`, "a b": `"a b"`, "a=b": `"a=b"`, "a\nb": `"a\nb"`, "\x1b[2J": `"\x1b[2J"`, `"`: `"\""`, "ä": "ä"} {
		if got := quote(in); got != want {
			t.Errorf("quote(%q) = %s, want %s", in, got, want)
		}
	}
}

// shortDir is a directory by a name that a socket's address has room for.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "j")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) // the test is over
	return dir
}
