// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// An open directory keeps the file system that it lies on busy, so each function
// here walks by itself and closes what it opened before it returns.

// resolve returns path without the system's own links.
func resolve(path string) (string, error) {
	var w safepath.Walk
	defer w.Close()
	return w.Resolve(path)
}

// resolve is resolve for a target. What is mounted there is not asked for anything:
// a server that is gone does not answer, and a caller that asks waits for it.
func (t table) resolve(target string) (string, error) {
	parent, err := resolve(filepath.Dir(target))
	if err != nil {
		return "", err
	}
	at := filepath.Join(parent, filepath.Base(target))
	if _, there := t.at(at); there {
		return at, nil // a mount point is not a link
	}
	return resolve(target)
}

// existing is resolve for what must be there.
func existing(path string) (string, error) {
	path, err := resolve(path)
	if err == nil {
		_, err = os.Lstat(path)
	}
	return path, err
}

// held calls do with a descriptor of a path and what it is of, opened for its path only.
func held(path string, do func(fd int, st unix.Stat_t) error) error {
	var w safepath.Walk
	defer w.Close()
	fd, st, err := w.Open(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd) // an O_PATH descriptor has nothing to lose
	return do(fd, st)
}

// on calls do with a name that stands for path and for nothing else.
func on(path string, do func(name string) error) error {
	return held(path, func(fd int, _ unix.Stat_t) error { return do(safepath.Name(fd)) })
}

// mount is mount(2) on a target that is there.
func mount(source, target, fstype string, flags uintptr, data string) error {
	return on(target, func(name string) error { return unix.Mount(source, name, fstype, flags, data) })
}

// errMoved is returned where another mount has come to a target since it was looked at:
// who owns a directory on the way can do that, from a mount namespace of his own.
var errMoved = errors.New("another mount is there than was looked at")

// change is mount(2) on a mount that is there, for what it is given besides.
func change(m mounted, source, fstype string, flags uintptr, data string) error {
	return held(m.point, func(fd int, _ unix.Stat_t) error {
		var st unix.Statx_t
		if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st); err != nil {
			return &fs.PathError{Op: "look at", Path: m.point, Err: err}
		}
		if st.Mask&unix.STATX_MNT_ID == 0 || st.Mnt_id != m.id {
			return fmt.Errorf("%s: %w", m.point, errMoved)
		}
		return unix.Mount(source, safepath.Name(fd), fstype, flags, data)
	})
}

// umount takes away what is on top at a target. The descriptor is of the directory that
// holds the target: one of the target itself would make it busy, and what a server that
// is gone has mounted is not asked for anything. Who could bring another mount to the name
// since the table was read could unmount no more than what lies in a directory of his.
func umount(target string) error {
	return on(filepath.Dir(target), func(dir string) error { // without reading it: a server may let root pass and no more
		return unix.Unmount(dir+"/"+filepath.Base(target), unix.UMOUNT_NOFOLLOW)
	})
}

// helped refuses a target that mount(8) could be led away from: it takes a name.
func helped(target string) error {
	var w safepath.Walk
	defer w.Close()
	fd, _, err := w.Open(target)
	if err != nil {
		return err
	}
	_ = unix.Close(fd) // an O_PATH descriptor has nothing to lose
	if dir, uid, found := w.Stranger(); found {
		return fmt.Errorf("%s on the way belongs to user %d, who could lead mount(8) elsewhere", dir, uid)
	}
	return nil
}

// makeTarget makes what is mounted on, a directory or an empty file.
func makeTarget(target string, file bool) error {
	var w safepath.Walk
	defer w.Close()
	if file {
		return w.Create(target)
	}
	return w.MkdirAll(target)
}

// unmake removes the directories that had to be made, as far as they are empty
// and still where they were made.
func unmake(was prior) error {
	var w safepath.Walk
	defer w.Close()
	if was.File {
		if info, err := os.Lstat(was.Target); err == nil && info.Size() > 0 {
			return nil // someone uses it
		}
	}
	for path := was.Target; was.Made != "" && len(path) >= len(was.Made); path = filepath.Dir(path) {
		err := w.Remove(path)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENOTDIR), errors.Is(err, safepath.ErrLink):
			return nil // it is in use, or another's by now
		default:
			return err
		}
	}
	return nil
}

