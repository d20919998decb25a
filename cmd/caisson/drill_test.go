// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// drilled is a node that follows the keys and keeps what it took, as the agent does with its disk.
type drilled struct {
	name   string
	follow *chain.Chain
	floor  spec.Floor
	value  string   // of the one setting that it has
	took   []string // digests of overlays
}

// look has the node ask the registry. It returns why it takes nothing.
func (n *drilled) look(t *testing.T, r *registry.Registry, reject []string) error {
	t.Helper()
	c, err := trust.Overlay(t.Context(), r.Source(), []string{n.name}, "")
	if err != nil {
		return err
	}
	if err := n.follow.Walk(t.Context(), r.Source(), func(chain.Link) error { return nil }); err != nil {
		return err
	}
	a, err := trust.All().Accept(c, chain.With(spec.Bootstrap{Fleet: "metal"}, n.follow.Newest().Keys), trust.Identity{Node: n.name},
		trust.Clock{RTC: time.Now()}, trust.Known{Floor: n.floor, Reject: reject})
	if err != nil {
		return err
	}
	n.floor, n.value = a.Floor, a.Overlay.Items.Sysctl[0].Value
	n.took = append(n.took, oci.Digest(c.Document))
	return nil
}

// TestStolenKeyDrill walks docs/keys.md to its end, on a fleet, with a rollback behind it: no node
// ever goes back to what the thief gave it, and one that cannot go back keeps no other.
func TestStolenKeyDrill(t *testing.T) {
	require.Slow(t)
	const size = 240
	t.Chdir(t.TempDir())
	caisson := func(args ...string) (string, error) {
		var out, talk bytes.Buffer
		root := newApp(&out, &talk).root()
		root.SetArgs(args)
		err := root.ExecuteContext(t.Context())
		return out.String() + talk.String(), err
	}
	must := func(want string, args ...string) string {
		t.Helper()
		out, err := caisson(args...)
		if err != nil || !regexp.MustCompile("(?m)"+want).MatchString(out) {
			t.Fatalf("caisson %s: %v, want %q\n%s", strings.Join(args, " "), err, want, out)
		}
		return out
	}
	site := func(dir, operator string, value int) string {
		var b strings.Builder
		fmt.Fprintf(&b, "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal}\nregistry: oci:out\nattached: true\ntrust: {keys: {root: keys/root.pub, operator: keys/%s.pub}}\nconf: {sysctl: {vm.swappiness: %d}}\nnodes:\n", operator, value)
		for i := range size {
			fmt.Fprintf(&b, "  - name: n%03d\n", i)
		}
		name := filepath.Join(dir, "site.yaml")
		if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	must("", "init", "metal")
	t.Chdir("metal")
	r, err := registry.Open("oci:out", registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []int{10, 20, 30} {
		must("240 published", "publish", site(".", "operator", value))
	}
	kept, err := os.ReadFile("caisson.keys")
	if err != nil {
		t.Fatal(err)
	}
	nodes := make([]*drilled, size)
	for i := range nodes {
		follow, err := chain.Parse(kept)
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = &drilled{name: fmt.Sprintf("n%03d", i), follow: follow}
	}
	current := func() []string {
		c, err := trust.Current(t.Context(), r.Source(), "")
		var doc spec.Fleet
		if err == nil {
			err = spec.Decode(c.Document, &doc)
		}
		if err != nil {
			t.Fatal(err)
		}
		return doc.Reject
	}
	have := func(value string, but ...string) {
		t.Helper()
		reject := current()
		for _, n := range nodes {
			if err := n.look(t, r, reject); err != nil {
				t.Fatalf("node %s: %v", n.name, err)
			}
			if (n.value == value) == slices.Contains(but, n.name) {
				t.Fatalf("node %s has %s", n.name, n.value)
			}
		}
	}
	have("30")

	// The thief: twice, with what the operator's machine has.
	if err := errors.Join(os.CopyFS("../thief", os.DirFS(".")), os.Remove("../thief/keys/root.key"), os.Chmod("../thief/keys/operator.key", 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, value := range []int{66, 99} {
		must("240 published", "publish", site("../thief", "operator", value), "--to", "oci:out", "--author", "eve@desk")
		have(fmt.Sprint(value))
	}

	// Look, revoke, publish, reject.
	must(`^0-5  operator  .*  publish  240 nodes  eve@desk`, "history", "oci:out", "--site", "site.yaml")
	must("", "keys", "generate", "keys/operator2")
	site(".", "operator2", 30)
	must("generations 0-4 to 0-5 were not published from here .caisson.memory.", "keys", "revoke", "site.yaml", "--root-key", "keys/root.key", "--key", "keys/operator2.key", "--reason", "laptop stolen")
	have("99") // they run it, and must still boot
	must("240 published", "publish", "site.yaml", "--key", "keys/operator2.key")
	have("30")
	must("added to the reject list: 480 digests", "refresh", "oci:out", "--site", "site.yaml", "--key", "keys/operator2.key", "--reject", "0-4", "--reject", "0-5")
	for _, n := range nodes {
		for i, digest := range n.took { // 30, 66, 99, 99, 30
			if forged := i >= 1 && i <= 3; forged != slices.Contains(current(), digest) {
				t.Fatalf("node %s: what it took as number %d is on the reject list: %v", n.name, i, !forged)
			}
		}
		if n.name == "n005" {
			break // the others are alike, and each reads the list
		}
	}
	must(`^0-5  .*not given out by who revoked a key later$`, "history", "oci:out", "--site", "site.yaml")
	must(`^0-4  .* eve@desk  signed by a key that was revoked later$`, "history", "oci:out", "--site", "site.yaml")
	if _, err := caisson("publish", "../thief/site.yaml", "--to", "oci:out", "--key", "../thief/keys/operator.key"); err == nil {
		t.Error("the thief goes on")
	}

	// A rollback behind it: to what each had before all that, and never to the thief's.
	must("", "freeze", "oci:out", "--site", "site.yaml", "--node", "n009", "--reason", "disk on order", "--author", "ann", "--key", "keys/operator2.key")
	must("1 published", "rollback", "oci:out", "--site", "site.yaml", "--node", "n005", "--reason", "mounts fail", "--key", "keys/operator2.key")
	have("30", "n005")
	if nodes[5].value != "20" {
		t.Errorf("node n005 went back to %s", nodes[5].value)
	}
	must("", "forward", "oci:out", "--site", "site.yaml", "--node", "n005", "--key", "keys/operator2.key")
	must("1 published", "publish", "site.yaml", "--key", "keys/operator2.key")
	out := must("", "history", "oci:out", "--site", "site.yaml", "--node", "n007", "-o", "json")
	var list []struct {
		Generation uint64
		Node       struct{ Overlay string }
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Generation == 2 {
			must("", "refresh", "oci:out", "--site", "site.yaml", "--key", "keys/operator2.key", "--reject", e.Node.Overlay)
		}
	}
	back := []string{"rollback", "oci:out", "--site", "site.yaml", "--all", "--reason", "mounts fail", "--key", "keys/operator2.key"}
	must("node n007 stays as it is: .*on the reject list", append(back, "--dry-run")...)
	out = must("", append(back, "-o", "json")...)
	var result publish.Result
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):strings.LastIndex(out, "}")+1]), &result); err != nil || len(result.Stay) != 1 || result.Stay["n007"] == "" {
		t.Errorf("%v: %+v", err, result.Stay)
	}
	have("20", "n007")
	if nodes[7].value != "30" {
		t.Errorf("node n007 went back to %s", nodes[7].value)
	}
	must("", "forward", "oci:out", "--site", "site.yaml", "--all", "--key", "keys/operator2.key")
	must("freeze by ann .*disk on order", "publish", "site.yaml", "--key", "keys/operator2.key")
	have("30", "n009") // frozen again
	must("", "verify", "oci:out", "--site", "site.yaml")
}
