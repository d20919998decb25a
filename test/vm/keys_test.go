// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"crypto"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongStolenKey: an operator's key is stolen and revoked while a node runs. The node
// follows without a reboot, refuses what the thief signs, and boots what it proved, with the
// boot files of before the theft.
func TestLongStolenKey(t *testing.T) {
	require.Long(t)
	f := fleet(t)
	f.begins(t, "root: keys/root.pub, operator: keys/operator.pub")
	o, first := f.proven(t)
	m := f.start(t, o)
	s := f.login(t, m)

	f.must(t, "keys", "generate", "keys/operator2")
	f.edit(t, "operator: keys/operator.pub", "operator: keys/operator2.pub")
	f.must(t, "keys", "revoke", "site.yaml", "--root-key", "keys/root.key", "--key", "keys/operator2.key", "--reason", "stolen")
	f.edit(t, "kernel.panic: 30", "kernel.panic: 40")
	f.must(t, "publish", "site.yaml", "--to", f.To(), "--key", "keys/operator2.key")
	if out := run(t, s, "sudo caisson-agent sync"); !strings.Contains(out, "current") {
		t.Errorf("sync: %s", out)
	}
	if got := run(t, s, "cat /proc/sys/kernel/panic"); got != "40" {
		t.Errorf("kernel.panic is %s after what the new operator signed", got)
	}

	f.steal(t, "kernel/panic\",\"value\":\"40", "kernel/panic\",\"value\":\"99")
	want := spec.SyncRefused(string(refusal.UnknownKey))
	if out := run(t, s, "sudo caisson-agent sync || true"); !strings.Contains(out, string(want)) {
		t.Errorf("what the thief signed: %s", out)
	}
	run(t, s, "sync")
	m.PowerCut()
	m = f.start(t, o)
	s = f.login(t, m)
	if st := status(t, s); st.Generation <= first.Generation || st.Sync != want || st.Health != spec.HealthOK {
		t.Errorf("after a start: %+v", st)
	}
	if got := run(t, s, "cat /proc/sys/kernel/panic"); got != "40" {
		t.Errorf("kernel.panic is %s after a start", got)
	}
}

