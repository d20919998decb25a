// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// act is what a running node does when its power is cut.
type act struct {
	name    string
	prepare func() // what is published before
	command string // ends when all of it is done
}

// cutsOfAct is how often the power is cut in each act, and again in the boot after that.
const cutsOfAct = 8

// TestLongPowerCutsOfARunningNode takes the power from a running node: while it fetches a layer,
// lets root in, follows a rotation of the fleet's keys, makes itself another key. All cuts begin at
// one moment of one machine, whose memory was kept, and fall anywhere in what the whole act takes.
// The boot after each is cut when it has entered a layer; every second one reaches no registry. At
// the end of each act the node is up, has what is newest, and lets in nobody who was let in before.
func TestLongPowerCutsOfARunningNode(t *testing.T) {
	require.Long(t)
	require.Tool(t, "qemu-img")
	c := &cord{Fleet: fleet(t, leanSite...), cuts: map[string]int{}}
	c.rand = rand.New(rand.NewPCG(seedOf(t), 0))
	c.withRescueKey(t)
	if err := os.WriteFile(filepath.Join(c.Dir, "id.pub"), ssh.MarshalAuthorizedKey(c.Key.PublicKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	c.node = c.byHand(t, c.withDisk(t))
	sh(t, `qemu-img convert -f raw -O qcow2 "$1" "$1.running"`, c.node.Disk)

	m := c.from(t, ".running", "-qmp", "unix:"+c.qmp()+",server=on,wait=off")
	s := c.login(t, m)
	first := c.well(t, s)
	run(t, s, "sync")
	c.keep(t)
	m.PowerCut()

	for _, a := range []act{
		{"fetch of a layer", func() {
			c.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
			c.build(t)
			c.publish(t)
		}, "sudo caisson-agent sync"},
		{"rescue", func() {
			c.must(t, "rescue", "site.yaml", "alpha", "--to", c.To(), "--code", first.Rescue.Code, "--for", "1h", "--ssh-key", "id.pub", "--console",
				"--reason", "disk full", "--key", "keys/rescue.key")
		}, "sudo systemctl restart caisson-agent; until sudo caisson-agent status | grep '^rescue .* open for '; do sleep 1; done"},
		{"rotation of the fleet's keys", func() {
			c.must(t, "keys", "generate", "keys/operator2")
			c.edit(t, "operator: keys/operator.pub", "operator: keys/operator2.pub")
			c.must(t, "keys", "rotate", "site.yaml", "--root-key", "keys/root.key")
			c.must(t, "publish", "site.yaml", "--to", c.To(), "--key", "keys/operator2.key")
		}, "sudo caisson-agent sync"},
		{"rotation of the node's key", func() {}, "sudo caisson-agent recipient rotate"},
	} {
		t.Run(a.name, func(t *testing.T) {
			a.prepare()
			c.cutsOf(t, a, first)
		})
	}
	t.Logf("cuts: %v", c.cuts)
}

func (c *cord) qmp() string { return filepath.Join(c.Dir, "qmp") }

// from starts the node from a copy of a kept disk, "" for what a cut has left.
func (c *cord) from(t *testing.T, kept string, more ...string) *machine.Machine {
	t.Helper()
	o := c.node
	at := o.Disk + ".qcow2"
	if kept != "" {
		sh(t, `cp "$1" "$2"`, o.Disk+kept, at)
	}
	o.Disk, o.Extra = "", append([]string{"-drive", "file=" + at + ",format=qcow2,if=virtio,cache=writeback"}, more...)
	return c.Fleet.start(t, o)
}

// keep keeps memory and disk of the machine that runs.
func (c *cord) keep(t *testing.T) {
	t.Helper()
	conn, err := net.Dial("unix", c.qmp())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // it was for two questions
	answers := json.NewDecoder(conn)
	for _, ask := range []string{`{"execute":"qmp_capabilities"}`, `{"execute":"human-monitor-command","arguments":{"command-line":"savevm running"}}`} {
		if _, err := fmt.Fprintln(conn, ask); err != nil {
			t.Fatal(err)
		}
		for {
			var answer struct{ Return, Error any }
			if err := answers.Decode(&answer); err != nil {
				t.Fatal(err)
			}
			if said, _ := answer.Return.(string); answer.Error != nil || said != "" {
				t.Fatalf("%s: %v %s", ask, answer.Error, said)
			}
			if answer.Return != nil {
				break
			}
		}
	}
	sh(t, `cp "$1.qcow2" "$1.running"`, c.node.Disk)
}

var entered = regexp.MustCompile(`caisson: (?:overlay of node alpha|booting the last good overlay), generation (\d+)`)

// cutsOf cuts a node in an act, and in the boots after it.
func (c *cord) cutsOf(t *testing.T, a act, first spec.Status) {
	t.Helper()
	goesOn := []string{"-loadvm", "running"}
	m := c.from(t, ".running", goesOn...)
	s := c.session(t, m)
	begun := time.Now()
	run(t, s, a.command)
	takes := time.Since(begun)
	m.PowerCut()
	for n := range cutsOfAct {
		m := c.from(t, ".running", goesOn...)
		s := c.session(t, m)
		after := time.Duration(c.rand.Int64N(int64(takes * 6 / 5)))
		go s.Run(t.Context(), a.command) // it has no end: the machine has
		time.Sleep(after)
		m.PowerCut()
		c.cuts[a.name]++
		t.Logf("cut %v after the begin of a %s, which takes %v", after.Round(time.Millisecond), a.name, takes.Round(time.Millisecond))

		online := c.node.Forwards
		if n%2 == 1 {
			c.node.Forwards = nil
		}
		m = c.from(t, "")
		c.node.Forwards = online
		waitFor(t, m, 0, "caisson: entering the layer")
		said := entered.FindAllStringSubmatch(m.Console.String(), -1)
		if len(said) == 0 {
			t.Fatalf("it enters nothing that it names:\n%s", m.Console.Tail(40))
		}
		g, err := strconv.ParseUint(said[len(said)-1][1], 10, 64)
		if err != nil || g < first.Generation {
			t.Errorf("it enters generation %d, %v; before %d was proved", g, err, first.Generation)
		}
		m.PowerCut()
		c.cuts["boot after a "+a.name]++
		c.wentWell(t, m)
	}
	m = c.from(t, "")
	s = c.login(t, m)
	if st := c.well(t, s); st.Sync != spec.SyncCurrent {
		t.Errorf("after the cuts in a %s: %+v", a.name, st)
	}
	if refused, err := m.Refused(t.Context(), "root", c.Key); err != nil || !refused {
		t.Errorf("root gets in after the cuts in a %s: %v", a.name, err)
	}
	m.PowerCut()
	c.wentWell(t, m)
}

// well waits until the node is: on a busy host a script may need a second look.
func (c *cord) well(t *testing.T, s *machine.Session) (st spec.Status) {
	t.Helper()
	if !becomes(s.Console, func() bool { st = c.judged(t, s); return st.Health == spec.HealthOK }) {
		t.Fatalf("it is not well: %+v", st)
	}
	return st
}

// session logs in to a machine that has long come up.
func (c *cord) session(t *testing.T, m *machine.Machine) *machine.Session {
	t.Helper()
	s, err := m.Login(t.Context(), "admin", c.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) // the test is over
	return s
}
