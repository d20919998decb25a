// SPDX-License-Identifier: Apache-2.0

package rescue

import (
	"crypto/ecdsa"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fixture"
)

const (
	code   = "k7m2q-9xfab"
	sshKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me"
)

// world is a node and the keys around it.
type world struct {
	*fixture.Fleet
	rescue, root *ecdsa.PrivateKey
	node         Node
}

func newWorld(t *testing.T) *world {
	w := &world{Fleet: fixture.NewFleet(t), rescue: fixture.NewKey(t), root: fixture.NewKey(t)}
	w.node = Node{Fleet: fixture.Name, Names: []string{fixture.Node, "mac-525400000001"}, Code: code, Keys: fixture.RoleOf(w.rescue)}
	return w
}

// attempt is a statement that somebody offers.
type attempt struct {
	name    string
	change  func(w *world, r *spec.Rescue)
	by      func(w *world) []*ecdsa.PrivateKey // nil: the rescue key
	spoil   func(t *testing.T, w *world, c *trust.Candidate)
	node    func(w *world) // changes who decides
	code    refusal.Code   // "" is accepted
	without string         // the check that alone stops it
}

func signs(which func(w *world) *ecdsa.PrivateKey) func(w *world) []*ecdsa.PrivateKey {
	return func(w *world) []*ecdsa.PrivateKey { return []*ecdsa.PrivateKey{which(w)} }
}

var attempts = []attempt{
	{name: "a key", change: func(_ *world, r *spec.Rescue) { r.SSHKeys = []string{sshKey} }},
	{name: "the console"},
	{name: "by the hardware's name", change: func(_ *world, r *spec.Rescue) { r.Node = "mac-525400000001" }},
	{name: "nobody signed", by: func(*world) []*ecdsa.PrivateKey { return nil }, code: refusal.Unsigned},
	{name: "key of an operator", by: signs(func(w *world) *ecdsa.PrivateKey { return w.Operator }), code: refusal.UnknownKey},
	{name: "key of the epoch role", by: signs(func(w *world) *ecdsa.PrivateKey { return w.Epoch }), code: refusal.UnknownKey},
	{name: "root key", by: signs(func(w *world) *ecdsa.PrivateKey { return w.root }), code: refusal.UnknownKey},
	{name: "no rescue key counts", node: func(w *world) { w.node.Keys = spec.Role{} }, code: refusal.UnknownKey},
	{name: "one of two", node: func(w *world) { w.node.Keys = fixture.RoleOf(w.rescue, w.root); w.node.Keys.Threshold = 2 }, code: refusal.Threshold},
	{name: "another fleet", change: func(_ *world, r *spec.Rescue) { r.Fleet = "metal-b" }, code: refusal.WrongFleet, without: "rescue: fleet"},
	{name: "another node", change: func(_ *world, r *spec.Rescue) { r.Node = "otherhost" }, code: refusal.WrongNode, without: "rescue: node"},
	{name: "another code", change: func(_ *world, r *spec.Rescue) { r.Code = "22222-22222" }, code: refusal.WrongCode, without: "rescue: code"},
	{name: "a node without a code", node: func(w *world) { w.node.Code = "" }, code: refusal.WrongCode, without: "rescue: code"},
	{name: "it opens nothing", change: func(_ *world, r *spec.Rescue) { r.Console = false }, code: refusal.Rescue, without: "rescue: sense"},
	{name: "without a reason", change: func(_ *world, r *spec.Rescue) { r.Reason = strings.Repeat("x", spec.MaxRescueReason+1) }, code: refusal.Rescue, without: "rescue: sense"},
	{name: "without an end", change: func(_ *world, r *spec.Rescue) { r.Lasts = 86401 }, code: refusal.Rescue, without: "rescue: sense"},
	{name: "over before it began", change: func(_ *world, r *spec.Rescue) { r.Lasts = -1 }, code: refusal.Rescue, without: "rescue: sense"},
	{name: "too many keys", change: func(_ *world, r *spec.Rescue) {
		for range spec.MaxRescueKeys + 1 {
			r.SSHKeys = append(r.SSHKeys, sshKey)
		}
	}, code: refusal.Rescue, without: "rescue: sense"},
	{name: "a key with options", change: func(_ *world, r *spec.Rescue) { r.SSHKeys = []string{`command="x" ` + sshKey} }, code: refusal.Rescue, without: "rescue: sense"},
	{name: "a key that no sshd takes", change: func(_ *world, r *spec.Rescue) {
		r.SSHKeys = []string{sshKey, "ssh-dss AAAAB3NzaC1kc3MAAAACAXAAAAACAXEAAAACAWcAAAACAXk="}
	}, code: refusal.Rescue, without: "rescue: sense"},
	{name: "an authority", change: func(_ *world, r *spec.Rescue) { r.SSHKeys = []string{"cert-authority\t" + sshKey} }, code: refusal.Rescue, without: "rescue: sense"},
	{name: "two lines", change: func(_ *world, r *spec.Rescue) { r.SSHKeys = []string{sshKey + "\n" + sshKey} }, code: refusal.Rescue, without: "rescue: sense"},
	{name: "a need of a later release", change: func(_ *world, r *spec.Rescue) { r.Needs = []string{"serial"} }, code: refusal.NeedsAgent, without: "rescue: needs"},
	{name: "too large", change: func(_ *world, r *spec.Rescue) { r.Reason = strings.Repeat("x", oci.MaxRescue) }, code: refusal.Oversize},
	{name: "not a document", spoil: func(t *testing.T, w *world, c *trust.Candidate) {
		c.Document = []byte("{}{}")
		resign(t, w, c, code)
	}, code: refusal.Rescue},
	{name: "a statement about another code", spoil: func(t *testing.T, w *world, c *trust.Candidate) { resign(t, w, c, "22222-22222") }, code: refusal.Contradiction},
	{name: "signed for another purpose", spoil: func(t *testing.T, w *world, c *trust.Candidate) {
		b, err := sign.SignKeys(w.rescue, oci.Digest(c.Document), sign.KeysPredicate{Fleet: fixture.Name, Version: 1, IssuedAt: fixture.Now()})
		if err != nil {
			t.Fatal(err)
		}
		c.Bundles = [][]byte{b}
	}, code: refusal.PredicateType},
	{name: "altered on the way", spoil: func(_ *testing.T, _ *world, c *trust.Candidate) { c.Document = append(c.Document, ' ') }, code: refusal.Subject},
}