// ordered returns a list so that each mount comes after those that it needs: what its target
// lies in, and what its source does. In a circle of them the order of targets counts.
func ordered[T any](list []T, of func(T) spec.Mount) []T {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b T) int { return strings.Compare(of(a).Target+"/", of(b).Target+"/") })
	out := make([]T, 0, len(list))
	for len(list) > 0 {
		next := slices.IndexFunc(list, func(a T) bool {
			return !slices.ContainsFunc(list, func(b T) bool { return of(a).Target != of(b).Target && needs(of(a), of(b).Target) })
		})
		next = max(next, 0)
		out, list = append(out, list[next]), slices.Delete(list, next, next+1)
	}
	return out
}

// needs reports whether a mount can be made only after that on target.
func needs(w spec.Mount, target string) bool {
	return slices.ContainsFunc(w.Paths(), func(path string) bool { return filepath.IsAbs(path) && rules.Within(path, target) })
}

// virtual file systems have no device; what stands for it is only a label.
var virtual = []string{"tmpfs", "ramfs", "hugetlbfs", "proc", "sysfs", "devtmpfs", "devpts", "cgroup2", "debugfs",
	"tracefs", "securityfs", "bpf", "mqueue", "configfs", "pstore", "efivarfs", "fusectl", "binfmt_misc"}

// source returns the source for mount(2): the device behind a tag, or the device as
// it is. It is ErrMissingDevice while it is not there.
func (i *Item) source(w spec.Mount, o options) (string, error) {
	if path, tagged, err := TaggedDevice(i.dev, w.Device); tagged {
		return path, err
	}
	for _, dir := range w.Paths()[2:] { // of an overlay
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			return "", MissingDevice(dir)
		}
	}
	if o.bind == 0 && (slices.Contains(virtual, w.Type) || w.Type == "overlay" || !filepath.IsAbs(w.Device)) {
		return w.Device, nil
	}
	follow := filepath.EvalSymlinks
	if o.bind != 0 {
		follow = existing
	}
	path, err := follow(w.Device)
	if errors.Is(err, fs.ErrNotExist) {
		return "", MissingDevice(w.Device)
	}
	return path, err
}

// helper is the program that mount(8) runs for a type, such as mount.nfs, "" for
// a type that the kernel mounts by itself.
func (i *Item) helper(fstype string) string {
	for _, dir := range i.sbin {
		name := filepath.Join(dir, "mount."+fstype)
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			return name
		}
	}
	return ""
}

