// SPDX-License-Identifier: Apache-2.0

// Package hack holds the scripts behind the Makefile; its tests see that the
// checks among them can fail.
package hack

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/test/require"
	"golang.org/x/sys/unix"
)

func script(t *testing.T, env []string, name string, args ...string) (said string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, _ := cmd.CombinedOutput() // the code tells
	return string(out), cmd.ProcessState.ExitCode()
}

func TestErrcheck(t *testing.T) {
	said, code := script(t, nil, "./errcheck", "./packaging/hack/testdata/errors")
	if code != 1 || strings.Count(said, "errors.go:") != 3 || strings.Contains(said, "with a reason") {
		t.Errorf("code %d, want three lines without a reason:\n%s", code, said)
	}
}

func TestVulncheck(t *testing.T) {
	require.Slow(t)
	for _, test := range []struct {
		name, db, pkg string
		code          int
		want          string
	}{
		{"a vulnerability is reached", "file://" + wd(t) + "/testdata/vulndb", "./internal/cli", 1, "GO-2026-0001"},
		{"one that is not reached", "file://" + wd(t) + "/testdata/vulndb", "./internal/paths", 0, "vulncheck: no known vulnerability is reached"},
		{"the database cannot be reached", "http://127.0.0.1:1", "./internal/cli", 0, "vulncheck: NOT CHECKED"},
		{"a package that does not compile", "file://" + wd(t) + "/testdata/vulndb", "./internal/none", 1, "internal/none"},
	} {
		said, code := script(t, []string{"VULNDB=" + test.db}, "./vulncheck", test.pkg)
		if code != test.code || !strings.Contains(said, test.want) {
			t.Errorf("%s: code %d, want %d and %q:\n%s", test.name, code, test.code, test.want, said)
		}
	}
}

