// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"path/filepath"
	"regexp"
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
