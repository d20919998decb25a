// SPDX-License-Identifier: Apache-2.0

// Kernel parameters below /proc/sys are set as sysctl.d(5) does it, and the originals put back.
//
// The files themselves are read and written: no sysctl(8), no files in /etc/sysctl.d,
// so no other owner's file is applied by accident. A key is the path below
// /proc/sys. Values are compared field by field, because the kernel separates
// with tabs what people separate with blanks.

package tunable

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/item/netif"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// SysctlName is the kind.
const SysctlName = "sysctl"

// NewSysctl returns the item for want; root is /proc/sys.
func NewSysctl(want []spec.Sysctl, root string, j item.Journal) *Item {
	settings := plain.Each(want, func(w spec.Sysctl) Setting {
		return Setting{Key: w.Key, Value: w.Value, Optional: w.Optional, Invalid: rules.Sysctl(w)}
	})
	t := newSysctlTree(root)
	kind := Kind{Name: SysctlName, Files: t, Coupled: t.coupled, Done: t.done,
		Stays: rules.OneWay,
		Same:  func(_, a, b string) bool { return Same(a, b) },
		Keep: func(items *spec.Items, key, value string) {
			items.Sysctl = append(items.Sysctl, spec.Sysctl{Key: key, Value: value})
		}}
	return New(kind, settings, j)
}

// maxValue caps what is read of one key.
const maxValue = 1 << 20

// sysctlTree is /proc/sys. Opening a file is most of what a value costs, so until done it keeps
// open the directory of the last key, because keys come sorted, and what was written, to be
// read back, and again at the check behind an apply.
type sysctlTree struct {
	root    string
	dir     string // "" is root itself
	fd      int    // of dir, -1 when none is open
	index   *uint64
	written map[string]int
}

// maxWritten is how many files are kept open.
const maxWritten = 512

func newSysctlTree(root string) *sysctlTree {
	return &sysctlTree{root: root, fd: -1, written: map[string]int{}}
}

func (t *sysctlTree) path(key string) string { return t.root + "/" + key }

// done lets go of what is open; the tree can be used on.
func (t *sysctlTree) done() {
	t.leave()
	for _, fd := range t.written {
		_ = unix.Close(fd) // the kernel answered the write
	}
	clear(t.written)
}

func (t *sysctlTree) leave() {
	if t.fd >= 0 {
		_ = unix.Close(t.fd) // opened for its path only
	}
	t.fd, t.index = -1, nil
}

// enter opens the directory of a key, if it is not open.
func (t *sysctlTree) enter(key string) (name string, err error) {
	dir, name := "", key
	if n := strings.LastIndexByte(key, '/'); n >= 0 {
		dir, name = key[:n], key[n+1:]
	}
	if t.fd >= 0 && t.dir == dir {
		return name, nil
	}
	t.leave()
	open := func(dir string) (int, error) {
		return ignoringEINTR(func() (int, error) {
			return unix.Open(t.path(dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		})
	}
	if t.fd, err = open(dir); err == unix.ENOENT {
		if now := t.Moved(key, index(ofInterface(key))); now != "" { // an alternative name has no directory
			t.fd, err = open(filepath.Dir(now))
		}
	}
	if err != nil {
		return "", err
	}
	t.dir = dir
	return name, nil
}

// Read implements tunable.Files. It and Write use the system calls themselves: package os would ask for each
// file whether it can be polled, and this is done a thousand times in a run.
func (t *sysctlTree) Read(key string) (string, error) {
	if fd, is := t.written[key]; is {
		value, err := t.read(fd, key)
		if !errors.Is(err, fs.ErrNotExist) {
			return value, err
		}
		t.done() // the interface went since, and may have come again
	}
	fd, err := t.open(key, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd) // only read
	return t.read(fd, key)
}

func (t *sysctlTree) read(fd int, key string) (string, error) {
	var first [4096]byte // nearly every value fits
	data := first[:0]
	for len(data) < maxValue {
		if len(data) == cap(data) {
			data = slices.Grow(data, cap(data))
		}
		n, err := ignoringEINTR(func() (int, error) { return unix.Pread(fd, data[len(data):cap(data)], int64(len(data))) })
		if err != nil {
			return "", &fs.PathError{Op: "read", Path: t.path(key), Err: err}
		}
		if n == 0 {
			break
		}
		if data = data[:len(data)+n]; len(data) < cap(data) && data[len(data)-1] == '\n' {
			break // the kernel ends a value so
		}
	}
	return strings.TrimRight(string(data), "\n"), nil
}

// Write implements tunable.Files: it hands the kernel the value in one write(2), as it asks for. The line end
// lets an empty value be written at all.
func (t *sysctlTree) Write(key, value string) error {
	fd, err := t.open(key, unix.O_RDWR|unix.O_TRUNC)
	readable := err == nil
	if errors.Is(err, unix.EACCES) { // such as vm/compact_memory, which is for writing only
		fd, err = t.open(key, unix.O_WRONLY|unix.O_TRUNC)
	}
	if err != nil {
		return err
	}
	text := []byte(value + "\n")
	n, err := ignoringEINTR(func() (int, error) { return unix.Write(fd, text) })
	before, again := t.written[key]
	if again {
		_ = unix.Close(before) // the kernel answered that write
		delete(t.written, key)
	}
	if readable && len(t.written) < maxWritten {
		t.written[key] = fd
	} else {
		_ = unix.Close(fd) // the kernel answered the write
	}
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: t.path(key), Err: err}
	}
	return nil
}

