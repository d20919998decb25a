// SPDX-License-Identifier: Apache-2.0

// Attributes of the kernel and its devices below /sys, see sysfs(5), and the affinity of
// interrupts below /proc/irq are set, and the originals put back.
//
// A key is the path of a file, in any of the spellings that links in /sys allow.
// Links are followed inside /sys alone, and a file that they lead to has to be
// one that may be set, too. Of a list such as "always [madvise] never" the value
// is the word in brackets.

package tunable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/item/netif"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// SysfsName is the kind.
const SysfsName = "sysfs"

// NewSysfs returns the item for want; sys is /sys and proc is /proc.
func NewSysfs(want []spec.Sysfs, sys, proc string, j item.Journal) *Item {
	settings := plain.Each(want, func(w spec.Sysfs) Setting {
		return Setting{Key: w.Path, Value: w.Value, Optional: w.Optional, Invalid: rules.Sysfs(w)}
	})
	t := sysfsTree{sys: sys, proc: proc}
	return New(Kind{Name: SysfsName, Files: t, Coupled: t.coupled, Same: sameAttribute,
		Keep: func(items *spec.Items, key, value string) {
			items.Sysfs = append(items.Sysfs, spec.Sysfs{Path: key, Value: value})
		}}, settings, j)
}

// masks are the attributes whose values are sets of processors or queues, in
// hexadecimal words.
var masks = map[string]bool{"rps_cpus": true, "xps_cpus": true, "xps_rxqs": true, "smp_affinity": true,
	"default_smp_affinity": true, "cpumask": true}

// sameAttribute reports whether two values of a file mean the same.
func sameAttribute(key, a, b string) bool {
	if masks[path.Base(key)] {
		return mask(a) == mask(b)
	}
	return Same(a, b)
}

// mask brings a set to one spelling: lower case, no commas, no leading zeros.
func mask(s string) string {
	s = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(s), ",", ""))
	return strings.TrimLeft(strings.TrimPrefix(s, "0x"), "0")
}

// selected returns the word in brackets of a list of possible values, and any
// other text as it is.
func selected(text string) string {
	if strings.Count(text, "[") != 1 || strings.Contains(text, "\n") {
		return text
	}
	for word := range strings.FieldsSeq(text) {
		if inner, ok := strings.CutPrefix(word, "["); ok && strings.HasSuffix(inner, "]") {
			return strings.TrimSuffix(inner, "]")
		}
	}
	return text
}

// sysfsMaxValue caps what is read of one attribute: sysfs gives a page at most.
const sysfsMaxValue = 64 << 10

// sysfsTree is where /sys and /proc are.
type sysfsTree struct{ sys, proc string }

// open opens a file by its key. It leaves neither /sys nor the file system that is
// mounted there, and what a link leads to is held to the rule for keys.
func (t sysfsTree) open(key string, flags int) (*os.File, error) {
	root, base := t.sys, "/sys"
	if strings.HasPrefix(key, "/proc/") {
		root, base = t.proc, "/proc"
	}
	fail := func(err error) (*os.File, error) { return nil, &fs.PathError{Op: "open", Path: key, Err: err} }
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(dir) // opened for its path only
	fd, err := safepath.Beneath(dir, strings.TrimPrefix(key, base+"/"), flags, unix.RESOLVE_NO_XDEV)
	if before, name, rest := aroundInterface(key); name != "" && errors.Is(err, fs.ErrNotExist) { // an alternative name has no link
		if now := netif.Called(int(index(name))); now != "" {
			fd, err = safepath.Beneath(dir, strings.TrimPrefix(before+now+rest, base+"/"), flags, unix.RESOLVE_NO_XDEV)
		}
	}
	if err != nil {
		return fail(err)
	}
	f := os.NewFile(uintptr(fd), key)
	if err := t.allowed(root, base, f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// allowed holds an open file to the rule for keys by its own path.
func (t sysfsTree) allowed(root, base string, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &fs.PathError{Op: "open", Path: f.Name(), Err: errors.New("it is not an attribute")}
	}
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return err
	}
	whole, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	if rest, ok := strings.CutPrefix(at, whole+"/"); ok {
		at = base + "/" + rest
	}
	return rules.Sysfs(spec.Sysfs{Path: at})
}

// Read implements tunable.Files.
func (t sysfsTree) Read(key string) (string, error) {
	f, err := t.open(key, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close() // read only
	data, err := io.ReadAll(io.LimitReader(f, sysfsMaxValue))
	if err != nil {
		return "", &fs.PathError{Op: "read", Path: key, Err: reason(err)}
	}
	return selected(strings.TrimRight(string(data), "\n")), nil
}

// Write implements tunable.Files. The kernel wants a value in one write(2); the
// line end lets an empty one be written at all.
func (t sysfsTree) Write(key, value string) error {
	f, err := t.open(key, unix.O_WRONLY)
	if err != nil {
		return err
	}
	if err = f.Truncate(0); err == nil { // not before it is known where the key led
		_, err = f.WriteString(value + "\n")
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return &fs.PathError{Op: "write", Path: key, Err: reason(err)}
	}
	return nil
}

// Writable implements tunable.Files.
func (t sysfsTree) Writable(key string) bool {
	f, err := t.open(key, unix.O_PATH)
	if err != nil {
		return false
	}
	defer f.Close() // opened for its mode only
	info, err := f.Stat()
	return err == nil && info.Mode()&0o222 != 0
}

// Owner implements tunable.Files: the kernel gives the attributes of a device other numbers
// when the device comes again, and never twice alike while it runs.
func (t sysfsTree) Owner(key string) uint64 {
	var st unix.Stat_t
	f, err := t.open(key, unix.O_PATH)
	if err != nil {
		return 0
	}
	defer f.Close() // opened for its number only
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	return st.Ino
}

// Moved says what a key is called by now that was of an interface: its files keep their numbers.
func (t sysfsTree) Moved(key string, owner uint64) string {
	before, _, rest := aroundInterface(key)
	all, _ := os.ReadDir(filepath.Join(t.sys, strings.TrimPrefix(before, "/sys"))) // without one it is gone
	for _, e := range all {
		if now := before + e.Name() + rest; t.Owner(now) == owner {
			return now
		}
	}
	return ""
}

// aroundInterface splits a key of an interface, whose name is "" of others.
func aroundInterface(key string) (before, name, rest string) {
	before, after, _ := strings.Cut(key, "/net/")
	name, rest, _ = strings.Cut(after, "/")
	return before + "/net/", name, "/" + rest
}

// coupled are the present attributes that writing key may change: another
// scheduler brings a queue length of its own.
func (t sysfsTree) coupled(key string) []string {
	dir, name := path.Split(key)
	if name != "scheduler" || path.Base(dir) != "queue" {
		return nil
	}
	var keys []string
	for _, side := range []string{"nr_requests", "wbt_lat_usec"} {
		if t.Writable(dir + side) {
			keys = append(keys, dir+side)
		}
	}
	return keys
}