// A target that fails ends the run, and one whose package does not compile, too.
func TestFuzz(t *testing.T) {
	require.Slow(t)
	head := "package p\n\nimport \"testing\"\n\n"
	for _, test := range []struct {
		name, text string
		ok         bool
		want       string
	}{
		{"all is well", head + "func FuzzWell(f *testing.F) { f.Fuzz(func(*testing.T, []byte) {}) }\n", true, "fuzz below FuzzWell 1s"},
		{"a finding", head + "func FuzzWell(f *testing.F) { f.Fuzz(func(*testing.T, []byte) {}) }\n" +
			"func FuzzIll(f *testing.F) { f.Fuzz(func(t *testing.T, b []byte) { t.Error(len(b)) }) }\n", false, "--- FAIL: FuzzIll"},
		{"a package that does not compile", head + "func FuzzNone(f *testing.F) { none }\n", false, "undefined: none"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"go.mod": "module example\n\ngo 1.26\n", "below/p_test.go": test.text} {
			name = filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		said, code := script(t, nil, "env", "-C", dir, wd(t)+"/fuzz", "1s")
		if (code == 0) != test.ok || !strings.Contains(said, test.want) {
			t.Errorf("%s: code %d, want %q:\n%s", test.name, code, test.want, said)
		}
	}
}

// The programs of two packages are there at once, however many packages there are: each
// target counts what lies beside its own.
func TestFuzzKeepsTwoPrograms(t *testing.T) {
	require.Slow(t)
	dir := t.TempDir()
	files := map[string]string{"go.mod": "module example\n\ngo 1.26\n"}
	for _, name := range []string{"a", "b", "c", "d"} {
		files[name+"/p_test.go"] = `package p

import (
	"os"
	"path/filepath"
	"testing"
)

` + `func FuzzOne(f *testing.F) {
	programs, err := os.ReadDir(filepath.Dir(os.Args[0]))
	if err != nil || len(programs) > 2 {
		f.Fatal(programs, err)
	}
	f.Fuzz(func(*testing.T, []byte) {})
}

` + "func FuzzTwo(f *testing.F) { FuzzOne(f) }\n"
	}
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if said, code := script(t, nil, "env", "-C", dir, wd(t)+"/fuzz", "1x"); code != 0 || strings.Count(said, "fuzz ") != 8 {
		t.Errorf("code %d:\n%s", code, said)
	}
}

// The disk is the command's alone, its exit code is the command's, and nothing stays. What
// lies below the caller's TMPDIR, a checkout for one, is seen by the command.
func TestScratch(t *testing.T) {
	require.Root(t)
	require.Tool(t, "unshare", "losetup", "mkfs.ext4")
	for _, c := range []struct{ memory, kind string }{{"8388608", "tmpfs"}, {"8388607", "ext4"}} {
		if c.kind == "tmpfs" && !keepsAttributes(t) {
			c.kind = "ext4"
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "checkout"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		said, code := script(t, []string{"TMPDIR=" + dir, "MEMORY_KIB=" + c.memory}, "./scratch", "sh", "-c", `findmnt --noheadings --output FSTYPE,OPTIONS "$TMPDIR" && touch "$TMPDIR/x"; ls "$0" "$TMPDIR"; exit 7`, dir+"/checkout")
		if strings.Contains(said, "stay on their disk") {
			require.Missing(t, "loop", said)
		}
		if code != 7 || !strings.HasPrefix(said, c.kind) || !strings.Contains(said, "/checkout\n") || !strings.Contains(said, ":\nx\n") {
			t.Errorf("%s: code %d:\n%s", c.kind, code, said)
		}
		if strings.Contains(said, "nobarrier") != (c.kind == "ext4") {
			t.Errorf("%s waits for an fsync: %s", c.kind, said)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s: %v and %v are left", c.kind, left, err)
		}
	}
	if said, code := script(t, []string{"TMPDIR=" + t.TempDir() + "/none"}, "./scratch", "sh", "-c", "exit 7"); code != 7 || !strings.Contains(said, "stay on their disk") {
		t.Errorf("without a place for the disk: code %d\n%s", code, said)
	}
}

// keepsAttributes tells whether a tmpfs of this kernel has user.* attributes.
func keepsAttributes(t *testing.T) bool {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("scratch", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	return unix.Setxattr(dir, "user.x", nil, 0) == nil
}

// Who may mount nothing has a directory in memory, of which nothing stays either.
func TestScratchInMemory(t *testing.T) {
	dir, memory := t.TempDir(), t.TempDir()
	as := func(env ...string) (string, int) {
		t.Helper()
		if os.Geteuid() == 0 {
			require.Tool(t, "setpriv")
			for _, d := range []string{memory, filepath.Dir(memory)} {
				if err := os.Chmod(d, 0o777); err != nil {
					t.Fatal(err)
				}
			}
			env = append(env, "TMPDIR="+dir)
			return script(t, env, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", scratchText(t), "./scratch", "sh", "-c", `echo at "$TMPDIR"; touch "$TMPDIR/x"; mkdir -m 500 "$TMPDIR/d"; exit 7`)
		}
		return script(t, append(env, "TMPDIR="+dir), "./scratch", "sh", "-c", `echo at "$TMPDIR"; touch "$TMPDIR/x"; mkdir -m 500 "$TMPDIR/d"; exit 7`)
	}
	if said, code := as("SHM=" + memory); code != 7 || !strings.Contains(said, "at "+memory+"/s.") {
		t.Errorf("code %d:\n%s", code, said)
	}
	if left, err := os.ReadDir(memory); err != nil || len(left) != 0 {
		t.Errorf("%v and %v are left", left, err)
	}
	if said, code := as("SHM=" + memory + "/none"); code != 7 || !strings.Contains(said, "at "+dir+"\n") {
		t.Errorf("without one: code %d\n%s", code, said)
	}
}

// The directory has the same name in the next run, and one that runs meanwhile has another.
func TestScratchHasOneName(t *testing.T) {
	dir := t.TempDir()
	env := []string{"TMPDIR=" + dir, "SHM=" + dir}
	name := func() string {
		t.Helper()
		said, code := script(t, env, "./scratch", "sh", "-c", `echo "$TMPDIR"`)
		if code != 0 || filepath.Dir(strings.TrimSpace(said)) != dir {
			t.Fatalf("code %d: %s", code, said)
		}
		return said
	}
	first := name()
	cmd := exec.CommandContext(t.Context(), "./scratch", "sh", "-c", `echo "$TMPDIR"; read -r line`)
	cmd.Env = append(os.Environ(), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if again, err := bufio.NewReader(out).ReadString('\n'); err != nil || again != first {
		t.Errorf("%q, then %q, %v", first, again, err)
	}
	if beside := name(); beside == first {
		t.Errorf("both are at %s", beside)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // read has met the end
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v and %v are left", left, err)
	}
}

// scratchText is the script, for somebody who cannot read the checkout.
func scratchText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("scratch")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The command gets the signals that its caller sends, and its input.
func TestScratchPassesSignals(t *testing.T) {
	require.Root(t)
	require.Tool(t, "unshare", "losetup", "mkfs.ext4")
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "./scratch", "sh", "-c", `tail -f /dev/null & trap 'kill $!; exit 9' INT TERM; read -r line; echo "$line"; wait`)
		cmd.Env = append(os.Environ(), "TMPDIR="+dir)
		cmd.Stdin = strings.NewReader("ready\n")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		if left, readErr := os.ReadDir(dir); cmd.ProcessState.ExitCode() != 9 || readErr != nil || len(left) > 0 {
			t.Errorf("%v: %v, and %v is left", signal, err, left)
		}
	}
}

func wd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
