// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/internal/durable"
)

// keepDebs copies the package files of this build to the directory that the user
// keeps: mirrors forget old versions.
func (b *build) keepDebs(ctx context.Context) error {
	if b.options.Debs == "" {
		return nil
	}
	if err := os.MkdirAll(b.options.Debs, 0o755); err != nil {
		return err
	}
	for i, list := range [][]apt.Deb{b.chosen.Base, append(slices.Clone(b.chosen.Packages), b.chosen.Tools...)} {
		for _, d := range list {
			to := filepath.Join(b.options.Debs, d.FileName())
			if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if _, err := os.Stat(b.store.Path(d)); err != nil { // its step came from the cache
				if err := b.fetch(ctx, func() *apt.State { return []*apt.State{b.baseApt, b.apt}[i] }, []apt.Deb{d}); err != nil {
					return err
				}
			}
			if err := copyFile(b.store.Path(d), to); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	return durable.Write(to, 0o644, func(w io.Writer) error {
		_, err := io.Copy(w, f)
		return err
	})
}

// keepUnused is how long the cache keeps what no build asked for.
const keepUnused = 30 * 24 * time.Hour

// use marks a file of the cache as used now.
func use(name string) {
	now := time.Now()
	os.Chtimes(name, now, now) // a cache that forgets too early is only slow
}

// trim removes what no build has used for a while: steps, package files, lists,
// flattened images. It runs after a build, while the cache is still locked.
func (b *build) trim(before time.Time) error {
	for _, l := range [][]string{{"steps/*", "made.json"}, {"debs/*", ""}, {"resolved/*", ""}, {"bases/*", ""}, {"apt/*", "updated"}} {
		found, err := filepath.Glob(filepath.Join(b.options.CacheDir, l[0]))
		if err != nil {
			return err
		}
		for _, name := range found {
			info, err := os.Stat(filepath.Join(name, l[1]))
			if err != nil || !info.ModTime().Before(before) {
				continue
			}
			if err := os.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	return nil
}
