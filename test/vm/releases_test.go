// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/pinned"
	"github.com/caisson-os/caisson/test/require"
)

// Loader, layer and publisher of different releases meet in one fleet.

// TestLongEarlierLayer boots the layer of release 0.9.0 with the loader of this source, as this
// source publishes it: its agent takes what it is given, and what a later release gives it
// is left out or refused. So does its loader refuse.
func TestLongEarlierLayer(t *testing.T) {
	require.Long(t)
	f, layer := pinnedFleet(t, leanSite...)
	earlier := f.byHand(t, machine.Options{Name: "beta-earlier", MAC: "52:54:00:00:00:0b"})
	f.edits(t, noted...)
	newest := f.upgrade(t)
	f.edit(t, "kernel.panic: 30", "kernel.panic: 31")
	f.publish(t, "--layer", layer)
	m := f.start(t, f.byHand(t, machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b"}))
	s := f.login(t, m)
	first := f.runs(t, s, layer, pinned.Version)
	if first.Sync != spec.SyncCurrent || first.Generation != 2 {
		t.Errorf("sync %s, generation %d", first.Sync, first.Generation)
	}
	look(t, s, Check{"sysctl", "cat /proc/sys/kernel/panic", "31"}, Check{"script output", "cat /run/hello", "hello, caisson"},
		Check{"no failed units", "systemctl --failed --no-legend --plain", ""},
		Check{"the boot's deadline has ended", "sudo test -e /run/caisson/deadline || echo ended", "ended"})

	f.edit(t, "kernel.panic: 31", "kernel.panic: 32")
	f.publish(t, "--layer", newest)
	ask(t, s)
	if st := status(t, s); st.Staged == "" || st.Layer != first.Layer || st.Health != spec.HealthOK || st.Activity != spec.ActivityWaiting("reboot") {
		t.Errorf("with a newer layer: %+v", st)
	}
	look(t, s, Check{"what does not wait for the layer", "cat /proc/sys/kernel/panic", "32"})
	f.publish(t, "--layer", layer)
	ask(t, s)
	f.givesMore(t, s, "beta")
	m.PowerCut()
	f.later(t, "beta", []string{"later"})
	m = f.start(t, earlier)
	waitFor(t, m, 0, "THIS NODE DOES NOT COME UP: what the registry has for it is refused (needs-agent)")
	waitFor(t, m, 0, "it tries again in")
}

// givesMore publishes for a node, which follows, what only a later release knows. Nobody
// can publish for it afterwards: the index knows nothing of it.
func (f *Fleet) givesMore(t *testing.T, s *machine.Session, node string) {
	t.Helper()
	before := status(t, s)
	f.later(t, node, nil, `"items":{`, `"later":{"a":[1]},"items":{`, `{"key":"kernel/panic",`, `{"key":"kernel/panic","onlyIf":"later",`, `"value":"32"`, `"value":"33"`)
	ask(t, s)
	with := status(t, s)
	if want := []string{"items.sysctl[].onlyIf", "later"}; with.Generation <= before.Generation || with.Health != spec.HealthOK || !slices.Equal(slices.Sorted(slices.Values(with.LeftOut)), want) {
		t.Errorf("with keys of a later release: %+v, want %v left out", with, want)
	}
	look(t, s, Check{"what it knows of them", "cat /proc/sys/kernel/panic", "33"})

	f.later(t, node, nil, `"items":{`, `"needs":["later"],"items":{`, `"value":"33"`, `"value":"34"`)
	if got := run(t, s, "sudo caisson-agent sync 2>&1 >/dev/null; echo code $?"); !strings.Contains(got, "code 4") || !strings.Contains(got, "needs-agent") {
		t.Errorf("sync of what needs a later release says\n%s", got)
	}
	if st := status(t, s); st.Generation != with.Generation || st.Overlay != with.Overlay || st.Sync != "refused:needs-agent" || st.Health != spec.HealthOK {
		t.Errorf("with an overlay that needs a later release: %+v", st)
	}
	look(t, s, Check{"it goes on as it was", "cat /proc/sys/kernel/panic", "33"})
}

// TestLongReleases is the life of a node with a state disk between release 0.9.0 and this
// source. Agents go softly to the layer of the other release, and back; then the cord is
// pulled, and each loader boots the other's layer with what was on the disk.
func TestLongReleases(t *testing.T) {
	require.Long(t)
	f, layer := pinnedFleet(t, slices.Concat(leanSite, []string{"layer:\n", "layer:\n  persist: [/home]\n"})...)
	earlier := f.byHand(t, f.withDisk(t))
	m := f.start(t, earlier)
	s := f.login(t, m)
	f.runs(t, s, layer, pinned.Version)
	run(t, s, "echo kept >note; sync")
	const same = identity + "; cat note /proc/sys/kernel/panic"
	first := run(t, s, same)
	holds := func(what, layer, version string) {
		t.Helper()
		f.runs(t, s, layer, version)
		if got := run(t, s, same); got != first {
			t.Errorf("%s: it is\n%s\nat first\n%s", what, got, first)
		}
	}
	pin := func() {
		t.Helper()
		f.must(t, "pin", f.To(), "--node", "alpha", "--layer", layer, "--reason", "going back", "--key", "keys/operator.key")
	}

	newest := f.upgrade(t)
	f.publish(t)
	ask(t, s)
	s = f.leaps(t, m, s)
	holds("this source's layer, stacked by the earlier agent", newest, "")
	pin()
	ask(t, s)
	s = f.leaps(t, m, s)
	holds("the earlier layer, stacked by this source's agent", layer, pinned.Version)

	boots := func(o machine.Options, name, layer, version string) {
		t.Helper()
		run(t, s, "sync")
		m.PowerCut()
		f.wentWell(t, m)
		o.Name = name
		m = f.start(t, o)
		s = f.login(t, m)
		holds(name, layer, version)
	}
	later := earlier
	later.Kernel, later.Initrd = f.loader(t)
	boots(later, "newer-loader", layer, pinned.Version)
	f.must(t, "forward", f.To(), "--node", "alpha", "--key", "keys/operator.key")
	f.publish(t)
	boots(earlier, "earlier-loader", newest, "")
	f.wentWell(t, m)
}

// runs wants a node to be well on the layer of an index, under an agent of a version, ""
// for any but that of release 0.9.0.
func (f *Fleet) runs(t *testing.T, s *machine.Session, index, version string) spec.Status {
	t.Helper()
	st := status(t, s)
	if st.Health != spec.HealthOK || st.Layer != f.layerOf(t, index) || len(st.Drift) > 0 || st.Staged != "" || st.Rejected != nil || st.Sync != spec.SyncCurrent {
		t.Errorf("%+v", st)
	}
	if is := st.Agent == pinned.Version; is != (version == pinned.Version) {
		t.Errorf("the agent is %q", st.Agent)
	}
	return st
}

// wentWell wants nothing on a console that tells of damage or a refusal.
func (f *Fleet) wentWell(t *testing.T, m *machine.Machine) {
	t.Helper()
	for line := range strings.Lines(m.Console.String()) {
		if strings.Contains(line, "soft-reboot.target") {
			continue // its description says what caisson refuses
		}
		if slices.ContainsFunc(mishaps, func(mishap string) bool { return strings.Contains(line, mishap) }) {
			t.Errorf("%s says: %s", m.Name, line)
		}
	}
}

// later publishes a node's overlay as a later release would: edited, pairs of texts, with
// the fleet's own signature and what its statement needs of who reads it.
func (f *Fleet) later(t *testing.T, node string, needs []string, edits ...string) {
	t.Helper()
	r, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	raw, _, err := r.Manifest(t.Context(), oci.RepoNode, node)
	if err != nil {
		t.Fatal(err)
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(f.Dir, "keys", "operator.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := keys.Parse(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := sign.VerifyOverlay([][]byte{m.Layers[1].Data}, []sign.Verifier{sign.VerifierOf(key)}, 1, oci.Digest(m.Layers[0].Data))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(m.Layers[0].Data)
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(doc, edits[i]) {
			t.Fatalf("the overlay has no %q: %s", edits[i], doc)
		}
		doc = strings.Replace(doc, edits[i], edits[i+1], 1)
	}
	p := v.Predicate
	p.Generation++
	p.IssuedAt, p.Needs = time.Now().UTC().Truncate(time.Second), needs
	statement, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := sign.Attest(key, oci.Digest([]byte(doc)), sign.PredicateOverlay, statement) // SignOverlay knows what this release does not
	if err != nil {
		t.Fatal(err)
	}
	if err := f.put(t.Context(), r, node, []byte(doc), bundle); err != nil {
		t.Fatal(err)
	}
}
