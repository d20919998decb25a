// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/internal/strict"
	"github.com/caisson-os/caisson/oci/refusal"
)

// candidate is one bundle on its way through the checks. What a check reads was
// put there by an earlier one.
type candidate struct {
	raw    []byte
	digest string // what the subject must be
	kind   string // what the predicate type must be
	keys   []*ecdsa.PublicKey
	into   any          // where the predicate goes; nil leaves it raw
	sound  func() error // what into must be besides

	bundle    bundle
	signer    string // id of the key that signed
	statement statement
}

type bundleCheck struct {
	name string
	ok   func(*candidate) error
}

// bundleChecks is all that makes a bundle good, in order. Nothing of a payload
// is parsed before its signature is verified.
var bundleChecks = []bundleCheck{
	{"bundle size", sizeCapped},
	{"bundle form", bundleParses},
	{"bundle type", bundleVersion},
	{"one envelope", oneSignature},
	{"payload type", payloadIsInToto},
	{"known key", keyIsTrusted},
	{"signature", signatureVerifies},
	{"statement form", statementParses},
	{"statement type", statementVersion},
	{"predicate type", predicateIsWanted},
	{"subject", subjectIsContent},
	{"predicate form", predicateParses},
	{"predicate sense", predicateIsSound},
}

// set is all bundles beside one document.
type set struct {
	bundles   [][]byte
	keys      []*ecdsa.PublicKey
	threshold int
}

type setCheck struct {
	name string
	ok   func(set) error
}

// setChecks come before any bundle is read.
var setChecks = []setCheck{
	{"threshold can be met", thresholdIsPossible},
	{"anything signed", somethingIsSigned},
	{"flood", notFlooded},
}

func thresholdIsPossible(s set) error {
	if len(s.keys) == 0 || s.threshold < 1 || s.threshold > len(s.keys) {
		return refusal.New(refusal.Threshold, "%d signatures are needed of %d keys", s.threshold, len(s.keys))
	}
	return nil
}

func somethingIsSigned(s set) error {
	if len(s.bundles) == 0 {
		return refusal.New(refusal.Unsigned, "no signature")
	}
	return nil
}

func notFlooded(s set) error {
	if n := len(s.bundles); n > oci.MaxBundles {
		return refusal.New(refusal.BundleFlood, "%d signature bundles", n)
	}
	return nil
}

// enough is the last check: distinct keys count, signatures do not.
func enough(signers []string, threshold int) bool { return len(signers) >= threshold }

// rules are all checks of this package; only its tests use others than [whole].
type rules struct {
	set    []setCheck
	bundle []bundleCheck
	enough func(signers []string, threshold int) bool
}

var whole = rules{setChecks, bundleChecks, enough}

func sizeCapped(c *candidate) error {
	if len(c.raw) > oci.MaxBundle {
		return refusal.New(refusal.BundleSize, "bundle of %d bytes", len(c.raw))
	}
	return nil
}

func bundleParses(c *candidate) error {
	if err := strict.Decode(c.raw, &c.bundle); err != nil {
		return refusal.New(refusal.Bundle, "bundle: %w", err)
	}
	if c.bundle.Envelope == nil {
		c.bundle.Envelope = &dsse{}
	}
	return nil
}

func bundleVersion(c *candidate) error {
	if c.bundle.MediaType != oci.TypeBundle {
		return refusal.New(refusal.BundleType, "bundle of type %.80q", c.bundle.MediaType)
	}
	return nil
}

func oneSignature(c *candidate) error {
	if n := len(c.bundle.Envelope.Signatures); n != 1 {
		return refusal.New(refusal.Envelope, "%d signatures in one envelope", n)
	}
	return nil
}

func payloadIsInToto(c *candidate) error {
	if t := c.bundle.Envelope.PayloadType; t != payloadType {
		return refusal.New(refusal.PayloadType, "payload of type %.80q", t)
	}
	return nil
}

// keyIsTrusted uses the hint, which anyone may write, only to say no sooner and
// to say it better: the signature is verified with every trusted key.
func keyIsTrusted(c *candidate) error {
	key := c.bundle.Verification.PublicKey
	if key == nil {
		return refusal.New(refusal.UnknownKey, "the bundle names no public key")
	}
	for _, k := range c.keys {
		if KeyID(k) == key.Hint {
			return nil
		}
	}
	return refusal.New(refusal.UnknownKey, "signed by key %.60q, which is not trusted for this", key.Hint)
}

func signatureVerifies(c *candidate) error {
	e := c.bundle.Envelope
	sum := sha256.Sum256(preAuth(e.PayloadType, e.Payload))
	for _, k := range c.keys {
		for _, s := range e.Signatures {
			if ecdsa.VerifyASN1(k, sum[:], s.Sig) {
				c.signer = KeyID(k)
				return nil
			}
		}
	}
	return refusal.New(refusal.Signature, "no trusted key made this signature")
}

func statementParses(c *candidate) error {
	if err := strict.DecodeKnown(c.bundle.Envelope.Payload, &c.statement); err != nil {
		return refusal.New(refusal.Statement, "statement: %w", err)
	}
	return nil
}

func statementVersion(c *candidate) error {
	if t := c.statement.Type; t != statementV1 && t != statementV0 {
		return refusal.New(refusal.StatementType, "statement of type %.80q", t)
	}
	return nil
}

func predicateIsWanted(c *candidate) error {
	if t := c.statement.PredicateType; t != c.kind {
		return refusal.New(refusal.PredicateType, "the signature says %.80q where %q is needed", t, c.kind)
	}
	return nil
}

