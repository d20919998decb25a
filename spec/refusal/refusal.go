// SPDX-License-Identifier: Apache-2.0

// Package refusal names every reason for which caisson does not accept
// something that came from outside.
//
// A refusal is not a failure: a registry that is down is an error and is asked
// again, a registry that lies is refused. Each [Code] has one meaning, one line
// in docs/refusals.md and one hint, and programs may rely on its spelling: it is
// what the command line prints, what status shows after "refused:", and what
// the attack corpus expects.
//
// It imports the standard library only. oci, oci/sign and trust
// return its errors; anyone may read them through the methods.
package refusal

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Code is the stable name of a reason.
type Code string

// Refusal is the error: a code, what was seen, and what to do about it.
type Refusal struct {
	Code Code
	What string // what was seen, for people
	Err  error  // the cause, may be nil
}

// New returns a refusal.
func New(code Code, format string, args ...any) *Refusal {
	err := fmt.Errorf(format, args...)
	return &Refusal{Code: code, What: err.Error(), Err: errors.Unwrap(err)}
}

// If returns a refusal where that is wrong, else nil.
func If(wrong bool, code Code, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return New(code, format, args...)
}

func (r *Refusal) Error() string { return r.What }
func (r *Refusal) Unwrap() error { return r.Err }

// RefusalCode is the code as text, for internal/cli and for status.
func (r *Refusal) RefusalCode() string { return string(r.Code) }

// Hint says what an operator can do about it: what the cause says, where that is not a
// refusal and says something, since it knows more than the code.
func (r *Refusal) Hint() string {
	var cause interface{ Hint() string }
	if errors.As(r.Err, &cause) {
		if _, refused := cause.(*Refusal); !refused {
			return cause.Hint()
		}
	}
	return meanings[r.Code].hint
}

// Of returns the code of err, or "" when err is not a refusal.
func Of(err error) Code {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Code
	}
	return ""
}

// OfKeys reports whether err refuses who signed.
func OfKeys(err error) bool {
	code := Of(err)
	return code == UnknownKey || code == Threshold
}

// What a registry or a mirror served.
const (
	Oversize  Code = "oversize"
	Malformed Code = "malformed"
	MediaType Code = "media-type"
	Digest    Code = "digest"
	Size      Code = "size"
	Inline    Code = "inline-data"
	Range     Code = "range"
	Redirect  Code = "redirect"
	Shape     Code = "shape"
)

// Signatures.
const (
	Unsigned      Code = "unsigned"
	BundleFlood   Code = "bundle-flood"
	BundleSize    Code = "bundle-size"
	Bundle        Code = "bundle"
	BundleType    Code = "bundle-type"
	Envelope      Code = "envelope"
	PayloadType   Code = "payload-type"
	UnknownKey    Code = "unknown-key"
	Signature     Code = "signature"
	Statement     Code = "statement"
	StatementType Code = "statement-type"
	PredicateType Code = "predicate-type"
	Subject       Code = "subject"
	Predicate     Code = "predicate"
	Threshold     Code = "threshold"
	BadKey        Code = "bad-key"
)

// What a node is to become.
const (
	Overlay       Code = "overlay"
	WrongFleet    Code = "wrong-fleet"
	WrongNode     Code = "wrong-node"
	WrongMachine  Code = "wrong-machine"
	WrongLayer    Code = "wrong-layer"
	Contradiction Code = "contradiction"
	BadName       Code = "bad-name"
	BadPath       Code = "bad-path"
	BadNumber     Code = "bad-number"
	Validity      Code = "validity"
	Epoch         Code = "epoch"
	Rollback      Code = "rollback"
	Replay        Code = "replay"
	Stale         Code = "stale"
	Rejected      Code = "rejected"
	Expired       Code = "expired"
	WrongArch     Code = "wrong-arch"
	Layer         Code = "layer"
	Kernel        Code = "kernel"
	Missing       Code = "missing"
	NeedsAgent    Code = "needs-agent"
	Keys          Code = "keys"
	KeysBehind    Code = "keys-behind"
	Rescue        Code = "rescue"
	WrongCode     Code = "wrong-code"
	AppArmor      Code = "apparmor"
)

type meaning struct{ means, hint string }

