// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"crypto"
	"fmt"

	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Approve has operators say that a plan may be published, each by a statement of its own.
func Approve(by []crypto.Signer, plan string, p sign.ApprovalPredicate) (statements []string, err error) {
	for _, s := range by {
		b, err := sign.SignApproval(s, plan, p)
		if err != nil {
			return nil, fmt.Errorf("sign the approval: %w", err)
		}
		statements = append(statements, string(b))
	}
	return statements, nil
}

// Approved is what one operator said of a plan.
type Approved struct {
	By
	Key string // id of the key that signed
}

// Approved reads what an operator of the fleet said of a plan, as [Approve] wrote it.
func (p Policy) Approved(plan, statement string) (Approved, error) {
	v, err := sign.VerifyApproval([]byte(statement), p.Operator, plan)
	if err != nil {
		return Approved{}, err
	}
	if v.Predicate.Fleet != p.Fleet {
		return Approved{}, refusal.New(refusal.Subject, "the approval is for fleet %q", v.Predicate.Fleet)
	}
	return Approved{By{v.Predicate.Author, v.Predicate.Reason}, v.Keys[0]}, nil
}