func (t *sysctlTree) open(key string, flags int) (fd int, err error) {
	for range 2 {
		var name string
		if name, err = t.enter(key); err == nil {
			fd, err = ignoringEINTR(func() (int, error) { return unix.Openat(t.fd, name, flags|unix.O_CLOEXEC, 0) })
		}
		if err == nil {
			return fd, nil
		}
		if err != unix.ENOENT && err != unix.EMFILE {
			break
		}
		t.done() // the interface may have gone and come again since its directory was opened
	}
	return -1, &fs.PathError{Op: "open", Path: t.path(key), Err: err}
}

// Writable implements tunable.Files.
func (t *sysctlTree) Writable(key string) bool {
	var st unix.Stat_t
	name, err := t.enter(key)
	return err == nil && unix.Fstatat(t.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o222 != 0
}

// ignoringEINTR makes a system call until no signal cuts it.
func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

// sides are the keys that the kernel changes when another one is written.
var sides = map[string][]string{
	"net/ipv4/ip_forward": {"net/ipv4/conf/*/forwarding", "net/ipv4/conf/all/accept_redirects"},
	"net/ipv4/conf/all/forwarding": {"net/ipv4/conf/*/forwarding", "net/ipv4/ip_forward",
		"net/ipv4/conf/all/accept_redirects"},
	"net/ipv6/conf/all/forwarding":                  {"net/ipv6/conf/*/forwarding"},
	"net/ipv6/conf/all/disable_ipv6":                {"net/ipv6/conf/*/disable_ipv6"},
	"net/ipv6/conf/all/ignore_routes_with_linkdown": {"net/ipv6/conf/*/ignore_routes_with_linkdown"},
	"net/ipv6/conf/all/addr_gen_mode":               {"net/ipv6/conf/*/addr_gen_mode"},
	"net/mpls/conf/all/input":                       {"net/mpls/conf/*/input"},
	"vm/dirty_bytes":                                {"vm/dirty_ratio"},
	"vm/dirty_ratio":                                {"vm/dirty_bytes"},
	"vm/dirty_background_bytes":                     {"vm/dirty_background_ratio"},
	"vm/dirty_background_ratio":                     {"vm/dirty_background_bytes"},
	"vm/overcommit_kbytes":                          {"vm/overcommit_ratio"},
	"vm/overcommit_ratio":                           {"vm/overcommit_kbytes"},
}

// coupled are the present keys that writing key may change.
func (t *sysctlTree) coupled(key string) []string {
	var keys []string
	for _, pattern := range sides[key] {
		if !strings.Contains(pattern, "*") {
			keys = append(keys, pattern)
			continue
		}
		found, _ := filepath.Glob(t.path(pattern)) // the patterns are ours, so never malformed
		for _, name := range found {
			if side := strings.TrimPrefix(name, t.root+"/"); side != key {
				keys = append(keys, side)
			}
		}
	}
	return keys
}

// Owner implements tunable.Files: it is the number of the interface that a key
// below net/*/conf or net/*/neigh belongs to.
func (t *sysctlTree) Owner(key string) uint64 {
	if t.fd >= 0 && t.index != nil && strings.HasPrefix(key, t.dir+"/") && !strings.Contains(key[len(t.dir)+1:], "/") {
		return *t.index
	}
	name := ofInterface(key)
	if name == "" {
		return 0
	}
	if _, err := t.enter(key); err != nil {
		return index(name)
	}
	if t.index == nil {
		n := index(name)
		t.index = &n
	}
	return *t.index
}

// Moved says what a key is called by now, by the number of the interface.
func (t *sysctlTree) Moved(key string, owner uint64) string {
	name := netif.Called(int(min(owner, math.MaxInt32)))
	if name == "" || ofInterface(key) == "" {
		return ""
	}
	parts := strings.Split(key, "/")
	parts[3] = name
	return strings.Join(parts, "/")
}

// ofInterface is the interface that a key is of, "" of others.
func ofInterface(key string) string {
	parts := strings.SplitN(key, "/", 6)
	if len(parts) != 5 || parts[0] != "net" || parts[2] != "conf" && parts[2] != "neigh" || parts[3] == "all" || parts[3] == "default" {
		return ""
	}
	return parts[3]
}

// index is the number of an interface, 0 when there is none.
func index(name string) uint64 {
	n, _ := netif.Index(name) // 0 with an error
	return uint64(n)
}
