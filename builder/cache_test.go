// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

func TestCacheIsOurs(t *testing.T) {
	require.Root(t)
	for _, c := range []struct {
		name string
		make func(dir string) error
		want string // part of the error; "" for a cache of mode 0700
	}{
		{"none yet", func(string) error { return nil }, ""},
		{"readable by all", func(dir string) error { return os.Mkdir(dir, 0o755) }, ""},
		{"used by services, a search and a trial before", func(dir string) error {
			for _, name := range []string{"bisect", "git", "service", "try"} {
				if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
					return err
				}
			}
			return nil
		}, ""},
		{"a directory of other things", func(dir string) error {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "x"), nil, 0o644)
		}, "is not a cache"},
		{"writable by all", func(dir string) error { return os.Mkdir(dir, 0o777) }, "others can write"},
		{"of another user", func(dir string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			return os.Chown(dir, 12345, 12345)
		}, "belongs to UID 12345"},
		{"a link", func(dir string) error { return os.Symlink(t.TempDir(), dir) }, "not a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			if err := c.make(dir); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(dir); err == nil && info.Mode().Perm() != 0o700 { // whatever the umask
				if err := os.Chmod(dir, map[bool]os.FileMode{true: 0o777, false: 0o755}[c.name == "writable by all"]); err != nil {
					t.Fatal(err)
				}
			}
			b := &build{options: Options{CacheDir: dir}}
			release, err := b.open(t.Context())
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got %v, want an error with %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			release()
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("the cache has mode %v, %v", info.Mode(), err)
			}
		})
	}
}

// Two builds that use one cache go one after the other, and the second says why it waits.
func TestCacheIsWaitedFor(t *testing.T) {
	dir, said := t.TempDir(), make(chan Event, 10)
	open := func(ctx context.Context) (release func(), err error) {
		b := &build{options: Options{CacheDir: dir, Progress: func(e Event) { said <- e }}}
		return b.open(ctx)
	}
	first, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	released := false
	go func() {
		if e := <-said; e.State == "note" && strings.Contains(e.Text, "another build is using it") {
			released = true
			first()
		}
	}()
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	second, err := open(ctx)
	if err != nil || !released {
		t.Fatal("the second build has the cache: ", released, err)
	}
	defer second()

	ended, stop := context.WithCancel(t.Context())
	stop()
	if _, err := open(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a build that is interrupted while it waits: %v", err)
	}
	defer func(was time.Duration) { cacheWait = was }(cacheWait)
	cacheWait = time.Millisecond
	var hint interface{ Hint() string }
	if _, err := open(t.Context()); !errors.As(err, &hint) || !strings.Contains(err.Error(), "another build has been using it for 1ms") {
		t.Errorf("a build that never ends: %v", err)
	}
}

// Whatever is damaged in the cache is made or fetched again, with a word, and the
// layer is the same.
func TestDamagedCache(t *testing.T) {
	o := testOptions(t)
	recipe := testRecipe()
	recipe.Packages.Install = append(recipe.Packages.Install, spec.Package{Name: "lsof"})
	run := func() (*Result, []string) {
		t.Helper()
		var notes []string
		o.Progress = func(e Event) {
			if e.State == "note" {
				notes = append(notes, e.Step+": "+e.Text)
			}
		}
		ledger, err := Settle([]spec.Recipe{recipe}, nil)
		if err != nil {
			t.Fatal(err)
		}
		o.Ledger = ledger
		r, err := Build(t.Context(), recipe, "default", "1", o)
		if err != nil {
			t.Fatal(err)
		}
		return r, notes
	}
	good, _ := run()
	o.Lock = &good.Lock
	stepOf := func(title string) string {
		i := slices.IndexFunc(good.Blobs, func(b Blob) bool { return b.Title == title })
		return filepath.Dir(good.Blobs[i].Path)
	}
	again := func(dirs ...string) {
		t.Helper()
		for _, dir := range dirs {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name   string
		damage func() error
		note   string
	}{
		{"nothing", func() error { return nil }, ""},
		{"a file of a tree that another step stands on", func() error {
			again(stepOf("accounts"))
			return os.Truncate(filepath.Join(stepOf("packages"), "tree/usr/bin/tree"), 0)
		}, "packages: the cached step is made again: a file of its tree is damaged"},
		{"an image", func() error { return os.Truncate(filepath.Join(stepOf("accounts"), "image.squashfs"), 100) }, "accounts: the cached step is made again: its accounts is damaged"},
		{"a description", func() error { return os.WriteFile(filepath.Join(stepOf("accounts"), madeName), []byte("{"), 0o600) }, "its description is damaged"},
		{"package files", func() error {
			again(stepOf("accounts"), stepOf("packages"))
			for i, d := range good.Lock.Packages {
				name := filepath.Join(o.CacheDir, "debs", d.SHA256+[]string{".deb", ".control"}[i%2])
				if err := os.Truncate(name, 77); err != nil {
					return err
				}
			}
			return nil
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.damage(); err != nil {
				t.Fatal(err)
			}
			r, notes := run()
			if got, want := r.Layer, good.Layer; !slices.EqualFunc(got.Images, want.Images, func(a, b spec.Image) bool { return a.Digest == b.Digest }) {
				t.Errorf("another layer:\n%+v\n%+v", got.Images, want.Images)
			}
			if c.note != "" && !strings.Contains(strings.Join(notes, "\n"), c.note) {
				t.Errorf("said %q, want %q", notes, c.note)
			}
		})
	}
}
