// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci/internal/strict"
	"github.com/caisson-os/caisson/spec/refusal"
)

// TestGoldens: the statements that 0.9.0 signs, and those of keys, rescue and approvals, which came with 0.10.0, are written byte-equal, and read.
func TestGoldens(t *testing.T) {
	issued := time.Unix(1800000000, 0).UTC()
	digest := "sha256:" + strings.Repeat("ab", 32)
	times := FleetPredicate{Fleet: "metal-a", IssuedAt: issued, Expires: issued.Add(time.Hour)}
	for name, row := range map[string]struct {
		kind      string
		predicate interface{ check() error }
		into      interface{ check() error }
	}{
		"overlay": {PredicateOverlay, &Predicate{Fleet: "metal-a", Node: "node1", Match: Match{MACs: []string{"52:54:00:00:00:01"}, UUIDs: []string{"00000000-0000-4000-8000-000000000001"}}, Layer: digest,
			Epoch: 1, Generation: 7, IssuedAt: times.IssuedAt, Expires: times.Expires, RunsOn: []string{digest}}, new(Predicate)},
		"fleet":       {PredicateFleet, &times, new(FleetPredicate)},
		"fleet-index": {PredicateIndex, &times, new(FleetPredicate)},
		"rollout":     {PredicateRollout, &times, new(FleetPredicate)},
		"keys":        {PredicateKeys, &KeysPredicate{Fleet: "metal-a", Version: 2, IssuedAt: times.IssuedAt}, new(KeysPredicate)},
		"rescue":      {PredicateRescue, &RescuePredicate{Fleet: "metal-a", Node: "node1", Code: "k7m2q-9xfab", IssuedAt: times.IssuedAt}, new(RescuePredicate)},
		"approval":    {PredicateApproval, &ApprovalPredicate{Fleet: "metal-a", Author: "eve", Reason: "new motd", IssuedAt: times.IssuedAt}, new(ApprovalPredicate)},
		"epoch":       {PredicateEpoch, &EpochPredicate{Fleet: "metal-a", Epoch: 1}, new(EpochPredicate)},
	} {
		golden, err := os.ReadFile(filepath.Join("testdata/golden", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		predicate, err := json.Marshal(row.predicate)
		if err != nil {
			t.Fatal(err)
		}
		if made, err := newStatement(digest, row.kind, predicate); err != nil || !bytes.Equal(made, golden) {
			t.Errorf("%s is written otherwise: %v\n%s", name, err, made)
		}
		var s statement
		if err := json.Unmarshal(golden, &s); err != nil || s.PredicateType != row.kind || s.Type != statementV1 {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if err := json.Unmarshal(s.Predicate, row.into); err != nil || row.into.check() != nil {
			t.Errorf("%s: %v, %v", name, err, row.into.check())
		}
		later := slices.Concat(predicate[:len(predicate)-1], []byte(`,"laterKey":{"a":1}}`))
		if err := strict.Decode(later, row.into); err != nil || row.into.check() != nil || !reflect.DeepEqual(row.into, row.predicate) {
			t.Errorf("%s with a key of a later release: %v, %v, %+v", name, err, row.into.check(), row.into)
		}
		needs := slices.Concat(predicate[:len(predicate)-1], []byte(`,"needs":["a"]}`))
		if err := strict.Decode(needs, row.into); err != nil || refusal.Of(row.into.check()) != refusal.NeedsAgent {
			t.Errorf("%s that needs something: %v, %v", name, err, row.into.check())
		}
	}
}

// TestAlgorithmIsKnownHereOnly: a new algorithm must not be a change of everything
// that passes keys on. A TPM signs with what it has, whatever signs documents.
func TestAlgorithmIsKnownHereOnly(t *testing.T) {
	known := map[string]bool{}
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(text), "ecdsa.PublicKey") {
			known[filepath.ToSlash(name)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range known {
		if !slices.Contains([]string{"../../oci/sign/key.go", "../../oci/sign/p256.go", "../../fleet/attest/attest.go"}, name) {
			t.Errorf("%s names ecdsa.PublicKey: use sign.Verifier", strings.TrimPrefix(name, "../../"))
		}
	}
	if len(known) == 0 {
		t.Error("the test looks in the wrong place")
	}
}
