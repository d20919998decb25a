// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"crypto"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Act is the word before the digest of a plan: of all that one publish signs. One without it is of
// the old kind, of nodes' overlays alone.
const Act = "act:"

// ActDigest returns the digest of a plan without the word before it.
func ActDigest(plan string) (string, error) {
	bare, is := strings.CutPrefix(plan, Act)
	switch {
	case !oci.ValidDigest(bare):
		return "", cli.Usage(Act+"sha256:… as 'caisson publish --from-cluster --dry-run' prints it", "%.80q is not the digest of a plan", plan)
	case !is:
		return "", cli.Usage("look at the plan again, with 'caisson publish --from-cluster --dry-run', and agree to what "+
			"that prints: "+Act+"sha256:…",
			"%s is the digest of a plan of the old kind, which covers neither registry, lifetime, threshold nor rollouts", plan)
	}
	return bare, nil
}

// Approve has operators say that a plan may be published, each by a statement of its own.
func Approve(by []crypto.Signer, plan string, p sign.ApprovalPredicate) (statements []string, err error) {
	bare, err := ActDigest(plan)
	if err != nil {
		return nil, err
	}
	for _, s := range by {
		b, err := sign.SignApproval(s, bare, p)
		if err != nil {
			return nil, fmt.Errorf("sign the approval: %w", err)
		}
		statements = append(statements, string(b))
	}
	return statements, nil
}

// Approved is one operator's approval of a plan.
type Approved struct {
	publish.By
	Key string // id of the key that signed
}

// ReadApproval reads what an operator of the fleet said of a plan, as [Approve] wrote it.
func ReadApproval(p published.Policy, plan, statement string) (Approved, error) {
	bare, err := ActDigest(plan)
	if err != nil {
		return Approved{}, err
	}
	v, err := sign.VerifyApproval([]byte(statement), p.Operator, bare)
	if err != nil {
		return Approved{}, err
	}
	if v.Predicate.Fleet != p.Fleet {
		return Approved{}, refusal.New(refusal.Subject, "the approval is for fleet %q", v.Predicate.Fleet)
	}
	return Approved{publish.By{Author: v.Predicate.Author, Reason: v.Predicate.Reason}, v.Keys[0]}, nil
}

// ApprovalName is of the plan and of who approves: two operators have two objects, and one who
// approves again has the same.
func ApprovalName(plan string, key any) (string, error) {
	v, err := sign.NewVerifier(key)
	if err != nil {
		return "", err
	}
	return digest.Hex(plan)[:12] + "-" + digest.Hex(digest.Of(v.PEM()))[:8], nil
}