// is reports whether m is the mount of source that w describes.
func is(m mounted, w spec.Mount, o options, source string, t table) bool {
	if o.bind != 0 {
		var a, b unix.Stat_t
		from, ok := t.holding(source)
		return ok && unix.Lstat(source, &a) == nil && unix.Lstat(m.point, &b) == nil &&
			a.Ino == b.Ino && a.Dev == b.Dev && from.dev == m.dev
	}
	switch {
	case m.fstype != w.Type && !(slices.Contains(spec.NetworkTypes, w.Type) && strings.HasPrefix(m.fstype, w.Type)) &&
		!strings.HasPrefix(m.fstype, "fuse"):
		return false
	case slices.Contains(virtual, w.Type):
		return true
	case m.source == source:
		return true
	}
	var st unix.Stat_t
	if unix.Stat(source, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return false
	}
	return m.dev == fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

// maxInfo caps /proc/self/mountinfo: some 100,000 mounts.
const maxInfo = 64 << 20

// mounted is one line of /proc/self/mountinfo, see proc_pid_mountinfo(5).
type mounted struct {
	id          uint64   // while the kernel runs it is that of no other mount at the same time
	dev         string   // major:minor of the file system
	point       string   // where
	options     []string // of this mount
	propagation []string // shared:N, master:N, unbindable
	fstype      string
	source      string
	super       []string // options of the file system
}

func (m mounted) String() string {
	return m.source + " " + m.fstype + " " + strings.Join(redact(append(m.options[:len(m.options):len(m.options)], m.super...)), ",")
}

// table is all mounts, in the kernel's order.
type table []mounted

func readTable(name string) (table, error) {
	data, err := ownfiles.ReadPublic(name, maxInfo)
	if err != nil {
		return nil, err
	}
	return parseTable(data)
}

func parseTable(data []byte) (table, error) {
	var t table
	for n := 1; len(data) > 0; n++ {
		text, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		m, ok := parseLine(string(text))
		if !ok {
			return nil, fmt.Errorf("line %d of mountinfo is not understood: %q", n, text)
		}
		t = append(t, m)
	}
	return t, nil
}

func parseLine(text string) (mounted, bool) {
	before, after, ok := strings.Cut(text, " - ")
	if !ok {
		return mounted{}, false
	}
	head, tail := strings.Split(before, " "), strings.Split(after, " ")
	if len(head) < 6 || len(tail) < 3 {
		return mounted{}, false
	}
	id, err := strconv.ParseUint(head[0], 10, 64)
	if err != nil {
		return mounted{}, false
	}
	return mounted{
		id:          id,
		dev:         head[2],
		point:       UnescapeDevice(head[4]),
		options:     strings.Split(head[5], ","),
		propagation: head[6:],
		fstype:      UnescapeDevice(tail[0]),
		source:      UnescapeDevice(tail[1]),
		super:       strings.Split(UnescapeDevice(tail[2]), ","),
	}, true
}

// at returns the topmost mount at a mount point.
func (t table) at(point string) (mounted, bool) {
	for n := len(t) - 1; n >= 0; n-- {
		if t[n].point == point {
			return t[n], true
		}
	}
	return mounted{}, false
}

// holding is the mount that a path lies on.
func (t table) holding(path string) (mounted, bool) {
	var best mounted
	found := false
	for _, m := range t {
		if rules.Within(path, m.point) && (!found || len(m.point) >= len(best.point)) {
			best, found = m, true
		}
	}
	return best, found
}

// below are the mount points under point.
func (t table) below(point string) []string {
	return plain.Pick(t, func(m mounted) (string, bool) { return m.point, m.point != point && rules.Within(m.point, point) })
}

// Disks are found by the names that people give them: a path, or a tag as in LABEL=data, which is
// looked up among udev's links, at each look, so that a disk that comes later is found then.

// ErrMissingDevice is the error of a device that is not there.
var ErrMissingDevice = errors.New("not there yet")

// byTag maps rules.MountTags to udev's directories below /dev/disk.
var byTag = map[string]string{"UUID": "by-uuid", "LABEL": "by-label", "PARTUUID": "by-partuuid", "PARTLABEL": "by-partlabel", "ID": "by-id"}

// TaggedDevice returns the path of a device that is named by a tag; dev is /dev. ok is
// false for a name without one.
func TaggedDevice(dev, name string) (path string, ok bool, err error) {
	tag, value := rules.MountTag(name)
	if tag == "" {
		return "", false, nil
	}
	path, err = filepath.EvalSymlinks(filepath.Join(dev, "disk", byTag[tag], encodeTag(value)))
	if errors.Is(err, fs.ErrNotExist) {
		err = MissingDevice(name)
	}
	return path, true, err
}

// MissingDevice is the error of a device of that name.
func MissingDevice(name string) error { return fmt.Errorf("%s is %w", name, ErrMissingDevice) }

// encodeTag is how udev writes a label into a file name.
func encodeTag(s string) string {
	var out strings.Builder
	for _, r := range s {
		switch {
		case r >= 0x80, r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', strings.ContainsRune("#+-.:=@_", r):
			out.WriteRune(r)
		default:
			fmt.Fprintf(&out, `\x%02x`, r)
		}
	}
	return out.String()
}

// UnescapeDevice returns a field of /proc/swaps or mountinfo without the kernel's \ooo for blanks
// and the like, see proc(5).
func UnescapeDevice(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}
