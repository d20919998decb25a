// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
)

func voice(to io.Writer) Voice {
	return Voice{To: to, Say: func(format string, args ...any) { cli.Sayf(to, "caisson", format, args...) }}
}

// Off a terminal a long step says what it is doing each half minute, and nothing
// is said between steps.
func TestProgressOffATerminal(t *testing.T) { synctest.Test(t, offATerminal) }

func offATerminal(t *testing.T) {
	var said bytes.Buffer
	p := Begin(voice(&said))
	p.stop() // the test is the clock, and no time passes beside it
	start := time.Now()
	lines := func() int { return strings.Count(said.String(), "\n") }
	for _, c := range []struct {
		event builder.Event
		after time.Duration
		want  int // lines by then
	}{
		{builder.Event{Variant: "default", Step: "base", State: "start"}, time.Second, 0},
		{builder.Event{Variant: "default", Step: "base", State: "install", N: 3, Of: 9, Text: "libc6"}, 30 * time.Second, 1},
		{builder.Event{Variant: "default", Step: "base", State: "compress"}, 59 * time.Second, 1},
		{builder.Event{Variant: "default", Step: "base", State: "compress", Bytes: 30e6, OfBytes: 90e6}, 60 * time.Second, 2},
		{builder.Event{Variant: "default", Step: "base", State: "compress", Bytes: 90e6, OfBytes: 90e6, Text: "all read, 31.0 MB written"}, 90 * time.Second, 3},
		{builder.Event{Variant: "default", Step: "base", State: "done", Bytes: 1e6}, 100 * time.Second, 4},
		{builder.Event{Variant: "default", Step: "layer", State: "push", Bytes: 8e6, OfBytes: 16e6, Text: "base"}, 130 * time.Second, 5},
		{builder.Event{Variant: "full", Step: "packages", State: "start"}, 131 * time.Second, 5},
		{builder.Event{Variant: "full", Step: "resolve", State: "fetch", N: 2, Of: 3, Text: "libc6"}, 160 * time.Second, 6},
		{builder.Event{Variant: "full", Step: "resolve", State: "fetch", N: 3, Of: 3, Text: "libx1"}, 190 * time.Second, 7},
		{builder.Event{Variant: "full", Step: "packages", State: "install", N: 1, Of: 460, Text: "libx1"}, 220 * time.Second, 8},
	} {
		p.Event(c.event)
		p.still(start.Add(c.after))
		if lines() != c.want {
			t.Errorf("after %v and %s: %d lines, want %d:\n%s", c.after, c.event.State, lines(), c.want, &said)
		}
	}
	want := `caisson: default base: install 3 of 9 libc6, 60 s left
caisson: default base: compress 30.0 of 90.0 MB, 0.5 MB/s, 120 s left
caisson: default base: compress 90.0 of 90.0 MB, 1.0 MB/s all read, 31.0 MB written (90 s)
caisson: default base: done 1.0 MB in 0.0 s
caisson: default layer: push 8.0 of 16.0 MB, 0.1 MB/s base, 130 s left
caisson: full resolve: fetch 2 of 3 libc6, 80 s left
caisson: full packages: start (190 s)
caisson: full packages: install 1 of 460 libx1 (220 s)
`
	if got := said.String(); got != want {
		t.Errorf("said %s", got)
	}
	p.Close()
}

// On a terminal a bar has amount, rate and time left; no line is wider than the
// terminal, and what is said for good stands above it.
func TestProgressOnATerminal(t *testing.T) {
	master, slave := terminal(t, 80)
	seen := watch(master)
	p := Begin(voice(slave))
	for _, step := range []struct {
		event builder.Event
		shows []string
	}{
		{builder.Event{Variant: "default", Step: "base", State: "start"}, []string{"default base: start"}},
		{builder.Event{Variant: "default", Step: "packages", State: "fetch", Bytes: 5e6, OfBytes: 20e6, Text: strings.Repeat("ä", 200)}, []string{"default packages: fetch"}},
		{builder.Event{Variant: "default", Step: "packages", State: "install", N: 3, Of: 9, Text: "libc6"}, []string{"3 of 9"}},
		{builder.Event{Variant: "default", Step: "packages", State: "done", Bytes: 1e6, Seconds: 2}, []string{"caisson: default packages: done 1.0 MB in 2.0 s"}},
		{builder.Event{Variant: "default", Step: "layer", State: "push", Bytes: 4e6, OfBytes: 16e6, Text: "base"}, []string{"4.0 MB of 16.0 MB", "MB/s"}},
	} {
		p.Event(step.event)
		for _, want := range step.shows {
			if !seen.until(want) {
				t.Errorf("no %q in %q", want, seen.String())
			}
		}
	}
	p.Close()
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	<-seen.over
	text := seen.String()
	for line := range strings.SplitSeq(text, "\n") {
		line = plain.WithoutSequences(strings.ReplaceAll(line, "\r", ""))
		if n := utf8.RuneCountInString(line); n > 80 || !utf8.ValidString(line) {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

// terminal returns both ends of a pseudo terminal of some width.
func terminal(t *testing.T, width uint16) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudo terminals: ", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: width})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TERM", "xterm")
	return master, slave
}

// screen is what was written to a terminal so far.
type screen struct {
	lock sync.Mutex
	text bytes.Buffer
	over chan struct{} // closed when the other end is
}

// watch reads what is written to a terminal until it is closed.
func watch(master *os.File) *screen {
	s := &screen{over: make(chan struct{})}
	go func() {
		defer close(s.over)
		for buf := make([]byte, 1<<12); ; {
			n, err := master.Read(buf)
			s.lock.Lock()
			s.text.Write(buf[:n])
			s.lock.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *screen) String() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.text.String()
}

// until waits for a text and reports whether it came.
func (s *screen) until(want string) bool {
	for range 12000 {
		if strings.Contains(s.String(), want) {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}
