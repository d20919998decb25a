// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/ecdsa"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/rescue"
	"github.com/caisson-os/caisson/bootagent/rescue/letin"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fixture"
)

const rescueKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me"

// locked is a machine that follows a chain of keys with a rescue key, and has an sshd.
type locked struct {
	*machine
	root, key *ecdsa.PrivateKey
	keys      spec.Keys
	look      letin.Keeper
}

func newLocked(t *testing.T) *locked {
	t.Helper()
	l := &locked{machine: newMachine(t), root: fixture.NewKey(t), key: fixture.NewKey(t)}
	l.keys = l.FirstKeys(l.root)
	l.keys.Roles.Rescue = fixture.RoleOf(l.key)
	b := *l.bootstrap()
	b.Chain = l.Anchor(l.keys)
	data, err := spec.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.machine.root+paths.RunBootstrap, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(l.dropIn()), 0o755); err != nil {
		t.Fatal(err)
	}
	l.publish(1, layerNamed("a"), "10")
	l.boot()
	return l
}

func (l *locked) dropIn() string {
	return l.machine.root + "/etc/ssh/sshd_config.d/0-caisson-rescue.conf"
}

// turn is one look of the service, which asks.
func (l *locked) turn() (time.Duration, error) {
	l.t.Helper()
	return l.look.Look(l.t.Context(), session.Options{Root: l.machine.root, Kernel: &l.kernel, By: session.Service, Say: l.t.Logf}, 0)
}

func (l *locked) book() *rescue.Book {
	l.t.Helper()
	id, err := session.KernelID()
	if err != nil {
		l.t.Fatal(err)
	}
	b, err := rescue.Read(l.machine.root, id)
	if err != nil {
		l.t.Fatal(err)
	}
	return b
}

func (l *locked) isOpen(want bool) {
	l.t.Helper()
	if _, err := os.Stat(l.dropIn()); (err == nil) != want {
		l.t.Errorf("sshd is told to ask: %v, want %t", err, want)
	}
}

// TestLetIn: the whole way, from the code that is shown to the end of it.
func TestLetIn(t *testing.T) {
	l := newLocked(t)
	if left, err := l.turn(); left != 0 || err != nil {
		t.Fatalf("%s, %v", left, err)
	}
	l.isOpen(false)
	n := l.openOwn()
	st, err := n.Status(t.Context())
	if err != nil || st.Rescue == nil || st.Rescue.Code != l.book().Code {
		t.Fatalf("root is shown %+v, %v", st.Rescue, err)
	}
	n.Close() // only read
	l.Rescue(spec.Rescue{Code: st.Rescue.Code, SSHKeys: []string{rescueKey}, Lasts: 60, Reason: "disk full"}, l.key)
	left, err := l.turn()
	if err != nil || left <= 0 || left > time.Minute {
		t.Fatalf("%s, %v", left, err)
	}
	l.isOpen(true)
	l.isSaid()

	l.look = letin.Keeper{} // a restart of the agent prolongs nothing
	l.kernel.passed.Add(int64(40 * time.Second))
	if left, err = l.turn(); err != nil || left <= 0 || left > 20*time.Second {
		t.Fatalf("%s, %v", left, err)
	}
	l.kernel.passed.Add(int64(time.Minute))
	if left, err = l.turn(); left != 0 || err != nil {
		t.Fatalf("%s, %v", left, err)
	}
	l.isOpen(false)
	if left, err = l.turn(); left != 0 || err != nil { // the statement is still there
		t.Errorf("it is obeyed twice: %s, %v", left, err)
	}
	if b := l.book(); b.Open != nil || b.Times != 1 || b.Code == st.Rescue.Code {
		t.Errorf("%+v", b)
	}
}

