// SPDX-License-Identifier: Apache-2.0

package powercut

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/durable"
)

// ways are those to replace a file, good ones and bad ones.
var ways = map[string]func(dir string) error{
	"in place": func(dir string) error { return os.WriteFile(dir+"/f", []byte("newer"), 0o600) },
	"no fsync": func(dir string) error {
		return errors.Join(os.WriteFile(dir+"/t", []byte("newer"), 0o600), os.Rename(dir+"/t", dir+"/f"))
	},
	"no fsync of the directory": func(dir string) error {
		f, err := os.Create(dir + "/t")
		if err != nil {
			return err
		}
		_, err = f.WriteString("newer")
		return errors.Join(err, f.Sync(), f.Close(), os.Rename(dir+"/t", dir+"/f"))
	},
	"durable": func(dir string) error { return durable.WriteFile(dir+"/f", []byte("newer"), 0o600) },
	"forms": func(dir string) error { // everything that a recording must understand
		f, err := os.OpenFile(dir+"/g", os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640)
		if err != nil {
			return err
		}
		_, err = f.WriteString("0123456789")
		err = errors.Join(err, f.Truncate(5))
		_, more := f.WriteString("x")
		from, open := os.Open(dir + "/f")
		_, copied := f.ReadFrom(from)
		err = errors.Join(err, more, open, copied, f.Close(), os.Mkdir(dir+"/d", 0o755), os.Link(dir+"/g", dir+"/d/h"),
			os.Symlink("g", dir+"/d/s"), os.Rename(dir+"/d", dir+"/e"), os.Remove(dir+"/g"), os.Chmod(dir+"/e/h", 0o600),
			unix.Renameat2(unix.AT_FDCWD, dir+"/f", unix.AT_FDCWD, dir+"/e/h", unix.RENAME_EXCHANGE), os.Mkdir(dir+"/gone", 0o700), os.RemoveAll(dir+"/gone"))
		w, open := os.OpenFile(dir+"/e/h", os.O_WRONLY, 0)
		_, at := w.WriteAt([]byte("Z"), 2)
		return errors.Join(err, open, at, w.Close())
	},
}

func contents(t *testing.T, way string) (*Recording, []string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := Record(t, dir, "TestCuts", way, dir)
	var got []string
	for _, c := range r.Cuts(1) {
		f, ok := c.Tree["f"]
		if !ok {
			f.Data = []byte("-")
		}
		if text := string(f.Data); !slices.Contains(got, text) {
			got = append(got, text)
		}
	}
	slices.Sort(got)
	return r, got
}

func TestCuts(t *testing.T) {
	if words, is := Recorded(t); is {
		if err := ways[words[0]](words[1]); err != nil {
			t.Fatal(err)
		}
		return
	}
	for way, want := range map[string][]string{
		"in place":                  {"", "\x00\x00\x00\x00\x00", "ne", "newer", "old"},
		"no fsync":                  {"", "\x00\x00\x00\x00\x00", "ne", "newer", "old"},
		"no fsync of the directory": {"newer", "old"},
		"durable":                   {"newer", "old"},
	} {
		t.Run(way, func(t *testing.T) {
			r, got := contents(t, way)
			if !slices.Equal(got, want) {
				t.Errorf("%q of %d calls; want %q", got, r.Calls(), want)
			}
		})
	}
	t.Run("forms", func(t *testing.T) { contents(t, "forms") })
	t.Run("done", func(t *testing.T) {
		for way, want := range map[string]string{"no fsync of the directory": "old", "durable": "newer"} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "f"), []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			r := Record(t, dir, "TestCuts", way, dir)
			if got := r.Least()["f"].Data; string(got) != want {
				t.Errorf("%s: after the last call all that may be lost is, and it has %q; want %q", way, got, want)
			}
		}
	})
}

// What a recording did not understand is found.
func TestACallThatIsNotKnown(t *testing.T) {
	if words, is := Recorded(t); is {
		fd, err := unix.Open(words[0], unix.O_TMPFILE|unix.O_WRONLY, 0o600)
		if err != nil {
			t.Skip(err)
		}
		if err := unix.Linkat(fd, "", unix.AT_FDCWD, words[0]+"/f", unix.AT_EMPTY_PATH); err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := t.TempDir()
	f := &failing{TB: t}
	func() {
		defer func() { _ = recover() }() // Fatalf of failing
		Record(f, dir, "TestACallThatIsNotKnown", dir)
	}()
	if _, err := os.Stat(dir + "/f"); err == nil && !f.failed {
		t.Error("a file came from nowhere, and nobody noticed")
	}
}

type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Fatalf(string, ...any) {
	f.failed = true
	panic("failed")
}
