// SPDX-License-Identifier: Apache-2.0

// Package rescue decides whether a document of the role rescue lets an operator into a node.
//
// The answer depends on the bytes, the rescue keys of the newest version of fleet:keys, and who
// asks: its fleet, its names and the code that it shows. That a code counts once, and for how
// long something is open, is kept by package bootagent/rescue. The checks are a named list, as
// those of package trust; no part of the document is parsed before its signature is verified.
package rescue

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/rules"
)

// Node describes the node that decides.
type Node struct {
	Fleet string
	Names []string  // its name, and the tags of its hardware, see [trust.Identity.Tags]
	Code  string    // that it shows
	Keys  spec.Role // the rescue keys that count

	rules check.List[*decision] // nil is all checks
}

// Accepted is a document that lets an operator in, once the caller has kept that its code is used.
type Accepted struct {
	spec.Rescue
	Digest string   // of the document
	Signed []string // ids of the keys that signed
}

// decision is a candidate on its way through the checks.
type decision struct {
	candidate trust.Candidate
	node      Node

	digest string
	said   sign.RescuePredicate
	signed []string
	doc    spec.Rescue
}

// all is the whole rule. The code comes last: only a good document for this node counts as a guess.
var all = check.List[*decision]{
	{Name: "rescue: size", OK: capped},
	{Name: "rescue: signature", OK: signed},
	{Name: "rescue: fleet", OK: fleetIsOurs},
	{Name: "rescue: node", OK: nodeIsOurs},
	{Name: "rescue: document", OK: parses},
	{Name: "rescue: needs", OK: needsAreKnown},
	{Name: "rescue: agreement", OK: agrees},
	{Name: "rescue: sense", OK: isSound},
	{Name: "rescue: code", OK: codeIsShown},
}

// Accept decides, and writes nothing. A refusal with [refusal.WrongCode] is of a document that is
// right in all else.
func (n Node) Accept(c trust.Candidate) (*Accepted, error) {
	checks := n.rules
	if checks == nil {
		checks = all
	}
	d := &decision{candidate: c, node: n, digest: oci.Digest(c.Document)}
	if err := checks.Run(d); err != nil {
		return nil, fmt.Errorf("rescue: %w", err)
	}
	return &Accepted{Rescue: d.doc, Digest: d.digest, Signed: d.signed}, nil
}

func capped(d *decision) error {
	return refusal.If(len(d.candidate.Document) > oci.MaxRescue, refusal.Oversize, "rescue document of %d bytes", len(d.candidate.Document))
}

func signed(d *decision) error {
	if len(d.node.Keys.Keys) == 0 {
		return refusal.New(refusal.UnknownKey, "no rescue key counts for this node")
	}
	keys, err := sign.ParsePublics(d.node.Keys.Keys)
	if err != nil {
		return err
	}
	v, err := sign.VerifyRescue(d.candidate.Bundles, keys, d.node.Keys.Threshold, d.digest)
	if err == nil {
		d.said, d.signed = v.Predicate, v.Keys
	}
	return err
}

func fleetIsOurs(d *decision) error {
	return refusal.If(d.said.Fleet != d.node.Fleet, refusal.WrongFleet, "signed for fleet %q, this is %q", d.said.Fleet, d.node.Fleet)
}

func nodeIsOurs(d *decision) error {
	return refusal.If(!slices.Contains(d.node.Names, d.said.Node), refusal.WrongNode, "signed for node %q, this is %q", d.said.Node,
		d.node.Names)
}

func parses(d *decision) error {
	_, err := spec.DecodeKnown(d.candidate.Document, &d.doc)
	return refusal.If(err != nil, refusal.Rescue, "%w", err)
}

// needsAreKnown: no need has a name yet; a later release may add some.
func needsAreKnown(d *decision) error {
	return refusal.If(len(d.doc.Needs) > 0, refusal.NeedsAgent, "it needs %.200q", d.doc.Needs)
}

// agrees keeps two sources of one truth from drifting apart.
func agrees(d *decision) error {
	if d.doc.Fleet != d.said.Fleet || d.doc.Node != d.said.Node || d.doc.Code != d.said.Code {
		return refusal.New(refusal.Contradiction, "the document is for node %q of fleet %q, its statement for %q of %q, or their codes differ",
			d.doc.Node, d.doc.Fleet, d.said.Node, d.said.Fleet)
	}
	return nil
}

func isSound(d *decision) error {
	r := &d.doc
	if r.APIVersion != spec.APIVersion || r.Kind != spec.KindRescue {
		return refusal.New(refusal.Rescue, "the document is %.40q %.40q", r.APIVersion, r.Kind)
	}
	if r.Lasts < 1 || r.Lasts > int64(spec.MaxRescue/time.Second) {
		return refusal.New(refusal.Rescue, "it is to last %d s; at most %s", r.Lasts, spec.MaxRescue)
	}
	if len(r.SSHKeys) > spec.MaxRescueKeys || len(r.SSHKeys) == 0 && !r.Console {
		return refusal.New(refusal.Rescue, "it opens the console: %t, and names %d ssh keys; at most %d", r.Console,
			len(r.SSHKeys), spec.MaxRescueKeys)
	}
	for _, line := range r.SSHKeys {
		if problem := KeyProblem(line); problem != "" {
			return refusal.New(refusal.Rescue, "ssh key %.80q: %s", line, problem)
		}
	}
	return refusal.If(r.Reason == "" || len(r.Reason) > spec.MaxRescueReason, refusal.Rescue,
		"a reason of %d bytes; it needs one, of at most %d", len(r.Reason), spec.MaxRescueReason)
}

// KeyProblem returns what is wrong with a line that the node puts options before.
func KeyProblem(line string) string {
	if problem := rules.SSHKeyProblem(line); problem != "" {
		return problem
	}
	if strings.ContainsFunc(line, func(r rune) bool { return r == '\t' || rules.Hidden(r) }) {
		return "it has a control character, or one that is not shown"
	}
	if strings.HasPrefix(line, "ssh-dss ") {
		return "sshd takes no DSA keys any more"
	}
	for _, kind := range []string{"ssh-", "ecdsa-", "sk-"} {
		if strings.HasPrefix(line, kind) {
			return ""
		}
	}
	return "it begins with options; the node sets its own"
}

func codeIsShown(d *decision) error {
	return refusal.If(d.node.Code == "" || d.said.Code != d.node.Code, refusal.WrongCode, "it is for another code than this node shows now")
}