func subjectIsContent(c *candidate) error {
	if n := len(c.statement.Subject); n != 1 {
		return refusal.New(refusal.Subject, "the statement has %d subjects", n)
	}
	d := c.statement.Subject[0].Digest
	if len(d) != 1 || "sha256:"+d["sha256"] != c.digest {
		return refusal.New(refusal.Subject, "the statement is about %v, the content is %s", d, c.digest)
	}
	return nil
}

func predicateParses(c *candidate) error {
	if c.into == nil {
		return nil
	}
	if err := strict.DecodeKnown(c.statement.Predicate, c.into); err != nil {
		return refusal.New(refusal.Predicate, "predicate: %w", err)
	}
	return nil
}

func predicateIsSound(c *candidate) error {
	if c.sound == nil {
		return nil
	}
	return c.sound()
}

// Verified is a statement that enough distinct keys have signed.
type Verified[P any] struct {
	Predicate P
	Keys      []string // ids of the keys, sorted
}

// VerifyOverlay finds among the bundles the statement about an overlay that at
// least threshold distinct keys have signed. Bad bundles are passed over. Of
// several good statements, the one with the greatest (epoch, generation, time of
// issue) counts.
func VerifyOverlay(bundles [][]byte, keys []*ecdsa.PublicKey, threshold int, overlayDigest string) (*Verified[Predicate], error) {
	return verify(whole, bundles, keys, threshold, overlayDigest, PredicateOverlay, (*Predicate).check, newerOverlay)
}

// VerifyFleet does for a document about the fleet what [VerifyOverlay] does for
// an overlay.
func VerifyFleet(bundles [][]byte, keys []*ecdsa.PublicKey, threshold int, documentDigest, kind string) (*Verified[FleetPredicate], error) {
	return verify(whole, bundles, keys, threshold, documentDigest, kind, (*FleetPredicate).check,
		func(a, b *FleetPredicate) bool { return a.IssuedAt.After(b.IssuedAt) })
}

// VerifyEpoch says whether the bundles permit an epoch.
func VerifyEpoch(bundles [][]byte, keys []*ecdsa.PublicKey, fleet string, epoch uint64) error {
	v, err := verify(whole, bundles, keys, 1, oci.Digest(EpochText(fleet, epoch)), PredicateEpoch, (*EpochPredicate).check,
		func(a, b *EpochPredicate) bool { return false })
	if err != nil {
		return err
	}
	if v.Predicate != (EpochPredicate{fleet, epoch}) {
		return refusal.New(refusal.Subject, "the permission is for epoch %d of fleet %q", v.Predicate.Epoch, v.Predicate.Fleet)
	}
	return nil
}

// VerifyArtifact says whether one of the keys released a manifest.
func VerifyArtifact(raw []byte, manifestDigest string, keys []*ecdsa.PublicKey) error {
	_, err := VerifyAttestation(raw, manifestDigest, PredicateCosign, keys)
	return err
}

// VerifyAttestation returns the predicate that one of the keys signed about a subject.
func VerifyAttestation(raw []byte, subjectDigest, predicateType string, keys []*ecdsa.PublicKey) (json.RawMessage, error) {
	c := &candidate{raw: raw, digest: subjectDigest, kind: predicateType, keys: keys}
	if _, err := c.run(bundleChecks); err != nil {
		return nil, err
	}
	return c.statement.Predicate, nil
}

// run returns how many checks the candidate passed, for the best excuse.
func (c *candidate) run(checks []bundleCheck) (int, error) {
	for i, check := range checks {
		if err := check.ok(c); err != nil {
			return i, err
		}
	}
	return len(checks), nil
}

func newerOverlay(a, b *Predicate) bool {
	switch {
	case a.Epoch != b.Epoch:
		return a.Epoch > b.Epoch
	case a.Generation != b.Generation:
		return a.Generation > b.Generation
	}
	return a.IssuedAt.After(b.IssuedAt)
}

func verify[P any](r rules, bundles [][]byte, keys []*ecdsa.PublicKey, threshold int, digest, kind string, sound func(*P) error, newer func(a, b *P) bool) (*Verified[P], error) {
	for _, check := range r.set {
		if err := check.ok(set{bundles, keys, threshold}); err != nil {
			return nil, err
		}
	}
	signers := map[string][]string{} // by the statement's predicate
	found := map[string]*P{}
	best, excuse := -1, error(nil)
	for _, raw := range bundles {
		p := new(P)
		c := &candidate{raw: raw, digest: digest, kind: kind, keys: keys, into: p, sound: func() error { return sound(p) }}
		passed, err := c.run(r.bundle)
		if err != nil {
			if passed > best {
				best, excuse = passed, err
			}
			continue
		}
		same, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		id := string(same)
		found[id] = p
		if !slices.Contains(signers[id], c.signer) {
			signers[id] = append(signers[id], c.signer)
		}
	}
	winner := ""
	for id, who := range signers {
		if r.enough(who, threshold) && (winner == "" || newer(found[id], found[winner])) {
			winner = id
		}
	}
	if winner != "" {
		slices.Sort(signers[winner])
		return &Verified[P]{*found[winner], signers[winner]}, nil
	}
	for _, who := range signers {
		return nil, refusal.New(refusal.Threshold, "%d of %d keys have signed, %d are needed: %s", len(who), len(keys), threshold, strings.Join(who, ", "))
	}
	return nil, excuse
}
