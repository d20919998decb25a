// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-os/caisson/internal/durable"
)

// Retire takes away what Divingbell left to be set at every boot: its files in
// sysctl.d and limits.d, its units for mounts and features. Copies lie beside the
// records, which get the name that is returned. A host that loses power in between
// does it again: the records go last.
func (f *Found) Retire() (kept string, err error) {
	for _, name := range f.Settings() {
		if err := f.remove(name); err != nil {
			return "", fmt.Errorf("take away what Divingbell left: %w", err)
		}
	}
	for n := 1; ; n++ {
		kept = Records + ".taken-over"
		if n > 1 {
			kept += fmt.Sprint("-", n)
		}
		if _, err := os.Lstat(f.path(kept)); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return kept, durable.Rename(f.path(Records), f.path(kept))
}

// literal makes a name a pattern for itself alone: units have backslashes.
var literal = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// Settings are the files that Retire takes away.
func (f *Found) Settings() []string {
	var names []string
	for _, pattern := range []string{"/etc/sysctl.d/60-divingbell-*.conf", "/etc/security/limits.d/60-divingbell-*.conf"} {
		found, _ := filepath.Glob(f.path(pattern)) // the pattern is valid
		names = append(names, found...)
	}
	for _, kind := range []string{"mounts", "ethtool"} {
		units, err := os.ReadDir(f.path(Records, kind))
		if err != nil {
			continue // it had none
		}
		for _, unit := range units {
			wanted, _ := filepath.Glob(f.path("/etc/systemd/system/*.wants", literal.Replace(unit.Name()))) // the pattern is valid
			names = append(append(names, wanted...), f.path("/etc/systemd/system", unit.Name()))
		}
	}
	return names
}

// remove keeps a copy of a file and takes it away; a link goes without.
func (f *Found) remove(name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().IsRegular() {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(f.path("/"), name)
		if err != nil {
			return err
		}
		copied := f.path(Records, "settings", rel)
		if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
			return err
		}
		if err := durable.WriteFile(copied, text, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return durable.Remove(name)
}
