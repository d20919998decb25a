// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// overridden names a file that pam_limits reads after d's and that sets the same
// domain, type and item, "" when there is none.
func (i *Item) overridden(d spec.Drift) string {
	mine := strings.Fields(d.To)
	files, _ := filepath.Glob(filepath.Join(i.dir, "*.conf")) // the pattern is valid
	for _, name := range files {
		base := filepath.Base(name)
		if base <= paths.Prefix+d.Key+".conf" || slices.Contains(i.leaving, name) {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil || len(data) > maxFile {
			continue
		}
		for text := range strings.Lines(string(data)) {
			text, _, _ = strings.Cut(text, "#")
			theirs := strings.Fields(text)
			if len(theirs) == 4 && slices.Equal(theirs[:3], mine[:3]) {
				return base
			}
		}
	}
	return ""
}
