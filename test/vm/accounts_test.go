// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// everybody is what a node knows of its users.
const everybody = "sudo sh -c 'cd /etc; cat passwd group shadow gshadow subuid subgid ssh/authorized_keys.d/*; ls -l --time-style=+ sudoers.d ssh/authorized_keys.d'"

// sameRoot is what another boot, or another root, would not have in common.
const sameRoot = "cat /proc/sys/kernel/random/boot_id; systemctl show -P ActiveEnterTimestampMonotonic systemd-journald"

// crowd is a fleet with layers that differ in one user, ann: without her, and with one of
// two keys.
type crowd struct {
	*Fleet
	keys   [3]ssh.Signer
	layers [3]string // their indexes
	is     int       // what the site says now
	m      *machine.Machine
}

func (c *crowd) users(which int) string {
	text := "    users:\n"
	if which > 0 {
		text += fmt.Sprintf("      - user_name: ann\n        user_sudo: true\n        user_sshkeys: [%q]\n", strings.TrimSpace(string(ssh.MarshalAuthorizedKey(c.keys[which].PublicKey()))))
	}
	return text
}

func (c *crowd) say(t *testing.T, which int) {
	t.Helper()
	c.edit(t, c.users(c.is), c.users(which))
	c.is = which
}

// TestLongAccounts has a node take layers that differ in their accounts only over its
// running root: a user comes, her key is changed for another, that is rolled back, she
// leaves; the agent is killed, and the power goes, in the middle of such a change. It takes
// a quarter of an hour.
func TestLongAccounts(t *testing.T) {
	require.Long(t)
	c := &crowd{Fleet: fleet(t, "layer:\n", "layer:\n  persist: [/home]\n"), keys: [3]ssh.Signer{nil, newKey(t), newKey(t)}}
	c.layers[0] = c.index(t)
	for which := 1; which < 3; which++ {
		c.say(t, which)
		c.build(t)
		c.layers[which] = c.index(t)
	}
	o := c.byHand(t, c.withDisk(t))
	c.m = c.start(t, o)
	s := c.login(t, c.m)
	c.live(t, s)
	c.killed(t, s)
	c.cut(t, s, o)
}

// publishes publishes a layer for what the site says then.
func (c *crowd) publishes(t *testing.T, which int) {
	t.Helper()
	c.say(t, which)
	c.publish(t, "--layer", c.layers[which])
}

// takes publishes a layer, and the node has it.
func (c *crowd) takes(t *testing.T, s *machine.Session, which int) {
	t.Helper()
	c.publishes(t, which)
	run(t, s, "sudo caisson-agent sync")
	if st := status(t, s); st.Health != spec.HealthOK || st.Sync != spec.SyncCurrent || st.Staged != "" {
		t.Errorf("with layer %d: %+v", which, st)
	}
	c.onlyKey(t, which)
}

// onlyKey wants ann to come in with one key, or none, and not with others.
func (c *crowd) onlyKey(t *testing.T, which int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for i := 1; i < 3; i++ {
		if i == which {
			continue
		}
		if refused, err := c.m.Refused(ctx, "ann", c.keys[i]); !refused || err != nil {
			t.Fatalf("key %d is let in, where only %d is hers: %v", i, which, err)
		}
	}
	if which == 0 {
		return
	}
	s, err := c.m.Login(ctx, "ann", c.keys[which])
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() // the command has ended
	if got := run(t, s, "sudo id -u; test -e note || echo hers >note; cat note; sync"); got != "0\nhers" {
		t.Errorf("with key %d she finds %q", which, got)
	}
}

