// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"slices"
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
	var check, order error
	if o.Check != nil {
		check = command(*o.Check)
	}
	if o.Order != nil {
		order = Order(*o.Order)
	}
	return cmp.Or(command(o.Exec), check, order,
		refuse(!digest.Valid(o.ID), "digest", "", "%.80q is not the id of an operation", o.ID),
		oneOf(o.Type, "a type of operation", []string{spec.Cron, spec.OneShot}))
}

// Order checks the preconditions, the slot and the drain of an act that disturbs.
func Order(o spec.Order) error {
	for _, c := range o.When {
		if err := Condition(c); err != nil {
			return err
		}
	}
	var slot, drain error
	if o.Slot != "" {
		slot = SlotGroup(o.Slot)
	}
	if d := o.Drain; d != nil {
		drain = cmp.Or(command(d.Check), command(d.Exec), command(d.Undo))
	}
	return cmp.Or(slot, drain)
}

func command(c spec.Command) error {
	return cmp.Or(Argv(c.Argv), refuse(c.Timeout <= 0 || c.Timeout > MaxCommandTime, "range", "",
		"a command has %d seconds, from 1 to %d are possible", c.Timeout, MaxCommandTime))
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

// Words that say when and how a script runs; the first of each is meant when none
// is given.
var (
	RerunPolicies    = []string{"always", "never", "once_successfully"}
	BlockingPolicies = []string{"foreground", "foreground_halt_pod_on_failure", "background"}
	OnceScopes       = []string{"per-root", "per-machine"}
	FailurePolicies  = []string{"degrade", "rollback"}
)

// MaxScript caps one script, in bytes: it travels in the node's overlay.
const MaxScript = 256 << 10

// MaxTimeout and MaxInterval cap times, in seconds.
const (
	MaxTimeout  = 1 << 31
	MaxInterval = 1 << 33
)

// reservedScripts are files of the node beside a script.
var reservedScripts = []string{"run.json", "log", "log.old", "log.launch"}

// Script checks the name of a script, which is the name of its file on a node.
func Script(name string) error {
	return cmp.Or(ID(name), refuse(slices.Contains(reservedScripts, name), "id", "take another one",
		"the name %q is used by a file beside the script", name))
}

// Interpreter returns the words that run a script before its own name: what its
// first line says, as the kernel reads it, or sh(1) where it says nothing.
func Interpreter(script string) []string {
	first, ok := strings.CutPrefix(script, "#!")
	if !ok {
		return []string{"/bin/sh"}
	}
	first, _, _ = strings.Cut(first, "\n")
	first = strings.TrimSpace(first)
	if n := strings.IndexAny(first, " \t"); n >= 0 {
		return []string{first[:n], strings.TrimSpace(first[n:])} // one option, whatever it holds
	}
	return []string{first}
}

// scriptText checks the text of a script.
func scriptText(text string) error {
	switch program := Interpreter(text)[0]; {
	case len(text) > MaxScript:
		return invalid("too-large", "keep it in a package", "a script must be at most %d KiB", MaxScript>>10)
	case !path.IsAbs(program) || strings.Contains(program, "\x00"):
		return invalid("script", "begin with #!/bin/bash", "the interpreter %.80q is not an absolute path", program)
	}
	return nil
}

// Exec checks a script with all that says when it runs.
func Exec(x spec.Exec) error {
	var f fields
	f.add("name", Script(x.Name))
	f.add("data", refuse(x.Data == "", "required", "", "the script is empty"))
	f.add("data", scriptText(x.Data))
	f.given("revert", x.Revert, scriptText)
	for _, a := range x.Args {
		f.add("args", refuse(strings.Contains(a, "\x00"), "text", "", "an argument has a NUL"))
	}
	for name, value := range x.Env {
		f.add("env", Env(name))
		f.add("env", refuse(strings.Contains(value, "\x00"), "text", "", "the value of %s has a NUL", name))
	}
	for name, secret := range x.SecretEnv {
		f.add("secretEnv", Env(name))
		f.add("secretEnv", Secret(secret))
		if _, twice := x.Env[name]; twice {
			f.add("secretEnv", invalid("contradiction", "keep one of the two", "%s has a value and a secret", name))
		}
	}
	f.add("rerun", optional(x.Rerun, RerunPolicies))
	f.add("blocking", optional(x.Blocking, BlockingPolicies))
	f.add("once", optional(x.Once, OnceScopes))
	f.add("onFailure", optional(x.OnFailure, FailurePolicies))
	f.add("onFailure", refuse(x.OnFailure == "rollback" && x.Blocking == "background", "combination", "",
		"a change cannot wait for a script in the background to take it back"))
	f.add("timeout", refuse(x.Timeout < 0 || x.Timeout > MaxTimeout, "range", "a number of seconds; every script has an end",
		"%d seconds is not a timeout", x.Timeout))
	f.add("memoryMax", within(x.MemoryMax, MinMemory, MaxMemory, "bytes of memory"))
	f.add("cpuQuota", within(x.CPUQuota, 1, MaxCPU, "percent of a processor"))
	f.add("tasksMax", within(x.TasksMax, 1, MaxTasks, "tasks"))
	f.add("rerunInterval", interval(x.RerunInterval))
	f.add("retryInterval", interval(x.RetryInterval))
	f.add("rerunMax", refuse(x.RerunMax < 0, "range", "", "a count is not negative"))
	f.add("retryMax", refuse(x.RetryMax < 0, "range", "", "a count is not negative"))
	return f.err()
}

// Bounds of a script's limits. With less memory not even a shell starts.
const (
	MinMemory = 4 << 20
	MaxMemory = 1 << 50
	MaxCPU    = 1_000_000
	MaxTasks  = 1 << 22
)

// within checks a number that may be left out.
func within(n, low, high int64, what string) error {
	return refuse(n != 0 && (n < low || n > high), "range", fmt.Sprintf("from %d to %d", low, high),
		"%d is not a number of %s that a script can be given", n, what)
}

// optional checks a word that may be left out.
func optional(word string, words []string) error {
	if word == "" {
		return nil
	}
	return oneOf(word, "one of "+strings.Join(words, ", "), words)
}

// interval checks seconds: -1 is "never by time".
func interval(n int64) error {
	return refuse(n < -1 || n > MaxInterval, "range", "", "%d seconds is not an interval", n)
}

// MaxSecret caps the value of one secret, in bytes: it travels in the node's overlay.
const MaxSecret = 64 << 10

// Secret checks the name of a secret. It becomes the name of a file.
func Secret(name string) error {
	const chars = lower + upper + digits
	return refuse(len(name) > 64 || !spelled(name, chars, chars+"_.-") || strings.HasSuffix(name, "."), "secret",
		"letters, digits and _ - .; it begins with a letter or a digit and does not end with a dot, at most 64",
		"%.80q is not the name of a secret", name)
}

// SecretObject checks the name of a Secret of Kubernetes.
func SecretObject(name string) error {
	for part := range strings.SplitSeq(name, ".") {
		if !label(part) || len(name) > 253 {
			return invalid("secret-object", "lower-case letters, digits, hyphens and dots", "%.80q is not the name of a Secret of Kubernetes", name)
		}
	}
	return nil
}

// SecretKey checks a key of the data of a Secret of Kubernetes.
func SecretKey(name string) error {
	const chars = lower + upper + digits + "_.-"
	return refuse(len(name) > 253 || !spelled(name, chars, chars) || name == "." || strings.HasPrefix(name, ".."), "secret-key",
		"letters, digits and _ - .", "%.80q is not a key of a Secret of Kubernetes", name)
}

// Password checks whose password is a secret. Root has none: nobody logs in as root.
func Password(p spec.Password) error {
	var f fields
	f.add("user", User(p.User))
	f.add("user", refuse(p.User == "root", "user-name", "", "root cannot be managed as a user"))
	f.add("secret", Secret(p.Secret))
	return f.err()
}
