// SPDX-License-Identifier: Apache-2.0

// Package screen words what the person before a node reads: of a loader that cannot boot it what was
// tried, why it failed, what to do, and what happens next, on every console; of a running one what
// it is, on the terminal of who has logged in.
//
// It only words: what is tried, and when again, is the business of package initramfs, and what is
// asked of a node that of cmd/caisson-agent. Nobody else imports it. Nobody logs in at a loader but by
// a statement, see package rescue.
package screen

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Failure is a boot that did not succeed.
type Failure struct {
	Registry string
	Machine  trust.Identity
	Address  string // by which the node has asked; "" where it has none
	Tries    int
	Since    time.Duration // since the first of them
	Err      error         // of the last one
	NoWay    error         // why nothing that ran well before can run; nil where there is nothing
	Disk     string        // the state disk, "" without one
	Next     time.Duration // until the next try; 0 where the machine starts over
	Over     time.Duration // until then
	Now      time.Time
	Rescue   string // how an operator is let in, or that one is; "" where no rescue key counts
}

// rule sets the screen apart from the lines of the kernel.
var rule = strings.Repeat("-", 72)

// Lines are the screen.
func (f Failure) Lines() []string {
	what, do := f.words()
	lines := []string{rule, "THIS NODE DOES NOT COME UP: " + what}
	row := func(name, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-7s %s", name, fmt.Sprintf(format, args...)))
	}
	if f.Tries > 0 {
		row("tried", "registry %s, as %s; try %d, %s since the first", f.Registry, plain.With(f.who(), ", from ", f.Address), f.Tries,
			f.Since.Round(time.Second))
	}
	row("failed", "%v", f.Err)
	if f.Tries > 0 {
		row("back", "%s", f.back())
	}
	row("do", "%s", do)
	if f.Rescue != "" {
		row("rescue", "%s", f.Rescue)
	}
	if f.Next > 0 {
		row("next", "it tries again in %s, at %s UTC by its clock; nothing needs to be done here for that", f.Next,
			f.Now.Add(f.Next).UTC().Format(time.TimeOnly))
	} else {
		row("next", "the machine starts over in %s, at %s UTC by its clock", f.Over, f.Now.Add(f.Over).UTC().Format(time.TimeOnly))
	}
	return append(lines, rule)
}

// words say what is wrong, and what a person can do about it.
func (f Failure) words() (what, do string) {
	code := refusal.Of(f.Err)
	var little interface{ More() int64 } // in MiB, see package stage
	switch {
	case f.Tries == 0:
		return "its loader ends", "read what it said above; write the boot files again with 'caisson netboot' where they may be at fault"
	case code != "":
		do = (&refusal.Refusal{Code: code}).Hint()
		return fmt.Sprintf("what the registry has for it is refused (%s)", code), do
	case errors.As(f.Err, &little):
		return "it has too little memory", fmt.Sprintf("give it %d MiB more, or a state disk (layer.stateDisk), which takes "+
			"the images; or leave something out of its layer", little.More())
	case f.Address == "":
		return "it has no address", "look at the cable, at DHCP, and whether the loader has the module of this network card " +
			"(layer.kernel.modules)"
	case errors.Is(f.Err, oci.ErrNotFound):
		return "nothing is published for it", "put this machine into the site by an address or UUID above, and run 'caisson " +
			"publish'; 'caisson unknown' has the line for it"
	}
	return "the registry does not answer as it should",
		"look at the registry, its name, its certificate and its clock, and at the way from " + f.Address + " to it"
}

func (f Failure) who() string {
	var names []string
	if f.Machine.Node != "" {
		names = append(names, f.Machine.Node)
	}
	names = append(names, plain.Each(f.Machine.MACs, func(mac string) string { return "MAC " + mac })...)
	names = append(names, plain.Each(f.Machine.UUIDs, func(uuid string) string { return "UUID " + uuid })...)
	if len(names) == 0 {
		return "a machine without a name"
	}
	return strings.Join(names, ", ")
}

// back says why the node does not run what it ran before.
func (f Failure) back() string {
	switch {
	case f.NoWay != nil:
		return "the last good generation cannot run: " + f.NoWay.Error()
	case f.Disk == "":
		return "there is no state disk, so nothing that ran before is known"
	}
	return "no generation on state disk " + f.Disk + " has proved itself yet"
}

// Console speaks to the people who stand before the machine: every console that
// the kernel knows, through its log, with the severity that gets past "quiet".
type Console struct{ W io.Writer }

// Log is the kernel's.
const Log = "/dev/kmsg"

// OpenConsole returns the machine's, standard error where the kernel's log cannot be written to.
func OpenConsole() Console {
	f, err := os.OpenFile(Log, os.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Console{os.Stderr}
	}
	return Console{f}
}

// maxRecord is below what the kernel takes in one write; more of it is refused as
// a whole.
const maxRecord = 900

// Say prints each line as a record; what comes from outside forges none. <3> is "error": lower ones are hidden by
// "quiet", and a loader that says nothing looks like one that hangs.
func (c Console) Say(format string, args ...any) {
	for line := range strings.SplitSeq(plain.Sprintf(format, args...), "\n") {
		for len(line) > maxRecord {
			fmt.Fprintf(c.W, "<3>caisson: %s\n", line[:maxRecord])
			line = line[maxRecord:]
		}
		fmt.Fprintf(c.W, "<3>caisson: %s\n", line)
	}
}
