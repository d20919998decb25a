// SPDX-License-Identifier: Apache-2.0

package sites_test

import (
	"crypto"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/rotate"
	"github.com/caisson-os/caisson/kube/sites"
	"github.com/caisson-os/caisson/kube/test/kubetest"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// TestKeysRotate: the operator's key is revoked between two publishes. The directory beside the
// objects stays as it was: the bridge follows the registry's version, signs nothing more with the
// key of before, and publishes with the next.
func TestKeysRotate(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	fleet := registryOf(t)
	root, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	var policy published.Policy
	keys := func(r *sites.Reconciler) { // as 'caisson init' leaves them
		r.Approval = sites.Unasked
		policy = published.Policy{Site: true, Fleet: "metal-a", Operator: trusted, Threshold: 1, Root: []sign.Verifier{sign.VerifierOf(root)}, RootThreshold: 1, Lifetime: time.Hour}
		one, err := rotate.SignKeys(spec.Keys{APIVersion: spec.APIVersion, Kind: spec.KindKeys, Fleet: "metal-a", Version: 1, Roles: policy.Roles(), At: time.Now().UTC().Truncate(time.Second)}, []crypto.Signer{root})
		if err != nil {
			t.Fatal(err)
		}
		if policy.Chain, err = chain.First(one); err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{"keys/root.pub": sign.VerifierOf(root).PEM(), "caisson.keys": policy.Chain.Marshal()} {
			if err := os.WriteFile(filepath.Join(r.Dir, "metal-a", name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	var old *sites.Reconciler
	bridge(t, c, func(r *sites.Reconciler) { keys(r); old = r }, "metal-a")
	site := func(value string) {
		apply(t, c, "metal-a", head+"kind: Site\nmetadata: {name: metal-a}\nregistry: "+fleet+"\nnodes: [{name: n1}]\nconf: {sysctl: {vm.swappiness: \""+value+"\"}}\n")
	}
	site("10")
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "True Published")

	r, err := registry.Open(fleet, pull.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	next := policy
	next.Operator = []sign.Verifier{sign.VerifierOf(fresh)}
	desk := &publish.Publisher{Reader: published.Reader{Registry: r, Signers: []crypto.Signer{fresh}, Now: time.Now().UTC().Truncate(time.Second), Say: t.Logf}}
	if _, _, err := rotate.Keys(t.Context(), desk, policy, rotate.Rotation{Next: spec.Keys{Roles: next.Roles(), Revoked: []string{trusted[0].ID()}, At: time.Now().UTC().Truncate(time.Second)}, Root: []crypto.Signer{root}}); err != nil {
		t.Fatal(err)
	}
	trusted = next.Operator // overlays are read with it
	before := overlays(t, fleet)

	site("20")
	says := condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False CannotPublish")
	if !strings.Contains(says, "version 2 of the keys: sign with a key of that version") {
		t.Errorf("a bridge whose key is revoked says %q", says)
	}
	if now := overlays(t, fleet); now["n1"] != before["n1"] {
		t.Error("a key that is revoked published")
	}
	bridge(t, c, func(r *sites.Reconciler) {
		r.Dir, r.Approval, r.Signers = old.Dir, sites.Unasked, []crypto.Signer{fresh}
		trusted = next.Operator
	}, "metal-a")
	site("30") // both bridges look: one of them may
	eventually(t, func() error {
		if now := overlays(t, fleet); now["n1"] == before["n1"] {
			return errors.New("n1 has what it had: the next key published nothing")
		}
		return nil
	})
}
