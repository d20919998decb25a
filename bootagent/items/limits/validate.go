// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

var (
	types = []string{"hard", "soft", "-"}
	items = []string{"as", "chroot", "core", "cpu", "data", "fsize", "locks", "maxlogins", "maxsyslogins", "memlock",
		"msgqueue", "nice", "nofile", "nonewprivs", "nproc", "priority", "rss", "rtprio", "sigpending", "stack"}

	// One word of the file: pam_limits splits at blanks and cuts at "#".
	word   = regexp.MustCompile(`^[^\s#"\x00-\x1f]+$`)
	fileID = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$`)
)

func validate(l spec.Limit) error {
	switch {
	case !fileID.MatchString(l.ID):
		return errors.New("the id is not usable as a file name: letters, digits, dot, dash and underscore only")
	case !word.MatchString(l.Domain):
		return fmt.Errorf("the domain %q is not one word", l.Domain)
	case !slices.Contains(types, l.Type):
		return fmt.Errorf("the type %q is not hard, soft or -", l.Type)
	case !slices.Contains(items, l.Item):
		return fmt.Errorf("limits.conf(5) has no item %q", l.Item)
	case l.Item == "chroot":
		if !word.MatchString(l.Value) || !filepath.IsAbs(l.Value) {
			return fmt.Errorf("the value %q is not an absolute path", l.Value)
		}
		return nil
	case l.Value == "unlimited" || l.Value == "infinity":
		return nil
	}
	n, err := strconv.ParseInt(l.Value, 10, 64)
	if err != nil || strings.HasPrefix(l.Value, "+") || n < 0 && n != -1 && l.Item != "nice" && l.Item != "priority" {
		return fmt.Errorf("the value %q is not a number, unlimited, infinity or -1", l.Value)
	}
	return nil
}

// overridden names a file that pam_limits reads after d's and that sets the same
// domain, type and item, "" when there is none.
func (i *Item) overridden(d spec.Drift) string {
	mine := strings.Fields(d.To)
	files, _ := filepath.Glob(filepath.Join(i.dir, "*.conf")) // the pattern is valid
	for _, name := range files {
		base := filepath.Base(name)
		if base <= paths.Prefix+d.Key+".conf" {
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
