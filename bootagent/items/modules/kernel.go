// SPDX-License-Identifier: Apache-2.0

package modules

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/tunable"
)

// kernel names the places where the running kernel shows its modules, and where the layer has files
// for it.
type kernel struct{ sys, proc, lib string }

// loaded reports whether a module is in the kernel, loaded or built in. The error
// says that it cannot be loaded: the layer does not have it.
func (k kernel) loaded(name string) (bool, error) {
	if _, err := os.Stat(filepath.Join(k.sys, "module", name)); err == nil {
		return true, nil
	}
	release, err := os.ReadFile(filepath.Join(k.proc, "sys/kernel/osrelease"))
	if err != nil {
		return false, nil // a look that cannot be taken forbids nothing
	}
	dir := filepath.Join(k.lib, "modules", strings.TrimSpace(string(release)))
	if found, err := lists(filepath.Join(dir, "modules.builtin"), name); found || err != nil {
		return found, nil
	}
	if found, err := lists(filepath.Join(dir, "modules.dep"), name); found || err != nil {
		return false, nil
	}
	return false, fmt.Errorf("there is no such module for kernel %s", strings.TrimSpace(string(release)))
}

// loadable reports whether a module is loaded that could be unloaded: one that is
// built in has no count of its users.
func (k kernel) loadable(name string) bool {
	_, err := os.Stat(filepath.Join(k.sys, "module", name, "refcnt"))
	return err == nil
}

// lists reports whether a file of depmod(8) has a module, whose name may be spelled
// with hyphens there.
func lists(file, name string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close() // read only
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		at, _, _ := strings.Cut(lines.Text(), ":")
		base, _, _ := strings.Cut(path.Base(at), ".ko")
		if strings.ReplaceAll(base, "-", "_") == name {
			return true, nil
		}
	}
	return false, lines.Err()
}

// file is the path of a parameter: its key is module and name.
func (k kernel) file(key string) string {
	module, name, _ := strings.Cut(key, "/")
	return filepath.Join(k.sys, "module", module, "parameters", name)
}

// maxValue caps what is read of one parameter: sysfs gives a page at most.
const maxValue = 64 << 10

var _ tunable.Files = kernel{}

// Read implements tunable.Files.
func (k kernel) Read(key string) (string, error) {
	f, err := os.Open(k.file(key))
	if err != nil {
		return "", err
	}
	defer f.Close() // read only
	data, err := io.ReadAll(io.LimitReader(f, maxValue))
	return strings.TrimRight(string(data), "\n"), err
}

// Write implements tunable.Files.
func (k kernel) Write(key, value string) error {
	f, err := os.OpenFile(k.file(key), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

// Writable implements tunable.Files.
func (k kernel) Writable(key string) bool {
	info, err := os.Stat(k.file(key))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o222 != 0
}

// Owner implements tunable.Files: a module that was loaded again has new files.
func (k kernel) Owner(key string) uint64 {
	var st unix.Stat_t
	if unix.Stat(k.file(key), &st) != nil {
		return 0
	}
	return st.Ino
}

// same reports whether two values of a parameter mean the same. The kernel shows
// yes and no as Y and N, and takes more words for them.
func same(_, a, b string) bool {
	yesNo := func(s string) string {
		switch s {
		case "1", "y", "Y", "on":
			return "Y"
		case "0", "n", "N", "off":
			return "N"
		}
		return s
	}
	if a == "Y" || a == "N" || b == "Y" || b == "N" {
		return yesNo(a) == yesNo(b)
	}
	return tunable.Same(a, b)
}
