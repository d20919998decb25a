// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"path"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// maxPriority is that of swapon(2).
const maxPriority = 32767

// discards are what swapon(8) can tell a disk of space that is free again.
var discards = []string{"all", "once", "pages"}

// Swap checks swap space.
func Swap(s spec.Swap) error {
	var f fields
	tag, _ := MountTag(s.Device)
	switch {
	case s.Device == "":
		f.add("device", invalid("required", "", "the value is empty"))
	case tag == "" && (!path.IsAbs(s.Device) || path.Clean(s.Device) != s.Device):
		f.add("device", invalid("device", "for example /dev/vdb or LABEL=swap", "%.150q is not the path of a disk or a file", s.Device))
	default:
		f.add("device", oneLine(s.Device))
	}
	f.add("device", replaces(s.Device))
	if s.Priority != nil && (*s.Priority < 0 || *s.Priority > maxPriority) {
		f.add("priority", invalid("range", "from 0 to 32767, the highest is used first", "%d is not a priority of swap space", *s.Priority))
	}
	f.add("discard", optional(s.Discard, discards))
	return f.err()
}

// SwapOption adds one option of swapon(8) to s. Words of fstab(5) that only others
// read change nothing.
func SwapOption(s *spec.Swap, option string) error {
	name, value, given := strings.Cut(option, "=")
	switch {
	case option == "sw" || option == "defaults" || option == "auto" || option == "nofail":
		return nil
	case name == "pri":
		n, err := strconv.Atoi(value)
		if err != nil {
			return invalid("mount-option", "as in pri=10", "%q is not a priority of swap space", option)
		}
		s.Priority = &n
		return nil
	case name == "discard" && !given:
		s.Discard = "all"
		return nil
	case name == "discard" && (value == "once" || value == "pages"):
		s.Discard = value
		return nil
	}
	return invalid("mount-option", "pri=N, discard, discard=once or discard=pages", "%.80q is not an option of swap space", option)
}