// live is a root that does not change while its users do.
func (c *crowd) live(t *testing.T, s *machine.Session) {
	root, without := run(t, s, sameRoot), run(t, s, everybody)
	c.onlyKey(t, 0)
	first := status(t, s)
	c.takes(t, s, 1)
	with := run(t, s, everybody)
	c.takes(t, s, 2)

	run(t, s, "sudo caisson-agent rollback >&2 || [ $? -eq 3 ]")
	c.onlyKey(t, 1)
	if got := run(t, s, everybody); got != with {
		t.Errorf("rolled back it is\n%s\nbefore\n%s", got, with)
	}
	run(t, s, "sudo caisson-agent forward >&2 || [ $? -eq 3 ]; sudo caisson-agent sync")
	c.onlyKey(t, 2)

	c.takes(t, s, 0)
	if got := run(t, s, everybody); got != without {
		t.Errorf("without her it is\n%s\nat first\n%s", got, without)
	}
	if got := run(t, s, "sudo cat /home/ann/note"); got != "hers" {
		t.Errorf("her home has %q", got)
	}
	if st := status(t, s); st.RootID != first.RootID || st.Layer != first.Layer {
		t.Errorf("back on the layer that is stacked: %+v", st)
	}
	if got := run(t, s, sameRoot); got != root {
		t.Errorf("it is another root: %s, before %s", got, root)
	}
}

// soon publishes a layer in which she comes, and runs a script on the node as soon as
// something of that has begun.
func (c *crowd) soon(t *testing.T, s *machine.Session, script string) {
	t.Helper()
	c.publishes(t, 2)
	run(t, s, "sudo systemd-run -q --collect sh -c 'until test -e /etc/ssh/authorized_keys.d/ann; do sleep 0.01; done; "+script+"'")
	run(t, s, "sudo systemd-run -q --collect caisson-agent sync")
}

func (c *crowd) killed(t *testing.T, s *machine.Session) {
	c.soon(t, s, "pkill -KILL -x caisson-agent; echo the agent is killed >/dev/ttyS0")
	waitFor(t, c.m, 0, "the agent is killed")
	var st spec.Status
	if !becomes(s.Console, func() bool { st = status(t, s); return st.Health == spec.HealthOK && st.Sync == spec.SyncCurrent }) {
		t.Fatalf("after the agent was killed: %+v", st)
	}
	c.onlyKey(t, 2)
	c.takes(t, s, 0)
}

// cut takes the power from the node in the middle of a change. Without a registry it comes
// up with what it had or with what it was to have, then with the latter.
func (c *crowd) cut(t *testing.T, s *machine.Session, o machine.Options) {
	before := status(t, s)
	from := c.m.Console.Len()
	c.soon(t, s, "echo she comes >/dev/ttyS0")
	waitFor(t, c.m, from, "she comes")
	after := mathrand.N(2 * time.Second)
	time.Sleep(after)
	c.m.PowerCut()

	alone := o
	alone.Name, alone.Forwards = "alpha-alone", map[string]string{guestRegistry: "127.0.0.1:1"} // nobody listens there
	c.m = c.start(t, alone)
	s = c.login(t, c.m)
	st := status(t, s)
	t.Logf("cut %v after the change began: without a registry it runs generation %d, before %d", after.Round(time.Millisecond), st.Generation, before.Generation)
	if st.Health != spec.HealthOK || st.Source != spec.SourceCached {
		t.Errorf("without a registry: %+v", st)
	}
	if st.Generation == before.Generation {
		c.onlyKey(t, 0)
	} else {
		c.onlyKey(t, 2)
	}
	shutDown(t, c.m, s)

	o.Name = "alpha-again"
	c.m = c.start(t, o)
	s = c.login(t, c.m)
	c.holds(t, s)
	s = c.reboot(t, c.m, s)
	c.holds(t, s)
	shutDown(t, c.m, s)
	isClean(t, o)
}

// holds wants the node to be well on a root that is stacked of the newest layer.
func (c *crowd) holds(t *testing.T, s *machine.Session) {
	t.Helper()
	if st := status(t, s); st.Health != spec.HealthOK || st.Sync != spec.SyncCurrent || st.Staged != "" || len(st.Drift) > 0 {
		t.Errorf("after a boot: %+v", st)
	}
	c.onlyKey(t, 2)
	if left := run(t, s, "sudo find /home /etc -xdev -name '.caisson-*'; sudo find /var/lib/caisson -name '*.partial' -o -name '*.damaged'; systemctl --failed --no-legend --plain"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
