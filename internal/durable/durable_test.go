// SPDX-License-Identifier: Apache-2.0

package durable

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/test/powercut"
)

func TestWriteReplacesOrLeaves(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	if err := WriteFile(name, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	cut := errors.New("cut")
	err := Write(name, 0o600, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half") // what counts is what is there after the error
		return cut
	})
	if err != cut {
		t.Fatalf("Write returned %v, want the cause itself", err)
	}
	got, err := os.ReadFile(name)
	if err != nil || string(got) != "old" {
		t.Fatalf("after a failed write: %q, %v; want the old content", got, err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Fatalf("mode %v, %v; want 0640", info.Mode(), err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Fatalf("%d entries left, %v; want only the file", len(left), err)
	}
}

func TestRemoveMissing(t *testing.T) {
	if err := Remove(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Fatal(err)
	}
}

// A file is as lasting as the names of the directories above it.
func TestMkdirAllLasts(t *testing.T) {
	if words, is := powercut.Recorded(t); is {
		if err := errors.Join(MkdirAll(words[0], 0o700), WriteFile(words[0]+"/f", []byte("x"), 0o600), MkdirAll(words[0], 0o700)); err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := t.TempDir()
	r := powercut.Record(t, dir, "TestMkdirAllLasts", dir+"/a/b")
	if got := r.Least()["a/b/f"].Data; string(got) != "x" {
		t.Errorf("after a power cut the file has %q", got)
	}
}

// A pipe stands for the device that root would otherwise lose.
func TestADeviceIsNotReplaced(t *testing.T) {
	name := filepath.Join(t.TempDir(), "null")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(name, []byte("x"), 0o644); err == nil || !strings.Contains(err.Error(), "not a file that could be replaced") {
		t.Errorf("%v", err)
	}
	if info, err := os.Lstat(name); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Errorf("%v, %v", info, err)
	}
}