func resign(t *testing.T, w *world, c *trust.Candidate, code string) {
	t.Helper()
	b, err := sign.SignRescue(w.rescue, oci.Digest(c.Document), sign.RescuePredicate{Fleet: fixture.Name, Node: fixture.Node, Code: code, IssuedAt: fixture.Now()})
	if err != nil {
		t.Fatal(err)
	}
	c.Bundles = [][]byte{b}
}

func (a attempt) offer(t *testing.T) (*world, trust.Candidate) {
	w := newWorld(t)
	r := spec.Rescue{Code: code, Console: true}
	if a.change != nil {
		a.change(w, &r)
	}
	by := []*ecdsa.PrivateKey{w.rescue}
	if a.by != nil {
		by = a.by(w)
	}
	c := w.Rescue(r, by...)
	if a.spoil != nil {
		a.spoil(t, w, &c)
	}
	if a.node != nil {
		a.node(w)
	}
	return w, c
}

func TestAccept(t *testing.T) {
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			w, c := a.offer(t)
			got, err := w.node.Accept(c)
			if refusal.Of(err) != a.code || (err == nil) != (a.code == "") {
				t.Fatalf("Accept = %v, want %q", err, a.code)
			}
			if err == nil && (got.Digest != oci.Digest(c.Document) || len(got.Signed) != 1 || got.Lasts != 3600) {
				t.Errorf("%+v", got)
			}
			if a.without == "" {
				return
			}
			w.node.rules = all.Without(a.without)
			if _, err := w.node.Accept(c); err != nil {
				t.Errorf("without %q it is refused all the same: %v", a.without, err)
			}
		})
	}
}

func FuzzAccept(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"x"}`), []byte("{}"))
	n := Node{Fleet: fixture.Name, Names: []string{fixture.Node}, Code: code, Keys: fixture.RoleOf(fixture.NewKey(f))}
	f.Fuzz(func(t *testing.T, document, bundle []byte) {
		if a, err := n.Accept(trust.Candidate{Document: document, Bundles: [][]byte{bundle}}); err == nil {
			t.Errorf("nobody signed it: %+v", a)
		}
	})
}