// openOwn opens the node by the bootstrap of its loader.
func (l *locked) openOwn() *Node {
	l.t.Helper()
	n, err := Open(l.t.Context(), session.Options{Root: l.machine.root, Kernel: &l.kernel, Say: l.t.Logf}, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

// isSaid: status, why, report and what is kept have it, and the code is for root alone.
func (l *locked) isSaid() {
	l.t.Helper()
	n := l.openOwn()
	defer n.Close() // only read
	st, err := n.Apply(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	if r := st.Rescue; r == nil || !r.Open || r.Reason != "disk full" || len(r.Keys) != 1 || r.Code != "" {
		l.t.Errorf("status after a run: %+v", r)
	}
	w, err := n.Why(l.t.Context())
	if err != nil || w.Well || !strings.Contains(w.Findings[0].What, "rescue access is open") {
		l.t.Errorf("why: %+v, %v", w.Findings, err)
	}
	report, err := json.Marshal(spec.NewReport(st))
	if err != nil || !strings.Contains(string(report), `"reason":"disk full"`) {
		l.t.Errorf("report: %s, %v", report, err)
	}
	shown, err := n.Status(l.t.Context())
	if err != nil || shown.Rescue.Code == "" {
		l.t.Fatalf("%+v, %v", shown, err)
	}
	if _, err := n.Settle(l.t.Context(), shown); err != nil { // which keeps a look for root
		l.t.Fatal(err)
	}
	kept, err := os.ReadFile(l.machine.root + paths.RunStatus)
	if err != nil || strings.Contains(string(kept), shown.Rescue.Code) || !strings.Contains(string(kept), "disk full") {
		l.t.Errorf("what is kept: %v, %s", err, kept)
	}
	for _, said := range []string{string(report), l.encoded(w)} {
		if strings.Contains(said, shown.Rescue.Code) {
			l.t.Errorf("the code is in %s", said)
		}
	}
}

func (l *locked) encoded(v any) string {
	l.t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(data)
}

// TestARevokedKeyEndsIt: its thief is out when the node knows.
func TestARevokedKeyEndsIt(t *testing.T) {
	l := newLocked(t)
	if _, err := l.turn(); err != nil {
		t.Fatal(err)
	}
	l.Rescue(spec.Rescue{Code: l.book().Code, SSHKeys: []string{rescueKey}}, l.key)
	if left, err := l.turn(); left == 0 || err != nil {
		t.Fatalf("%s, %v", left, err)
	}
	l.revoke()
	if left, err := l.turn(); left != 0 || l.book().Open != nil {
		t.Errorf("%s, %v", left, err)
	}
	l.isOpen(false)
}

// revoke has another rescue key count, and the node know.
func (l *locked) revoke() {
	l.t.Helper()
	l.Keys(l.NextKeys(l.keys, func(k *spec.Keys) { k.Roles.Rescue = fixture.RoleOf(fixture.NewKey(l.t)) }), l.root)
	n := l.openOwn()
	defer n.Close() // it has walked
	if _, err := n.Sync(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// TestARevokedKeyWhileKeysAreMissing: the version that revokes it is damaged here, or is named and
// withheld. Nobody comes in, who is in goes, and no code is shown, until the version is there.
func TestARevokedKeyWhileKeysAreMissing(t *testing.T) {
	for name, miss := range map[string]func(l *locked){
		"damaged": func(l *locked) {
			l.revoke()
			if err := os.WriteFile(filepath.Join(l.machine.root, paths.State, "keys", "2.json"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"withheld": func(l *locked) {
			l.Current(spec.Fleet{Minimum: spec.Floor{Generation: 1}, KeysVersion: 2}, fixture.Now())
			n := l.openOwn()
			defer n.Close() // it has asked
			if _, err := n.Sync(t.Context()); refusal.Of(err) != refusal.KeysBehind {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLocked(t)
			if _, err := l.turn(); err != nil {
				t.Fatal(err)
			}
			l.Rescue(spec.Rescue{Code: l.book().Code, SSHKeys: []string{rescueKey}}, l.key)
			if left, err := l.turn(); left == 0 || err != nil {
				t.Fatalf("%s, %v", left, err)
			}
			miss(l)
			l.Rescue(spec.Rescue{Code: l.book().Code, SSHKeys: []string{rescueKey}}, l.key)
			for range 2 {
				if left, err := l.turn(); left != 0 || refusal.Of(err) != refusal.KeysBehind || l.book().Times != 1 {
					t.Errorf("%s, %v, let in %d times", left, err, l.book().Times)
				}
			}
			l.isOpen(false)
			n := l.openOwn()
			defer n.Close() // only read
			if st, err := n.Status(t.Context()); err != nil || st.Rescue == nil || st.Rescue.Open || st.Rescue.Code != "" {
				t.Errorf("%+v, %v", st.Rescue, err)
			}
		})
	}
}

// TestNotLetIn: what opens nothing, and what comes of it.
func TestNotLetIn(t *testing.T) {
	for name, row := range map[string]struct {
		offer func(l *locked, r spec.Rescue)
		wrong int
		fails bool // it is said; a guess is counted, and what is there again is passed over
	}{
		"a code that was guessed": {offer: func(l *locked, r spec.Rescue) { r.Code = spec.NewCode(); l.Rescue(r, l.key) }, wrong: 1},
		"another node":            {offer: func(l *locked, r spec.Rescue) { r.Node = "other"; l.Rescue(r, l.key) }, fails: true},
		"another fleet":           {offer: func(l *locked, r spec.Rescue) { r.Fleet = "metal-b"; l.Rescue(r, l.key) }, fails: true},
		"an operator's key":       {offer: func(l *locked, r spec.Rescue) { l.Rescue(r, l.Operator) }, fails: true},
		"a root key":              {offer: func(l *locked, r spec.Rescue) { l.Rescue(r, l.root) }, fails: true},
		"a rescue key that is revoked": {offer: func(l *locked, r spec.Rescue) {
			l.Rescue(r, l.key)
			l.revoke()
		}, fails: true},
		"nothing": {offer: func(*locked, spec.Rescue) {}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLocked(t)
			if _, err := l.turn(); err != nil {
				t.Fatal(err)
			}
			row.offer(l, spec.Rescue{Code: l.book().Code, SSHKeys: []string{rescueKey}})
			for range 2 {
				if left, err := l.turn(); left != 0 || (err != nil) != row.fails {
					t.Errorf("%s, %v", left, err)
				}
			}
			l.isOpen(false)
			if b := l.book(); len(b.Wrong) != row.wrong || b.Open != nil {
				t.Errorf("%+v", b)
			}
		})
	}
}

// TestLetInByAMedium: without a registry, and once, however long the medium stays.
func TestLetInByAMedium(t *testing.T) {
	l := newLocked(t)
	if _, err := l.turn(); err != nil {
		t.Fatal(err)
	}
	c := l.Rescue(spec.Rescue{Code: l.book().Code, SSHKeys: []string{rescueKey}, Lasts: 60}, l.key)
	l.Rescue(spec.Rescue{Code: "22222-22222", Console: true}, l.Operator) // what the registry has says nothing
	for _, dir := range []string{"/sys/block/sr0", "/dev"} {
		if err := os.MkdirAll(l.machine.root+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(l.machine.root + "/dev/sr0")
	if err == nil {
		defer f.Close() // the test reads it
		err = media.WriteRescue(f, c.SaveRescue(), fixture.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := l.turn(); left == 0 {
		t.Fatal("it is not open")
	}
	l.isOpen(true)
	l.kernel.passed.Add(int64(2 * time.Minute))
	l.look = letin.Keeper{}
	if left, _ := l.turn(); left != 0 {
		t.Errorf("open for %s", left)
	}
	l.isOpen(false)
	l.look = letin.Keeper{}
	if left, _ := l.turn(); left != 0 || l.book().Times != 1 {
		t.Errorf("it is obeyed twice: %+v", l.book())
	}
}

// TestWithoutRescueKeys: a node that no rescue key may open asks nobody, and shows no code.
func TestWithoutRescueKeys(t *testing.T) {
	l := newLocked(t)
	b := *l.bootstrap()
	data, err := spec.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.machine.root+paths.RunBootstrap, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.turn(); err != nil {
		t.Fatal(err)
	}
	if b := l.book(); b.Code != "" {
		t.Errorf("it has a code: %+v", b)
	}
	l.Rescue(spec.Rescue{Code: spec.NewCode(), SSHKeys: []string{rescueKey}}, l.key)
	if left, err := l.turn(); left != 0 || err != nil {
		t.Errorf("%s, %v", left, err)
	}
	n := l.openOwn()
	defer n.Close() // only read
	if st, err := n.Status(t.Context()); err != nil || st.Rescue != nil {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestLeftOpen: what a machine that lost its power left in a file system that lasts lets nobody
// in, and goes at the first look.
func TestLeftOpen(t *testing.T) {
	l := newLocked(t)
	if err := os.WriteFile(l.dropIn(), []byte("Match User root\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.turn(); err != nil {
		t.Fatal(err)
	}
	l.isOpen(false)
}
