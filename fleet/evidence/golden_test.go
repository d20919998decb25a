// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// settingsThen is the digest of the settings of an overlay as 0.10.0 has it: a release that had
// another would take no statement of before.
const settingsThen = "sha256:4eef4db2c3649bc47c27674bb2706a40d6f749a0cf63409ad52f691a93e5ed54"

// TestGolden: the statement of 0.10.0 is written byte-equal, and read; a key of a later release is
// left out, and a statement that needs anything is refused.
func TestGolden(t *testing.T) {
	o := &spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: "node1", KernelArgs: []string{"quiet"}},
		Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "1"}}}}
	settings, err := Settings(o)
	if err != nil || settings != settingsThen {
		t.Errorf("settings %s, %v", settings, err)
	}
	w := newWorld(t)
	r := Rehearsal{Fleet: "metal-a", From: End{w.layers["a"], settings}, To: End{w.layers["b"], settings}, Result: Differs, Reason: "1 did not come back: file /root/left",
		Said: spec.ClassLive, Happened: spec.ClassLive, Machine: Machine{"7.2.19", "amd64", 1280, true}, Version: "0.10.0", IssuedAt: time.Unix(1800000000, 0).UTC()}
	bundle, err := r.Sign(w.keys["attestation"])
	must(t, err)
	golden, err := os.ReadFile("testdata/golden/rehearsal.json")
	must(t, err)
	if made := payloadOf(t, bundle); !bytes.Equal(made, bytes.TrimSuffix(golden, []byte("\n"))) {
		t.Errorf("it is written otherwise:\n%s", made)
	}
	var said struct{ Predicate json.RawMessage }
	must(t, json.Unmarshal(golden, &said))
	read := func(key string) (got Rehearsal, err error) {
		predicate := slices.Concat(said.Predicate[:len(said.Predicate)-1], []byte(key+"}"))
		bundle, err := sign.Attest(w.keys["attestation"], r.To.Layer, Predicate, predicate)
		must(t, err)
		err = sign.VerifyPredicate(bundle, r.To.Layer, Predicate, w.shelf.Keys, &got)
		return got, err
	}
	for _, key := range []string{"", `,"laterKey":{"a":1}`} {
		if got, err := read(key); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("with %q: %+v, %v", key, got, err)
		}
	}
	if _, err := read(`,"needs":["more"]`); refusal.Of(err) != refusal.NeedsAgent {
		t.Errorf("one that needs something: %v", err)
	}
}