// begins gives a fleet a chain of keys that begins with these.
func (f *Fleet) begins(t *testing.T, keys string) {
	t.Helper()
	if err := os.Remove(filepath.Join(f.Dir, "caisson.keys")); err != nil { // it is of the site that init made
		t.Fatal(err)
	}
	f.edit(t, "registry: oci:./out", "registry: oci:./out\ntrust: {keys: {"+keys+"}}")
	f.must(t, "keys", "rotate", "site.yaml", "--root-key", "keys/root.key")
	f.publish(t)
	if err := f.Netboot(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestLongLostRoot: the root key is lost, or stolen, and another chain begins. A node accepts
// nothing of it with its boot files of before, and boots what it ran; with new ones it follows.
func TestLongLostRoot(t *testing.T) {
	require.Long(t)
	f := fleet(t, leanSite...)
	f.begins(t, "root: keys/root.pub, operator: keys/operator.pub, release: keys/release.pub")
	before, first := f.proven(t)

	f.must(t, "keys", "generate", "keys/root2")
	f.edit(t, "root: keys/root.pub", "root: keys/root2.pub")
	f.must(t, "keys", "rotate", "site.yaml", "--begin-anew", "--yes", "--root-key", "keys/root2.key", "--reason", "root keys stolen")
	f.edit(t, "kernel.panic: 30", "kernel.panic: 40")
	f.publish(t)
	m := f.start(t, before)
	s := f.login(t, m)
	if st := status(t, s); st.Overlay != first.Overlay || st.Health != spec.HealthOK || !strings.HasPrefix(string(st.Sync), "refused:") {
		t.Errorf("with the boot files of before: %+v", st)
	}
	run(t, s, "sync")
	m.PowerCut()

	if err := f.Netboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := before
	after.Kernel, after.Initrd = f.loader(t)
	m = f.start(t, after)
	s = f.login(t, m)
	if st := status(t, s); st.Generation <= first.Generation || st.Health != spec.HealthOK || st.Sync != spec.SyncCurrent {
		t.Errorf("with new boot files: %+v", st)
	}
	look(t, s, Check{"what was published meanwhile", "cat /proc/sys/kernel/panic", "40"})
}

// TestLongStolenReleaseKey: the key that signs layers is revoked. The node goes on, and boots
// the layer, which the new key has signed, too; what the old one signs the publisher refuses.
// A node takes what an operator has named, so with an operator's key the thief would get further.
func TestLongStolenReleaseKey(t *testing.T) {
	require.Long(t)
	f := fleet(t, leanSite...)
	f.begins(t, "root: keys/root.pub, operator: keys/operator.pub, release: keys/release.pub")
	o, first := f.proven(t)
	f.must(t, "keys", "generate", "keys/release2")
	f.edit(t, "release: keys/release.pub", "release: keys/release2.pub")
	f.must(t, "keys", "revoke", "site.yaml", "--root-key", "keys/root.key", "--key", "keys/operator.key", "--release-key", "keys/release2.key", "--reason", "stolen")

	good := f.index(t)
	sh(t, `grep -v ^trust: "$1/site.yaml" | sed 's/- name: tree/&\n      - name: bc/' >"$1/thief.yaml"`, f.Dir)
	f.byThief(t, func() {
		building.Lock()
		defer building.Unlock()
		f.must(t, "build", "thief.yaml", "--to", f.To(), "--key", "keys/release.key", "--fast")
	})
	forged := f.index(t)
	if forged == good {
		t.Fatal("the thief has no layer")
	}
	if out, err := f.Caisson(t.Context(), "publish", "site.yaml", "--to", f.To(), "--key", "keys/operator.key", "--layer", forged); err == nil {
		t.Errorf("a layer of the thief's is published: %s", out)
	}
	f.publish(t, "--layer", good)
	o.Kernel, o.Initrd = f.loader(t)
	m := f.start(t, o)
	s := f.login(t, m)
	if st := status(t, s); st.Layer != first.Layer || st.Health != spec.HealthOK || st.Sync != spec.SyncCurrent {
		t.Errorf("after it: %+v", st)
	}
	run(t, s, "sync")
	m.PowerCut()
	s = f.login(t, f.start(t, o))
	if st := status(t, s); st.Layer != first.Layer || st.Health != spec.HealthOK {
		t.Errorf("after a start: %+v", st)
	}
}

// byThief does something as by a tool that does not look for versions of the keys, as ours does:
// while the layout has none.
func (f *Fleet) byThief(t *testing.T, do func()) {
	t.Helper()
	name := filepath.Join(f.Dir, "out", "index.json")
	read := func() (index oci.Index) {
		t.Helper()
		data, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(data, &index)
		}
		if err != nil {
			t.Fatal(err)
		}
		return index
	}
	write := func(index oci.Index) {
		t.Helper()
		if err := os.WriteFile(name, oci.Encode(index), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	isKeys := func(d oci.Descriptor) bool {
		return strings.HasPrefix(d.Annotations[oci.AnnotationRefName], oci.RepoFleet+":keys")
	}
	index := read()
	keys := slices.DeleteFunc(slices.Clone(index.Manifests), func(d oci.Descriptor) bool { return !isKeys(d) })
	if len(keys) == 0 {
		t.Fatal("the layout has no versions of the keys")
	}
	index.Manifests = slices.DeleteFunc(index.Manifests, isKeys)
	write(index)
	do()
	index = read()
	index.Manifests = append(index.Manifests, keys...)
	write(index)
}

// steal shows alpha an overlay that the first operator's key has signed.
func (f *Fleet) steal(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.Dir, "keys", "operator.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := keys.Parse(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	raw, _, err := r.Manifest(t.Context(), oci.RepoNode, "alpha")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := oci.ParseManifest(raw)
	if err != nil {
		t.Fatal(err)
	}
	doc := bytes.Replace(parsed.Layers[0].Data, []byte(from), []byte(to), 1)
	var core spec.Core
	if _, err := spec.DecodeKnown(doc, &core); err != nil || bytes.Equal(doc, parsed.Layers[0].Data) {
		t.Fatalf("%v: %s", err, doc)
	}
	issued := time.Now().UTC().Truncate(time.Second)
	bundle, err := sign.SignOverlay(crypto.Signer(key), oci.Digest(doc), sign.Predicate{Fleet: core.Fleet, Node: core.Node, Match: sign.Match(core.Match),
		Layer: core.Layer, Generation: 1000, IssuedAt: issued, Expires: issued.AddDate(0, 1, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.put(t.Context(), r, "alpha", doc, bundle); err != nil {
		t.Fatal(err)
	}
}
