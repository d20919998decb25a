// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
)

// cord is the power cord of a node with a state disk, and a hand that pulls it at
// random.
type cord struct {
	*Fleet
	node    machine.Options
	forgets bool // a cut takes from the disk all that it was not told to flush
	rand    *rand.Rand
	cuts    map[string]int // by stage
}

// moment is a span of a boot: it begins when a line stands on the console, or, where
// that never comes, another one.
type moment struct {
	line, or string
	within   time.Duration
}

// agentUnit is how systemd writes it on the console.
const agentUnit = "\x1b[0;1;39mcaisson-agent.service"

// stages of a boot, each with the line that begins it. What a kexec starts goes
// through the first of them again.
var stages = []struct{ name, line string }{
	{"kernel", "Linux version"},
	{"loader, before its state disk", "caisson: loader of fleet"},
	{"state disk open, no address yet", "caisson: state disk"},
	{"registry asked", "caisson: address"},
	{"layer fetched and verified", "caisson: overlay of node"},
	{"last good verified", "caisson: booting the last good"},
	{"kexec", "caisson: kexec: kernel"},
	{"root entered, before the agent's first run", "caisson: entering the layer"},
	{"agent's first run", "Starting " + agentUnit},
	{"after the agent's first run", "Started " + agentUnit},
}

// stageOf returns the stage whose line is the last one on the console.
func stageOf(console string) string {
	name, last := "firmware", -1
	for _, s := range stages {
		if at := strings.LastIndex(console, s.line); at > last {
			name, last = s.name, at
		}
	}
	return name
}

// mishaps are what no boot may say, whatever the cut before it left: a cut spoils
// nothing that was whole.
var mishaps = []string{"damaged", "is not used", "can only be read", "is lost", "refused", "the boot ends here", "no way back", "Kernel panic", "EXT4-fs error"}

// start boots the node with what the cut before left.
func (c *cord) start(t *testing.T) *machine.Machine {
	t.Helper()
	o := c.node
	if c.forgets {
		// The cluster table of the upper image is in QEMU's memory until the guest
		// flushes. It dies with QEMU, and all that was written since with it.
		sh(t, `qemu-img create -q -f qcow2 -F raw -b "$1" "$1.upper"`, o.Disk)
		o.Extra = append(slices.Clone(o.Extra), "-drive", "file="+o.Disk+".upper,format=qcow2,if=virtio,cache=writeback")
		o.Disk = ""
	}
	return c.Fleet.start(t, o)
}

// pull takes the power at a random time of a moment.
func (c *cord) pull(t *testing.T, m *machine.Machine, at moment) {
	t.Helper()
	waitFor(t, m, 0, at.line, at.or)
	after := time.Duration(c.rand.Int64N(int64(at.within)))
	time.Sleep(after)
	m.PowerCut()
	c.off(t, m)
	stage := stageOf(m.Console.String())
	c.cuts[stage]++
	t.Logf("cut %v after %q: %s", after.Round(time.Millisecond), at.line, stage)
}

// off settles the disk of a machine that went off, and looks at what its boot said.
func (c *cord) off(t *testing.T, m *machine.Machine) {
	t.Helper()
	if upper := c.node.Disk + ".upper"; c.forgets {
		sh(t, `qemu-img commit -q "$1"`, upper)
		if err := os.Remove(upper); err != nil {
			t.Fatal(err)
		}
	}
	c.wentWell(t, m)
}
