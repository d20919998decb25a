// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// serviceText says all in which two overlays may differ of a service.
func serviceText(s spec.Service) string {
	var dirs []string
	for _, d := range s.Directories {
		what := d.From + " at " + d.To
		if d.File {
			what = "file " + what
		}
		dirs = append(dirs, what)
	}
	text := fmt.Sprintf("commit %s of %s: %s", cmp.Or(s.Commit, "unknown"), s.Unit, strings.Join(dirs, ", "))
	for _, more := range [][2]string{{"user", s.User}, {"package", s.Package}, {"then", s.Action}} {
		if more[1] != "" {
			text += ", " + more[0] + " " + more[1]
		}
	}
	if s.Image.Digest != "" {
		text += ", image " + s.Image.Digest
	}
	return text
}
