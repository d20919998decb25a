// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"crypto"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/refusal"
)

// TestApproved: an approval is of one plan of one fleet, by a key that is an operator's.
func TestApproved(t *testing.T) {
	var keys []crypto.Signer
	var operators []sign.Verifier
	for range 3 {
		key, err := sign.Generate()
		if err != nil {
			t.Fatal(err)
		}
		keys, operators = append(keys, key), append(operators, sign.VerifierOf(key))
	}
	policy := published.Policy{Fleet: "metal-a", Operator: operators[:2], Threshold: 1}
	plan, other := Act+"sha256:"+strings.Repeat("ab", 32), Act+"sha256:"+strings.Repeat("cd", 32)
	said := sign.ApprovalPredicate{Fleet: "metal-a", Author: "eve", Reason: "looked at it", IssuedAt: time.Now()}
	approve := func(plan string, p sign.ApprovalPredicate, by ...crypto.Signer) []string {
		t.Helper()
		s, err := Approve(by, plan, p)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for i, s := range approve(plan, said, keys[:2]...) {
		got, err := ReadApproval(policy, plan, s)
		if err != nil || got.By != (publish.By{Author: "eve", Reason: "looked at it"}) || got.Key != operators[i].ID() {
			t.Errorf("%+v, %v", got, err)
		}
	}
	good := approve(plan, said, keys[0])[0]
	elsewhere := said
	elsewhere.Fleet = "metal-b"
	bare := strings.TrimPrefix(plan, Act)
	fleet, err := sign.SignFleet(keys[0], bare, sign.PredicateFleet, sign.FleetPredicate{Fleet: "metal-a", IssuedAt: time.Now(), Expires: time.Now().Add(1e12)})
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		plan, statement string
		code            refusal.Code
	}{
		"another plan":        {other, good, refusal.Subject},
		"another fleet":       {plan, approve(plan, elsewhere, keys[0])[0], refusal.Subject},
		"no operator":         {plan, approve(plan, said, keys[2])[0], refusal.UnknownKey},
		"another statement":   {plan, string(fleet), refusal.PredicateType},
		"no statement":        {plan, "{}", ""},
		"the old kind":        {bare, good, ""},
		"a payload exchanged": {plan, exchanged(t, good, approve(other, said, keys[0])[0]), refusal.Signature},
	} {
		_, err := ReadApproval(policy, row.plan, row.statement)
		var r *refusal.Refusal
		if err == nil || row.code != "" && (!errors.As(err, &r) || r.Code != row.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Approve(keys[:1], "sha256:0", said); err == nil {
		t.Error("what is not a digest was approved")
	}
	if _, err := Approve(keys[:1], bare, said); err == nil || !strings.Contains(err.Error(), "of the old kind") {
		t.Errorf("a digest of the old kind: %v", err)
	}
	said.Author = ""
	if _, err := Approve(keys[:1], plan, said); err == nil {
		t.Error("nobody approved")
	}
}

// exchanged is a statement with the payload of another.
func exchanged(t *testing.T, statement, other string) string {
	t.Helper()
	payload := func(s string) string {
		_, s, _ = strings.Cut(s, `"payload":"`)
		s, _, ok := strings.Cut(s, `"`)
		if !ok {
			t.Fatal(s)
		}
		return s
	}
	return strings.Replace(statement, payload(statement), payload(other), 1)
}
