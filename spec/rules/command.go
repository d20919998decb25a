// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/url"
	"path"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// MaxCommandTime is how long a command may run, in seconds.
const MaxCommandTime = 24 * 60 * 60

// MaxCommand is the most that a command's arguments have together, in bytes.
const MaxCommand = 64 << 10

// Operation checks a published operation.
func Operation(o spec.Operation) error {
	commands := []spec.Command{o.Exec}
	if o.Check != nil {
		commands = append(commands, *o.Check)
	}
	for _, c := range commands {
		if err := command(c); err != nil {
			return err
		}
	}
	if o.Order != nil {
		if err := Order(*o.Order); err != nil {
			return err
		}
	}
	if !digest.Valid(o.ID) {
		return invalid("digest", "", "%.80q is not the id of an operation", o.ID)
	}
	return oneOf(o.Type, "a type of operation", []string{spec.Cron, spec.OneShot})
}

// Order checks the preconditions, the slot and the drain of an act that disturbs.
func Order(o spec.Order) error {
	for _, c := range o.When {
		if err := Condition(c); err != nil {
			return err
		}
	}
	if o.Slot != "" {
		if err := SlotGroup(o.Slot); err != nil {
			return err
		}
	}
	if d := o.Drain; d != nil {
		for _, c := range []spec.Command{d.Check, d.Exec, d.Undo} {
			if err := command(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func command(c spec.Command) error {
	if err := Argv(c.Argv); err != nil {
		return err
	}
	return refuse(c.Timeout <= 0 || c.Timeout > MaxCommandTime, "range", "", "a command has %d seconds, from 1 to %d are possible", c.Timeout,
		MaxCommandTime)
}

// Argv checks a program and its arguments, as execve(2) gets them. No shell reads
// them.
func Argv(argv []string) error {
	if len(argv) == 0 || !path.IsAbs(argv[0]) || path.Clean(argv[0]) != argv[0] || argv[0] == "/" {
		return invalid("argv", "as in [/usr/sbin/fstrim, -A]; a shell is [/bin/sh, -c, \"…\"]",
			"a command begins with the absolute path of a program")
	}
	size := 0
	for _, a := range argv {
		size += len(a) + 1
		if strings.ContainsRune(a, 0) {
			return invalid("argv", "", "an argument holds a NUL byte")
		}
	}
	return refuse(size > MaxCommand, "argv", "put it into a script", "the arguments have %d bytes, at most %d are possible", size, MaxCommand)
}

// Condition checks a precondition of acts that disturb.
func Condition(c spec.Condition) error {
	switch kinds := Given(c.File != "", c.Absent != "", c.Unit != "", c.Command != nil); {
	case kinds != 1:
		return invalid("condition", "as in {absent: /run/backup-runs}",
			"a precondition has one of file, absent, unit and command, this one has %d", kinds)
	case c.Command != nil:
		return command(*c.Command)
	case c.Unit != "":
		return Unit(c.Unit)
	}
	return filePath(c.File + c.Absent)
}

func filePath(name string) error {
	return refuse(!path.IsAbs(name) || path.Clean(name) != name || name == "/" || hasHidden(name), "path", "as in /run/ready",
		"%.80q is not the absolute path of a file", name)
}

// MaxSlots is how many nodes of one group may be disturbed at once.
const MaxSlots = 10_000

// SlotGroup checks the name of a group, as FleetLock has it.
func SlotGroup(group string) error {
	const chars = lower + upper + digits + ".-"
	return refuse(len(group) > 128 || !spelled(group, chars, chars) || strings.Trim(group, ".") == "", "group",
		"letters, digits, dots and dashes", "%.80q is not the name of a group", group)
}

// Slot checks who counts the nodes of a group, and how many there may be.
func Slot(s spec.Slot) error {
	var f fields
	f.add("max", refuse(s.Max < 1 || s.Max > MaxSlots, "range", "", "max is %d, from 1 to %d are possible", s.Max, MaxSlots))
	switch {
	case (s.FleetLock == "") == (s.Directory == ""):
		f.add("", invalid("slot", "as in {group: storage, max: 1, fleetlock: \"https://lock.example\"}",
			"a slot has one of fleetlock and directory"))
	case s.Directory != "":
		f.add("directory", filePath(s.Directory))
		f.add("directory", replaces(s.Directory))
	default:
		u, err := url.Parse(s.FleetLock)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
			u.Fragment != "" || strings.HasSuffix(u.Path, "/") {
			f.add("fleetlock", invalid("address", "as in https://lock.example:3333, without /v1 and without a slash at the end",
				"%.80q is not the address of a server", s.FleetLock))
		}
	}
	return f.err()
}
