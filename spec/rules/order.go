// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/url"
	"path"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// Condition checks what must be so before something is disturbed.
func Condition(c spec.Condition) error {
	kinds := 0
	for _, given := range []bool{c.File != "", c.Absent != "", c.Unit != "", c.Command != nil} {
		if given {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return invalid("condition", "as in {absent: /run/backup-runs}", "a precondition has one of file, absent, unit and command, this one has %d", kinds)
	case c.Command != nil:
		return command(*c.Command)
	case c.Unit != "":
		return Unit(c.Unit)
	}
	return filePath(c.File + c.Absent)
}

func filePath(name string) error {
	if !path.IsAbs(name) || path.Clean(name) != name || name == "/" || hasHidden(name) {
		return invalid("path", "as in /run/ready", "%.80q is not the absolute path of a file", name)
	}
	return nil
}

// MaxSlots is how many nodes of one group may be disturbed at once.
const MaxSlots = 10_000

// SlotGroup checks the name of a group, as FleetLock has it.
func SlotGroup(group string) error {
	const chars = lower + upper + digits + ".-"
	if len(group) > 128 || !spelled(group, chars, chars) || strings.Trim(group, ".") == "" {
		return invalid("group", "letters, digits, dots and dashes", "%.80q is not the name of a group", group)
	}
	return nil
}

// Slot checks who counts the nodes of a group, and how many there may be.
func Slot(s spec.Slot) error {
	var f fields
	if s.Max < 1 || s.Max > MaxSlots {
		f.add("max", invalid("range", "", "max is %d, from 1 to %d are possible", s.Max, MaxSlots))
	}
	switch {
	case (s.FleetLock == "") == (s.Directory == ""):
		f.add("", invalid("slot", "as in {group: storage, max: 1, fleetlock: \"https://lock.example\"}", "a slot has one of fleetlock and directory"))
	case s.Directory != "":
		f.add("directory", filePath(s.Directory))
		f.add("directory", replaces(s.Directory))
	default:
		u, err := url.Parse(s.FleetLock)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(u.Path, "/") {
			f.add("fleetlock", invalid("address", "as in https://lock.example:3333, without /v1 and without a slash at the end", "%.80q is not the address of a server", s.FleetLock))
		}
	}
	return f.err()
}