// meanings is the documented table: docs/refusals.md holds the same lines.
var meanings = map[Code]meaning{
	Oversize: {"more bytes than the cap for this kind of thing",
		"find out what the registry serves there; the caps are in docs/transport.md"},
	Malformed: {"not the strict JSON that manifests must be: duplicate or differently cased key, bad UTF-8, trailing data, nested too deep",
		"publish it again with caisson"},
	MediaType: {"another kind of document than was asked for, or two kinds at once",
		"is it a registry that answers there? Else publish again with caisson; a layer is named by the digest of its manifest, not of an index"},
	Digest: {"the bytes do not have the digest under which they were asked for",
		"the registry, a mirror or a proxy alters content: compare with another one"},
	Size:   {"fewer or more bytes than the descriptor says", "the registry, a mirror or a proxy cuts content: compare with another one"},
	Inline: {"a descriptor's inline data is not the content that it names", "publish it again with caisson"},
	Range: {"the answer to a resumed download is not the range that was asked for",
		"the download starts again by itself; look at the proxy between"},
	Redirect: {"a redirect to another host in the middle of a download, or away from TLS",
		"serve the blob from one host, or put the other one into the mirrors"},
	Shape: {"a manifest without the parts its kind must have", "publish it again with caisson"},

	Unsigned:    {"no signature at all", "sign it: --key of 'caisson build' for a layer, of 'caisson publish' for an overlay"},
	BundleFlood: {"more signature bundles than are looked at", "publish it again with caisson"},
	BundleSize:  {"a signature bundle above the cap", "publish it again with caisson"},
	Bundle:      {"a bundle that is not strict JSON of the sigstore form", "publish it again with caisson"},
	BundleType:  {"a bundle of another version than v0.3", "sign with cosign v2.6 or newer, or with caisson"},
	Envelope:    {"a bundle without exactly one DSSE signature", "give every key a bundle of its own"},
	PayloadType: {"an envelope around something other than an in-toto statement", "sign with caisson publish, pin or refresh"},
	UnknownKey: {"signed by a key that is not trusted for this role",
		"compare the keys that are trusted (the site's trust.keys, --key or --trust; on a node those of its bootstrap, site.cpio) " +
			"with the one that signs: 'caisson keys show' prints the id of each"},
	Signature: {"names a trusted key, but that key did not sign these bytes",
		"somebody altered the document: publish it again and look at who can push"},
	Statement:     {"a signed payload that is not a strict in-toto statement", "sign with caisson publish, pin or refresh"},
	StatementType: {"a statement of an unknown in-toto version", "sign with caisson publish, pin or refresh"},
	PredicateType: {"a good signature for another purpose, for example an attestation",
		"sign with caisson publish, pin or refresh; keep release, attestation and operator keys apart"},
	Subject:   {"a good signature of other content", "publish it again with caisson"},
	Predicate: {"a signed statement with missing, unknown or impossible fields", "publish with a caisson of the same release"},
	Threshold: {"fewer distinct trusted keys than the site demands have signed", "sign with more keys: caisson publish --key A --key B"},
	BadKey:    {"a public key that is not ECDSA P-256, or is listed twice", "caisson keys generate makes the right kind"},

	Overlay:    {"the overlay is not the canonical document of its kind", "publish with a caisson of the same release"},
	WrongFleet: {"signed for another fleet", "check the fleet's name in the site and in the bootstrap"},
	WrongNode:  {"signed for a node of another name", "check the tag under which it was published and the name given to this machine"},
	WrongMachine: {"none of the identifiers that it is bound to belongs to this machine",
		"compare the node's match in the site with what the machine has: ip link, dmidecode -s system-uuid"},
	WrongLayer: {"an overlay that is signed for another layer than the one that it was to act on",
		"start the machine over, so that the overlay's own layer runs"},
	Contradiction: {"the overlay says something else than the statement about it", "publish it again with caisson"},
	BadName:       {"a name with characters that names must not have", "names are lower-case letters, digits, dots and dashes"},
	BadPath:       {"a path that is relative or leaves its place", "give absolute paths without . or .."},
	BadNumber:     {"a number beyond what documents may hold", "publish it again with caisson"},
	Validity:      {"expires before it was issued, or the times cannot be read", "check the clock of the machine that signs"},
	Epoch: {"a higher epoch without the epoch key's permission, or a lower one",
		"publish for this node in the fleet's present epoch; caisson publish --epoch N --epoch-key FILE raises it"},
	Rollback: {"an older generation than this node has accepted",
		"to go back on purpose publish a newer generation: caisson pin --layer"},
	Replay:    {"the same generation with other content", "publish again: every change needs a new generation"},
	Stale:     {"older than the least generation the fleet allows", "publish this node again, see fleet:current"},
	Rejected:  {"on the fleet's or the node's reject list", "publish a new generation"},
	Expired:   {"expired, and the site says to hold", "caisson refresh renews it; check the node's clock"},
	WrongArch: {"a layer for another architecture", "build a variant for this machine"},
	Kernel: {"a kernel that this machine's firmware, which verifies, would not start",
		"build the layer with the boot key whose certificate is in the firmware's db; on arm64 run 'caisson loader', so that the machine " +
			"starts by the layer's kernel; docs/keys.md"},
	AppArmor: {"AppArmor policy that uses what the running kernel does not have",
		"let the node run the layer's own kernel, without apparmor=0 among its arguments; or build the layer for a kernel of the other series"},
	NeedsAgent: {"a document that uses what this agent does not know",
		"boot a layer whose agent knows it: build one with this release, or publish without the new setting"},
	Keys: {"a version of fleet:keys that contradicts itself or the version before it",
		"make versions with 'caisson keys rotate' and 'keys revoke' only; docs/keys.md"},
	Rescue: {"a rescue statement that contradicts itself or opens nothing", "make it with 'caisson rescue' only; docs/rescue.md"},
	WrongCode: {"a statement for a code that this node does not show, or that was used",
		"a code is new at each boot and after each use: read it on the console or with 'caisson-agent status', and sign again"},
	KeysBehind: {"fleet:current names a version of fleet:keys that the registry does not have",
		"somebody withholds it, or the fleet began another chain and this machine needs its boot files: docs/keys.md; " +
			"'caisson keys pull SITE' brings those that are published"},
	Missing: {"not there, though it was seen before or must be", "look at what happened to the registry: compare with a mirror"},
	Layer:   {"a layer whose description and manifest do not agree", "build and publish the layer again"},
}

// Codes lists every code, sorted.
func Codes() []Code { return slices.Sorted(maps.Keys(meanings)) }
