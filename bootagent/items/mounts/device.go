// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item/device"
	"github.com/caisson-os/caisson/spec"
)

// virtual file systems have no device; what stands for it is only a label.
var virtual = []string{"tmpfs", "ramfs", "hugetlbfs", "proc", "sysfs", "devtmpfs", "devpts", "cgroup2", "debugfs",
	"tracefs", "securityfs", "bpf", "mqueue", "configfs", "pstore", "efivarfs", "fusectl", "binfmt_misc"}

var errDeferred = device.ErrMissing

// source returns the source for mount(2): the device behind a tag, or the device as
// it is. It is errDeferred while it is not there.
func (i *Item) source(w spec.Mount, o options) (string, error) {
	if path, tagged, err := device.Tagged(i.dev, w.Device); tagged {
		return path, err
	}
	for _, dir := range stacked(o.data) {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			return "", device.Missing(dir)
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
		return "", device.Missing(w.Device)
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
	case m.fstype != w.Type && !(slices.Contains(spec.NetworkTypes, w.Type) && strings.HasPrefix(m.fstype, w.Type)) && !strings.HasPrefix(m.fstype, "fuse"):
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
