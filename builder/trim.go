// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"os"
	"path/filepath"
	"time"
)

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
