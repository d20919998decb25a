// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/internal/strict"
	"github.com/caisson-os/caisson/spec/refusal"
)

// candidate is one bundle on its way through the checks. What a check reads was
// put there by an earlier one.
type candidate struct {
	raw    []byte
	limit  int    // bytes of raw; none is [oci.MaxBundle]
	digest string // what the subject must be
	kind   string // what the predicate type must be
	keys   []Verifier
	into   any          // where the predicate goes; nil leaves it raw
	sound  func() error // what into must be besides

	bundle    bundle
	signer    string // id of the key that signed
	statement statement
}

// bundleChecks is all that makes a bundle good, in order. No part of a payload
// is parsed before its signature is verified.
var bundleChecks = check.List[*candidate]{
	{Name: "bundle size", OK: sizeCapped},
	{Name: "bundle form", OK: bundleParses},
	{Name: "bundle type", OK: bundleVersion},
	{Name: "one envelope", OK: oneSignature},
	{Name: "payload type", OK: payloadIsInToto},
	{Name: "known key", OK: keyIsTrusted},
	{Name: "signature", OK: signatureVerifies},
	{Name: "statement form", OK: statementParses},
	{Name: "statement type", OK: statementVersion},
	{Name: "predicate type", OK: predicateIsWanted},
	{Name: "subject", OK: subjectIsContent},
	{Name: "predicate form", OK: predicateParses},
	{Name: "predicate sense", OK: predicateIsSound},
}

// set is all bundles beside one document.
type set struct {
	bundles   [][]byte
	keys      []Verifier
	threshold int
}

// setChecks come before any bundle is read.
var setChecks = check.List[set]{
	{Name: "threshold can be met", OK: thresholdIsPossible},
	{Name: "anything signed", OK: somethingIsSigned},
	{Name: "flood", OK: notFlooded},
}

func thresholdIsPossible(s set) error {
	return refusal.If(len(s.keys) == 0 || s.threshold < 1 || s.threshold > len(s.keys), refusal.Threshold,
		"%d signatures are needed of %d keys", s.threshold, len(s.keys))
}

func somethingIsSigned(s set) error {
	return refusal.If(len(s.bundles) == 0, refusal.Unsigned, "no signature")
}

func notFlooded(s set) error {
	return refusal.If(len(s.bundles) > oci.MaxBundles, refusal.BundleFlood, "%d signature bundles", len(s.bundles))
}

// enough is the last check: distinct keys count, signatures do not.
func enough(signers []string, threshold int) bool { return len(signers) >= threshold }

// rules are all checks of this package; only its tests use others than [whole].
type rules struct {
	set    check.List[set]
	bundle check.List[*candidate]
	enough func(signers []string, threshold int) bool
}

var whole = rules{setChecks, bundleChecks, enough}

func sizeCapped(c *candidate) error {
	return refusal.If(len(c.raw) > max(c.limit, oci.MaxBundle), refusal.BundleSize, "bundle of %d bytes", len(c.raw))
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
	return refusal.If(c.bundle.MediaType != oci.TypeBundle, refusal.BundleType, "bundle of type %.80q", c.bundle.MediaType)
}

func oneSignature(c *candidate) error {
	n := len(c.bundle.Envelope.Signatures)
	return refusal.If(n != 1, refusal.Envelope, "%d signatures in one envelope", n)
}

func payloadIsInToto(c *candidate) error {
	t := c.bundle.Envelope.PayloadType
	return refusal.If(t != payloadType, refusal.PayloadType, "payload of type %.80q", t)
}

// keyIsTrusted uses the hint, which anyone may write, only to say no sooner and
// to say it better: the signature is verified with every trusted key.
func keyIsTrusted(c *candidate) error {
	key := c.bundle.Verification.PublicKey
	if key == nil {
		return refusal.New(refusal.UnknownKey, "the bundle names no public key")
	}
	for _, k := range c.keys {
		if k.ID() == key.Hint {
			return nil
		}
	}
	return refusal.New(refusal.UnknownKey, "signed by key %.60q, which is not trusted for this", key.Hint)
}

func signatureVerifies(c *candidate) error {
	e := c.bundle.Envelope
	message := preAuth(e.PayloadType, e.Payload)
	for _, k := range c.keys {
		for _, s := range e.Signatures {
			if k.Verify(message, s.Sig) {
				c.signer = k.ID()
				return nil
			}
		}
	}
	return refusal.New(refusal.Signature, "no trusted key made this signature")
}

func statementParses(c *candidate) error {
	err := strict.DecodeKnown(c.bundle.Envelope.Payload, &c.statement)
	return refusal.If(err != nil, refusal.Statement, "statement: %w", err)
}

func statementVersion(c *candidate) error {
	t := c.statement.Type
	return refusal.If(t != statementV1 && t != statementV0, refusal.StatementType, "statement of type %.80q", t)
}

func predicateIsWanted(c *candidate) error {
	t := c.statement.PredicateType
	return refusal.If(t != c.kind, refusal.PredicateType, "the signature says %.80q where %q is needed", t, c.kind)
}

func subjectIsContent(c *candidate) error {
	if n := len(c.statement.Subject); n != 1 {
		return refusal.New(refusal.Subject, "the statement has %d subjects", n)
	}
	d := c.statement.Subject[0].Digest
	return refusal.If(len(d) != 1 || digest.FromHex(d["sha256"]) != c.digest, refusal.Subject,
		"the statement is about another content than %s", c.digest)
}

func predicateParses(c *candidate) error {
	if c.into == nil {
		return nil
	}
	err := strict.Decode(c.statement.Predicate, c.into)
	return refusal.If(err != nil, refusal.Predicate, "predicate: %w", err)
}

func predicateIsSound(c *candidate) error {
	if c.sound == nil {
		return nil
	}
	return c.sound()
}
