// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

func TestReport(t *testing.T) {
	key, other := mustGenerate(t), mustGenerate(t)
	text := bytes.Repeat([]byte("x"), 11_600) // what package spec bounds a report to
	raw, err := SignReport(key, text)
	if err != nil {
		t.Fatal(err)
	}
	payload, by, err := OpenReport(raw)
	if err != nil || !bytes.Equal(payload, text) || by.ID() != VerifierOf(key).ID() {
		t.Fatalf("%d bytes by %v, %v", len(payload), by, err)
	}
	change := func(f func(*report)) []byte {
		var r report
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatal(err)
		}
		f(&r)
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	foreign, err := SignReport(other, text)
	if err != nil {
		t.Fatal(err)
	}
	var theirs report
	if err := json.Unmarshal(foreign, &theirs); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		raw  []byte
		code refusal.Code
	}{
		"other words":      {change(func(r *report) { r.Payload[0] = 'y' }), refusal.Signature},
		"other key":        {change(func(r *report) { r.Signatures[0].KeyID = theirs.Signatures[0].KeyID }), refusal.Signature},
		"other signature":  {change(func(r *report) { r.Signatures[0].Sig = theirs.Signatures[0].Sig }), refusal.Signature},
		"other type":       {change(func(r *report) { r.PayloadType = payloadType }), refusal.PayloadType},
		"two signatures":   {change(func(r *report) { r.Signatures = append(r.Signatures, theirs.Signatures...) }), refusal.Envelope},
		"no signature":     {change(func(r *report) { r.Signatures = nil }), refusal.Envelope},
		"no key":           {change(func(r *report) { r.Signatures[0].KeyID = "" }), refusal.BadKey},
		"not base64":       {change(func(r *report) { r.Signatures[0].KeyID = "%" }), refusal.BadKey},
		"large":            {append(raw, bytes.Repeat([]byte(" "), MaxReport)...), refusal.BundleSize},
		"not JSON":         {raw[1:], refusal.Bundle},
		"said twice":       {append([]byte(`{"payloadType":"x",`), raw[1:]...), refusal.Bundle},
		"something behind": {append(bytes.Clone(raw), 'x'), refusal.Bundle},
	} {
		if _, _, err := OpenReport(c.raw); refusal.Of(err) != c.code {
			t.Errorf("%s: %v, want %s", what, err, c.code)
		}
	}
}

// TestAReportIsNoCommand: what the key of a node signed passes for nothing that nodes
// obey, not even where somebody made nodes trust that key.
func TestAReportIsNoCommand(t *testing.T) {
	key := mustGenerate(t)
	digest := oci.Digest([]byte("overlay"))
	now := time.Now().UTC().Truncate(time.Second)
	bundle, err := SignOverlay(key, digest, Predicate{Fleet: "f", Node: "n", Layer: digest, Generation: 1, IssuedAt: now, Expires: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	var b struct {
		Envelope struct {
			Payload []byte `json:"payload"`
		} `json:"dsseEnvelope"`
	}
	if err := json.Unmarshal(bundle, &b); err != nil {
		t.Fatal(err)
	}
	keys := []Verifier{VerifierOf(key)}
	if _, err := VerifyOverlay([][]byte{bundle}, keys, 1, digest); err != nil {
		t.Fatalf("the statement itself: %v", err)
	}
	// A node can be brought to sign what it reports, so suppose that it is a statement.
	raw, err := SignReport(key, b.Envelope.Payload)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	for _, as := range []string{payloadType, PayloadReport} {
		forged, err := json.Marshal(bundleOf(r, as, keys[0].ID()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := VerifyOverlay([][]byte{forged}, keys, 1, digest); err == nil {
			t.Errorf("as %s it commands a node", as)
		}
	}
	if _, err := VerifyOverlay([][]byte{raw}, keys, 1, digest); err == nil {
		t.Error("a report commands a node")
	}
}

func mustGenerate(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func bundleOf(r report, payloadType, hint string) bundle {
	return bundle{MediaType: oci.TypeBundle, Verification: verification{PublicKey: &publicKey{Hint: hint}},
		Envelope: &dsse{Payload: r.Payload, PayloadType: payloadType, Signatures: []signature{{Sig: r.Signatures[0].Sig}}}}
}

func FuzzOpenReport(f *testing.F) {
	key, err := Generate()
	if err != nil {
		f.Fatal(err)
	}
	raw, err := SignReport(key, []byte("x"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if payload, by, err := OpenReport(raw); err == nil && (by == nil || !bytes.Equal(payload, []byte("x"))) {
			t.Errorf("%q by %v was taken", payload, by)
		}
	})
}
