// SPDX-License-Identifier: Apache-2.0

package letin

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/rescue"
	"github.com/caisson-os/caisson/internal/paths"
)

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me"

// systemd is the one of a test: it notes what is asked of it.
type systemd struct {
	active []string
	asked  []string
	shell  process.Terminal
	fails  error
}

func (s *systemd) State(_ context.Context, unit string) (string, time.Time, error) {
	if slices.Contains(s.active, unit) {
		return "active", time.Time{}, s.fails
	}
	return "inactive", time.Time{}, s.fails
}

func (s *systemd) Do(_ context.Context, job, unit string) error {
	s.asked = append(s.asked, job+" "+unit)
	return s.fails
}

func (s *systemd) Console(_ context.Context, t process.Terminal) error {
	s.shell = t
	s.active = append(slices.DeleteFunc(s.active, func(u string) bool { return u == t.InPlaceOf }), t.Name+".service")
	return s.fails
}

func newDoors(t *testing.T, consoles string) (Doors, *systemd) {
	s := &systemd{active: []string{sshd, "serial-getty@ttyS0.service"}}
	d := Doors{Root: t.TempDir(), Program: "/usr/lib/caisson/caisson-agent", Systemd: s}
	for name, text := range map[string]string{sshDir + "/00-caisson.conf": "", "/sys/class/tty/console/active": consoles, "/bin/bash": ""} {
		if err := os.MkdirAll(filepath.Dir(d.Root+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.Root+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return d, s
}

func (d Doors) dropIn(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(d.Root + sshDir + "/" + dropIn)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

func TestSSH(t *testing.T) {
	d, s := newDoors(t, "ttyS0\n")
	o := &rescue.Open{SSHKeys: []string{key}, From: time.Minute, Until: 2 * time.Minute}
	for _, up := range []time.Duration{time.Minute, 90 * time.Second} { // the second has nothing to do
		if err := d.Follow(t.Context(), o, up); err != nil {
			t.Fatal(err)
		}
	}
	if text := d.dropIn(t); !strings.Contains(text, "AuthorizedKeysCommand /usr/lib/caisson/caisson-agent rescue-keys %k\n") || !strings.Contains(text, "AuthorizedKeysFile none\n") || strings.Contains(text, "AAAA") {
		t.Errorf("sshd is told %q", text)
	}
	if want := []string{"reload ssh.service"}; !slices.Equal(s.asked, want) {
		t.Errorf("asked for %q", s.asked)
	}
	for _, end := range []*rescue.Open{o, nil} {
		if err := d.Follow(t.Context(), end, 2*time.Minute); err != nil || d.dropIn(t) != "" {
			t.Errorf("%q, %v", d.dropIn(t), err)
		}
	}
	if len(s.asked) != 2 {
		t.Errorf("asked for %q", s.asked)
	}
}

// TestKeysEndByThemselves: where the agent's service is gone, sshd is told of none all the same.
func TestKeysEndByThemselves(t *testing.T) {
	other := strings.Replace(key, "AAIAAB", "AAIAAC", 1)
	o := &rescue.Open{SSHKeys: []string{other, key}, From: time.Minute, Until: 2 * time.Minute}
	offered := strings.Fields(key)[1]
	want := `restrict,pty,command="/a rescue-shell ` + nameOf(key) + `" ` + key + "\n"
	for up, want := range map[time.Duration]string{time.Minute: want, 2*time.Minute - 1: want, 2 * time.Minute: "", time.Hour: "", 0: ""} {
		if got, by := keyLine(o, up, "/a", offered); got != want || (by == nameOf(key)) != (want != "") {
			t.Errorf("at %s sshd is told %q of %q", up, got, by)
		}
	}
	for _, offered := range []string{"", "ssh-ed25519", offered[1:]} {
		if got, by := keyLine(o, time.Minute, "/a", offered); got != "" || by != "" {
			t.Errorf("of %q sshd is told %q, %q", offered, got, by)
		}
	}
	if got, by := keyLine(nil, 0, "/a", offered); got != "" || by != "" {
		t.Error("nobody is let in")
	}
}

// TestALinkIsNotFollowed: what somebody has put where the settings are to be is replaced.
func TestALinkIsNotFollowed(t *testing.T) {
	d, _ := newDoors(t, "ttyS0\n")
	victim := filepath.Join(d.Root, "victim")
	if err := os.Symlink(victim, d.Root+sshDir+"/"+dropIn); err != nil {
		t.Fatal(err)
	}
	if err := d.Follow(t.Context(), &rescue.Open{SSHKeys: []string{key}, Until: time.Minute}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(victim); err == nil || d.dropIn(t) == "" {
		t.Errorf("it was followed: %v, %q", err, d.dropIn(t))
	}
}

func TestConsole(t *testing.T) {
	for consoles, want := range map[string]struct{ tty, getty string }{
		"tty0 ttyS0\n": {"/dev/ttyS0", "serial-getty@ttyS0.service"}, "ttyS0 tty0\n": {"/dev/tty1", "getty@tty1.service"}, "hvc0": {"/dev/hvc0", "serial-getty@hvc0.service"},
	} {
		d, s := newDoors(t, consoles)
		s.active = []string{want.getty}
		o := &rescue.Open{Console: true, Until: time.Minute}
		for range 2 {
			if err := d.Follow(t.Context(), o, 10*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if s.shell.TTY != want.tty || s.shell.InPlaceOf != want.getty || o.Getty != want.getty || s.shell.Limit != 50*time.Second || !slices.Equal(s.shell.Args, []string{d.Program, "rescue-shell", "console"}) {
			t.Errorf("%q: %+v in place of %q", consoles, s.shell, o.Getty)
		}
		if d.dropIn(t) != "" {
			t.Error("sshd is told of a console")
		}
		// At its end, or while a later statement opens something else.
		for name, row := range map[string]struct {
			open *rescue.Open
			up   time.Duration
		}{
			"over": {&rescue.Open{Console: true, Until: time.Minute, Getty: o.Getty}, time.Minute},
			"ssh":  {&rescue.Open{SSHKeys: []string{key}, Until: time.Minute, Getty: o.Getty}, 10 * time.Second},
		} {
			s.asked = nil
			for range 2 { // the second has nothing to do
				if err := d.Follow(t.Context(), row.open, row.up); err != nil {
					t.Fatal(err)
				}
				s.active = nil
			}
			given := slices.DeleteFunc(s.asked, func(job string) bool { return strings.HasSuffix(job, sshd) })
			if !slices.Equal(given, []string{"stop caisson-rescue.service", "start " + want.getty}) || row.open.Getty != "" {
				t.Errorf("%s: %q, %q", name, given, row.open.Getty)
			}
			s.active = []string{shellUnit + ".service"}
		}
	}
}

// TestConsoleStaysShut: without a statement that names it, nothing has the console.
func TestConsoleStaysShut(t *testing.T) {
	d, s := newDoors(t, "ttyS0\n")
	for _, o := range []*rescue.Open{nil, {SSHKeys: []string{key}, Until: time.Minute}} {
		if err := d.Follow(t.Context(), o, 0); err != nil || s.shell.TTY != "" {
			t.Errorf("%+v, %v", s.shell, err)
		}
	}
}

// TestTroubleIsSaid: what cannot be opened is said, and tried again.
func TestTroubleIsSaid(t *testing.T) {
	d, s := newDoors(t, "")
	o := &rescue.Open{SSHKeys: []string{key}, Console: true, Until: time.Minute}
	if err := d.Follow(t.Context(), o, 0); err == nil || !strings.Contains(err.Error(), "the kernel has no console") || d.dropIn(t) == "" {
		t.Errorf("%v", err)
	}
	s.fails = errors.New("systemd is busy")
	if err := d.Follow(t.Context(), o, time.Minute); err == nil {
		t.Error("nothing is said")
	}
	s.fails = nil
	if err := d.Follow(t.Context(), o, time.Minute); err != nil || d.dropIn(t) != "" {
		t.Errorf("%q, %v", d.dropIn(t), err)
	}
	if err := os.RemoveAll(d.Root + sshDir); err != nil {
		t.Fatal(err)
	}
	if err := d.Follow(t.Context(), o, 0); err == nil || !strings.Contains(err.Error(), "ssh: ") {
		t.Errorf("without sshd: %v", err)
	}
}

// TestSession: it ends with what was asked for, or when the time is over.
func TestSession(t *testing.T) {
	t.Setenv("SHELL", "/bin/sh")
	t.Setenv("SSH_ORIGINAL_COMMAND", "exit 3")
	root := t.TempDir()
	lasts := func(left ...time.Duration) func() time.Duration { // at each look
		return func() (now time.Duration) {
			now = left[0]
			left = left[min(1, len(left)-1):]
			return now
		}
	}
	if code, err := runShell(t.Context(), root, onConsole, lasts(time.Minute)); code != 3 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	if _, err := runShell(t.Context(), root, onConsole, lasts(0)); !errors.Is(err, ErrOver) {
		t.Errorf("%v", err)
	}
	t.Setenv("SSH_ORIGINAL_COMMAND", "setsid sleep 600 & sleep 600")
	if code, err := runShell(t.Context(), root, onConsole, lasts(time.Minute, 50*time.Millisecond, 0)); code == 0 || err == nil {
		t.Errorf("%d, %v", code, err)
	}
	if left := below(os.Getpid()); len(left) > 0 {
		t.Errorf("processes %d go on", left)
	}
}

// TestWhatASessionLeavesEnds: what goes on after a session ends with the rescue.
func TestWhatASessionLeavesEnds(t *testing.T) {
	t.Setenv("SHELL", "/bin/sh")
	t.Setenv("SSH_ORIGINAL_COMMAND", "setsid sleep 600 >/dev/null 2>&1 </dev/null & exit 0")
	d, _ := newDoors(t, "ttyS0\n")
	if code, err := runShell(t.Context(), d.Root, onConsole, func() time.Duration { return time.Minute }); code != 0 || err != nil {
		t.Fatalf("%d, %v", code, err)
	}
	if left := below(os.Getpid()); len(left) != 1 {
		t.Fatalf("processes %d go on", left)
	}
	if err := d.Follow(t.Context(), nil, 0); err != nil || len(below(os.Getpid())) > 0 {
		t.Errorf("%v, processes %d go on", err, below(os.Getpid()))
	}
}

// TestConnectionsEnd: with all that is below them, and no others.
func TestConnectionsEnd(t *testing.T) {
	d, _ := newDoors(t, "ttyS0\n")
	start := func() *exec.Cmd {
		c := exec.Command("sh", "-c", "sleep 600 & echo there; sleep 600; sleep 600")
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill() }) // it may have ended
		if _, err := out.Read(make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	in, other := start(), start()
	open := &rescue.Open{SSHKeys: []string{"ssh-rsa AAAA", key}, Until: time.Minute}
	for range 2 { // it asks for the keys again
		if err := note(d.Root, in.Process.Pid, nameOf(key)); err != nil {
			t.Fatal(err)
		}
	}
	number := filepath.Join(d.Root, paths.RunLetIn, strconv.Itoa(other.Process.Pid)+"-1-"+nameOf(key)) // of a process that had it before
	if err := os.WriteFile(number, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Follow(t.Context(), open, 0); err != nil || len(below(in.Process.Pid)) == 0 {
		t.Errorf("while it is open: %v", err)
	}
	open.SSHKeys = open.SSHKeys[:1] // a later statement, which lets another one in
	if err := d.Follow(t.Context(), open, 0); err != nil {
		t.Error(err)
	}
	if err := in.Wait(); err == nil || len(below(other.Process.Pid)) == 0 {
		t.Errorf("it ended with %v; below the other one are %d", err, below(other.Process.Pid))
	}
	if err := note(d.Root, 1, nameOf(key)); err == nil {
		t.Error("process 1 is to end")
	}
	if err := errors.Join(endBelow(other.Process.Pid), other.Process.Kill()); err != nil {
		t.Error(err)
	}
}

// TestAConnectionIsOfItsLastKey: a client offers keys that it cannot sign with before the one that
// lets it in, of which sshd asks last. What ends with one of the former does not end the connection.
func TestAConnectionIsOfItsLastKey(t *testing.T) {
	root := t.TempDir()
	c := exec.Command("sleep", "600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() }) // it may have ended
	for _, by := range []string{"first", "second"} {
		if err := note(root, c.Process.Pid, by); err != nil {
			t.Fatal(err)
		}
	}
	for _, over := range []string{"first", "second"} {
		if _, _, runs := process.Stat(c.Process.Pid); !runs {
			t.Fatalf("it ended before the end of key %s", over)
		}
		if err := hangUp(root, func(by string) bool { return by == over }); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Wait(); err == nil {
		t.Error("it goes on")
	}
}

// TestAnotherStatement: a session ends when a later statement does not name its key, and goes on
// when it does.
func TestAnotherStatement(t *testing.T) {
	other := strings.Replace(key, "me", "you", 1)
	for name, row := range map[string]struct {
		open *rescue.Open
		by   string
		want time.Duration
	}{
		"its key":     {&rescue.Open{SSHKeys: []string{other, key}, Until: time.Minute}, nameOf(key), time.Minute},
		"another key": {&rescue.Open{SSHKeys: []string{other}, Console: true, Until: time.Minute}, nameOf(key), 0},
		"the console": {&rescue.Open{Console: true, Until: time.Minute}, onConsole, time.Minute},
		"no console":  {&rescue.Open{SSHKeys: []string{key}, Until: time.Minute}, onConsole, 0},
		"nothing":     {nil, onConsole, 0},
	} {
		if left := leftOf(row.open, 0, row.by); left != row.want {
			t.Errorf("%s: open for %s", name, left)
		}
	}
}
