// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// devices are the names of devices that the kernel numbers as they come, by its own names. The
// same content gets another number in the next root, so that a loop device is named by its file,
// and a mapped one by the name that was given to it. A loop device without a file is not among them.
type devices map[string]string

var (
	numbered   = regexp.MustCompile(`^(loop|dm-)\d+$`)
	throughOne = regexp.MustCompile(`-loop\d+$`) // ends the name of a mapped device that is read through a loop device
)

// readDevices reads them below a directory, which is /sys/block of a machine.
func readDevices(dir string) devices {
	d, times := devices{}, map[string]int{}
	found, _ := filepath.Glob(filepath.Join(dir, "*")) // the pattern is one
	for _, at := range found {
		var name string
		if mapped, ok := text(filepath.Join(at, "dm/name")); ok {
			name = "mapped:" + throughOne.ReplaceAllString(mapped, "")
		} else if file, ok := text(filepath.Join(at, "loop/backing_file")); ok {
			// By the way that leads there another root names it otherwise.
			name = "loop:" + filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file)
		} else {
			continue
		}
		if times[name]++; times[name] > 1 {
			name = fmt.Sprintf("%s (%d)", name, times[name])
		}
		d[filepath.Base(at)] = name
	}
	return d
}

// source returns the source of a mount as mountinfo has it, by the device's name.
func (d devices) source(text string) string {
	kernel, ok := strings.CutPrefix(text, "/dev/")
	if !ok || !numbered.MatchString(kernel) {
		return text
	}
	if name := d[kernel]; name != "" {
		return name
	}
	return "a device"
}

// attribute returns the name of a file below /sys by the device's name, "" where nothing is
// behind the device.
func (d devices) attribute(file string) string {
	rest, ok := strings.CutPrefix(file, "/sys/block/")
	kernel, of, _ := strings.Cut(rest, "/")
	if !ok || !numbered.MatchString(kernel) {
		return file
	}
	if d[kernel] == "" {
		return ""
	}
	return "/sys/block/" + d[kernel] + "/" + of
}

// devices notes each of them with its size.
func (p Picture) devices(d devices, dir string) {
	for kernel, name := range d {
		size, _ := text(filepath.Join(dir, kernel, "size")) // one that has just gone has none
		p["device "+name] = size + " sectors"
	}
}

// onDisk are the types of file systems on which somebody writes what stays.
var onDisk = []string{"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "vfat", "xfs"}

// layersOf are the options of an overlay that name its parts: by where they were when it was
// stacked, which differs from boot to boot.
var layersOf = regexp.MustCompile(`,?(lowerdir|upperdir|workdir)\+?=[^,]*`)

var escaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`)

// mount is a line of proc_pid_mountinfo(5).
type mount struct{ at, root, flags, kind, source, options string }

// parseMounts reads the lines of mountinfo.
func parseMounts(table string) (all []mount) {
	for line := range strings.Lines(table) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if ok && len(l) >= 6 && len(r) >= 3 {
			all = append(all, mount{escaped.Replace(l[4]), l[3], l[5], r[0], r[1], r[2]})
		}
	}
	return all
}

// mounts notes what is mounted where, by what it is made of.
func (p Picture) mounts(all []mount, d devices) {
	for _, m := range all {
		name := "mount " + m.at
		for n := 2; p[name] != ""; n++ {
			name = fmt.Sprintf("mount %s (%d)", m.at, n)
		}
		p[name] = strings.TrimSpace(strings.Join([]string{m.kind, d.source(m.source), m.root, m.flags, m.says()}, " "))
	}
}

// says returns the options of a mount without those that are of this boot alone: parts of an
// overlay, and the pipe and the process that answer for an automount.
func (m mount) says() string {
	if m.kind == "autofs" {
		return ""
	}
	return layersOf.ReplaceAllString(m.options, "")
}

// memory are the sizes of a file system in memory: they follow from what is free as it is mounted.
var memory = regexp.MustCompile(`,(size|nr_inodes)=[^, ]*`)

// sameInMemory reports whether two mounts of a file system in memory differ in its sizes at most.
func sameInMemory(name, was, is string) bool {
	return strings.HasPrefix(name, "mount ") && (strings.HasPrefix(was, "tmpfs ") || strings.HasPrefix(was, "devtmpfs ")) &&
		memory.ReplaceAllString(was, "") == memory.ReplaceAllString(is, "")
}

// writable reports whether somebody writes there what stays.
func (m mount) writable() bool {
	rw := func(list string) bool { return slices.Contains(strings.Split(list, ","), "rw") }
	return rw(m.flags) && rw(m.options) && slices.Contains(onDisk, m.kind)
}

// written returns where files are listed: the mount points of writable file systems.
func written(all []mount) (places []string) {
	for _, m := range all {
		if m.writable() && !slices.Contains(places, m.at) {
			places = append(places, m.at)
		}
	}
	return places
}
