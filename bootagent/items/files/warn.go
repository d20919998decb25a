// SPDX-License-Identifier: Apache-2.0

package files

import (
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// warn says which limits have no effect: pam_limits reads a file after theirs that sets the
// same domain, type and item.
func (i *Limits) warn(limits []spec.Drift) {
	sets := map[[3]string][]string{}                          // by what is set, the files that do, in the order that they are read
	files, _ := filepath.Glob(filepath.Join(i.dir, "*.conf")) // the pattern is valid
	for _, path := range files {
		if slices.Contains(i.leaving, path) {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil || len(data) > maxFile {
			continue
		}
		for text := range strings.Lines(string(data)) {
			text, _, _ = strings.Cut(text, "#")
			if words := strings.Fields(text); len(words) == 4 {
				what := [3]string(words)
				sets[what] = append(sets[what], filepath.Base(path))
			}
		}
	}
	for _, d := range limits {
		readers := sets[[3]string(strings.Fields(d.To))]
		if n := sort.Search(len(readers), func(n int) bool { return readers[n] > limitFile(d.Key) }); n < len(readers) {
			i.log("limit %q has no effect: %s is read later and sets the same", d.Key, readers[n])
		}
	}
}
