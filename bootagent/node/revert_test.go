// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/ecdsa"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/fixture"
)

// reverting is a node that ran a script, and what somebody did to its revert script.
type reverting struct {
	*machine
	dir    string     // the node's state
	effect string     // where scripts leave files: did, undid, or evil
	script spec.Exec  // with the good revert script
	layer  string     // that the node runs
	evil   spec.Items // the script with another revert script
}

func newReverting(t *testing.T, what string) (*reverting, *Node) {
	t.Helper()
	r := &reverting{machine: newMachine(t), effect: t.TempDir(), layer: layerNamed("a")}
	r.dir = filepath.Join(r.root, paths.State)
	r.script = spec.Exec{Name: "a", Data: "touch " + r.effect + "/did\n", Revert: "touch " + r.effect + "/undid\n", Rerun: "never"}
	evil := r.script
	evil.Revert = "touch " + r.effect + "/evil\n"
	r.evil = spec.Items{Exec: []spec.Exec{evil}}
	r.publishItems(1, r.layer, spec.Items{Exec: []spec.Exec{r.script}})
	r.boot()
	r.apply()
	deeds := map[string]func(){
		"as it was": func() {},
		"text in the journal": func() {
			r.journal(func(u map[string]any) { u["script"] = spec.Exec{Name: "a", Data: evil.Revert} })
		},
		"script in the journal": func() {
			r.journal(func(u map[string]any) {
				hash := u["hash"].(string)
				other := map[bool]string{true: "0", false: "1"}[hash[0] == '1']
				u["hash"], u["script"] = other+hash[1:], spec.Exec{Name: "a", Data: evil.Revert}
			})
		},
		"text in the overlay": func() {
			r.replace(func(c *trust.Candidate) { c.Document = r.overlay(fixture.Name, fixture.Node) }, false)
		},
		"text under its name": func() {
			r.replace(func(c *trust.Candidate) { c.Document = r.overlay(fixture.Name, fixture.Node) }, true)
		},
		"a stranger's overlay": func() { r.replace(r.signed(fixture.NewKey(t), fixture.Name, fixture.Node), false) },
		"another node's overlay": func() {
			r.replace(r.signed(r.Operator, fixture.Name, "other"), false)
		},
		"another fleet's overlay": func() { r.replace(r.signed(r.Operator, "metal-b", fixture.Node), false) },
		"a link to an overlay": func() {
			r.replace(r.signed(fixture.NewKey(t), fixture.Name, fixture.Node), false)
			name := r.kept()[0]
			r.must(os.Rename(name, r.effect+".theirs"))
			r.must(os.Symlink(r.effect+".theirs", name))
		},
	}
	do, ok := deeds[what]
	if !ok {
		t.Fatalf("%q is nothing that can be done", what)
	}
	do()
	return r, r.open()
}

func (r *reverting) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// journal changes what the journal's only script is to be taken back by.
func (r *reverting) journal(change func(map[string]any)) {
	r.t.Helper()
	n := r.open()
	defer n.Close() // what was recorded is on disk
	for _, e := range n.session.Journal.Entries(exec.Name) {
		var undo map[string]any
		r.must(json.Unmarshal(e.Applied, &undo))
		change(undo)
		e.Applied = item.Raw(undo)
		r.must(n.session.Journal.Record(e))
	}
}

func (r *reverting) kept() []string {
	r.t.Helper()
	names, err := filepath.Glob(r.dir + "/overlays/*.json")
	r.must(err)
	return names
}

// replace puts another overlay in the place of the only one that is kept, under its
// own digest or under that of the other.
func (r *reverting) replace(change func(*trust.Candidate), same bool) {
	r.t.Helper()
	name := r.kept()[0]
	data, err := os.ReadFile(name)
	r.must(err)
	c, err := trust.Load(data)
	r.must(err)
	change(&c)
	r.must(os.Remove(name))
	if !same {
		name = filepath.Join(filepath.Dir(name), digest.Hex(oci.Digest(c.Document))+".json")
	}
	r.must(os.WriteFile(name, c.Save(), 0o600))
}

func (r *reverting) overlay(fleet, node string) []byte {
	r.t.Helper()
	o := spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: fleet, Node: node, Layer: r.layer}, Items: r.evil}
	o.SetNeeds()
	doc, err := spec.Encode(o)
	r.must(err)
	return doc
}

func (r *reverting) signed(by *ecdsa.PrivateKey, fleet, node string) func(*trust.Candidate) {
	return func(c *trust.Candidate) {
		c.Document = r.overlay(fleet, node)
		p := sign.Predicate{Fleet: fleet, Node: node, Layer: r.layer, Generation: 1, IssuedAt: fixture.Now(), Expires: fixture.Now().AddDate(0, 1, 0)}
		b, err := sign.SignOverlay(by, oci.Digest(c.Document), p)
		r.must(err)
		c.Bundles = [][]byte{b}
	}
}

// ran says which revert script has run.
func (r *reverting) ran() (undid, evil bool) {
	there := func(name string) bool { _, err := os.Stat(filepath.Join(r.effect, name)); return err == nil }
	return there("undid"), there("evil")
}

// TestRevertScripts: what a state disk offers as a revert script does not run, but
// for what an overlay for this node, verified now, has.
func TestRevertScripts(t *testing.T) {
	tried := 0
	for _, row := range attack.LoadClass[attack.StateDisk](t, "statedisk") {
		if row.Revert == "" || row.Check == "exec/own directory" { // package exec meets it
			continue
		}
		tried++
		t.Run(row.Name, func(t *testing.T) {
			r, n := newReverting(t, row.Revert)
			err := n.RestoreAll(t.Context())
			undid, evil := r.ran()
			if evil {
				t.Error("what somebody put there was run")
			}
			if signed := row.Revert == "as it was" || row.Revert == "text in the journal"; undid != signed || (err == nil) != signed {
				t.Errorf("the signed script ran: %v, %v", undid, err)
			}
		})
	}
	if tried < 9 {
		t.Errorf("%d rows", tried)
	}
}

// TestUnverifiedOverlaysWouldRevert takes the verification of kept overlays away:
// each row that names it then has its script run.
func TestUnverifiedOverlaysWouldRevert(t *testing.T) {
	for _, row := range attack.LoadClass[attack.StateDisk](t, "statedisk") {
		if row.Check != "node/verified" {
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			r, n := newReverting(t, row.Revert)
			believed := func() (scripts []exec.Signed) {
				for _, name := range r.kept() {
					data, err := os.ReadFile(name)
					r.must(err)
					c, err := trust.Load(data)
					r.must(err)
					var o spec.Overlay
					r.must(spec.Decode(c.Document, &o))
					for _, w := range o.Items.Exec {
						scripts = append(scripts, exec.Signed{Script: w})
					}
				}
				return scripts
			}
			it := exec.New(nil, exec.Host{Dir: filepath.Join(r.dir, "exec"), Runner: new(process.Group), Scopes: n.session.Scopes, Journal: n.session.Journal, Signed: believed, Log: t.Logf})
			r.must(it.Restore(t.Context(), slices.Clone(n.session.Journal.Entries(exec.Name))))
			if _, evil := r.ran(); !evil {
				t.Error("it did no harm without")
			}
		})
	}
}
