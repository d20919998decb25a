// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/require"
)

// Where the power is cut: mostly where the state disk is written to. What stands
// here twice is twice as likely; boots that get to systemd cost minutes.
var moments = []moment{
	{"caisson: state disk", "caisson: entering the layer", 2 * time.Second}, // whose it is, what is lost
	{"caisson: address", "caisson: entering the layer", 3 * time.Second},    // floor and overlay
	{"caisson: address", "caisson: entering the layer", 3 * time.Second},
	{"caisson: overlay of node", "caisson: entering the layer", 12 * time.Second}, // layer
	{"caisson: overlay of node", "caisson: entering the layer", 12 * time.Second},
	{"caisson: overlay of node", "caisson: entering the layer", 12 * time.Second},
	{"caisson: fetched", "caisson: entering the layer", 5 * time.Second}, // layer, count of attempts, identity
	{"caisson: fetched", "caisson: entering the layer", 5 * time.Second},
	{"caisson: kexec: kernel", "caisson: entering the layer", 3 * time.Second}, // count of attempts
	{"caisson: entering the layer", "login:", 10 * time.Second},                // what systemd keeps
	{"Starting " + agentUnit, "login:", 10 * time.Second},                      // journal, scripts, promotion, what that frees
}

// TestLongPowerCuts takes the power from a node at random moments: at its first
// boots, while it runs and takes a change, and on its way to another layer through
// another kernel command line: 26 cuts in the life of a disk that is empty at first. Each
// must leave what boots without a word about damage; at the end the node runs the newest
// generation, and nothing half made is on its disk.
func TestLongPowerCuts(t *testing.T) {
	require.Long(t)
	powerCuts(t, false)
}

// TestLongPowerCutsOfADiskThatForgets: what was not flushed is gone with each cut.
func TestLongPowerCutsOfADiskThatForgets(t *testing.T) {
	require.Long(t)
	powerCuts(t, true)
}

func powerCuts(t *testing.T, forgets bool) {
	t.Helper()
	require.Tool(t, "qemu-img", "dumpe2fs", "e2fsck")
	c := &cord{Fleet: fleet(t), cuts: map[string]int{}, forgets: forgets}
	seed := seedOf(t)

	layers := [2]string{c.index(t)}
	c.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	c.build(t)
	layers[1] = c.index(t)
	if forgets {
		slices.Reverse(layers[:])
	}
	c.rand = rand.New(rand.NewPCG(seed, 0))
	c.series(t, layers[0], layers[1])
	for _, s := range stages {
		t.Logf("%3d cuts: %s", c.cuts[s.name], s.name)
	}
}

// seedOf returns the seed of the moments: CAISSON_SEED, or one that is drawn.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("CAISSON_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CAISSON_SEED=%d pulls the cord at the same moments again", seed)
	return seed
}

// series cuts 26 times.
func (c *cord) series(t *testing.T, from, to string) {
	c.node = c.byHand(t, c.withDisk(t))
	const oneLine, another, before, after = "args: [transparent_hugepage=never]", "args: [transparent_hugepage=madvise]", "kernel.panic: 30\n", "kernel.panic: 40\n"
	c.publish(t, "--layer", from)
	c.someCuts(t, 12)

	m := c.start(t)
	s := c.login(t, m)
	c.edit(t, before, after)
	c.publish(t, "--layer", from)
	go s.Run(t.Context(), "sudo caisson-agent sync") // it has no end: the machine has
	c.pull(t, m, moment{"login:", "login:", 4 * time.Second})

	c.edit(t, oneLine, another)
	c.publish(t, "--layer", to)
	c.someCuts(t, 13)

	c.edit(t, after, before)
	c.publish(t, "--layer", to)
	c.whole(t)
}

// someCuts begins boots, and lets none of them live long.
func (c *cord) someCuts(t *testing.T, n int) {
	t.Helper()
	for range n {
		c.pull(t, c.start(t), moments[c.rand.IntN(len(moments))])
	}
}

// whole boots the node, and finds nothing on it that tells of the cuts.
func (c *cord) whole(t *testing.T) {
	m := c.start(t)
	s := c.login(t, m)
	if st := status(t, s); st.Health != "ok" || st.Sync != "current" || st.Source != "fetched" {
		t.Errorf("after the cuts: %+v", st)
	}
	if got := run(t, s, "cat /proc/sys/kernel/panic; grep -o transparent_hugepage=[a-z]* /proc/cmdline"); got != "30\ntransparent_hugepage=madvise" {
		t.Errorf("the newest generation is not in effect: %q", got)
	}
	if got := run(t, s, "systemctl --failed --no-legend --plain"); got != "" {
		t.Errorf("failed units: %s", got)
	}
	if left := run(t, s, "sudo find /var/lib/caisson -name '*.partial' -o -name '*.damaged' -o -name '.*.json.*'"); left != "" {
		t.Errorf("left on the state disk:\n%s", left)
	}
	shutDown(t, m, s)
	c.off(t, m)
	isClean(t, c.node)
}
