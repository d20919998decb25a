// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/spec"
)

// claim is a report beside what is known of the node that it names.
type claim struct {
	known Known
	owner string
	r     *spec.Report
	now   time.Time
}

// rules are what a report has to meet to count, in this order.
var rules = check.List[claim]{
	{Name: "its number is new", OK: func(c claim) error {
		if c.r.Key != c.known.Key || c.r.Seq > c.known.Seq {
			return nil
		}
		return &shortfall{Refused, fmt.Sprintf("number %d was taken before, %d was the last", c.r.Seq, c.known.Seq)}
	}},
	{Name: "the key is no other node's", OK: ofNewKeys(func(c claim) bool { return c.owner != "" && c.owner != c.r.Node },
		Refused, "its key is the one of another node")},
	{Name: "a key does not come back", OK: ofNewKeys(func(c claim) bool { return c.owner == c.r.Node },
		Refused, "its key is an earlier one of this node")},
	{Name: "a pinned key stays", OK: ofNewKeys(func(c claim) bool { return c.known.Key != "" && c.known.Grade != spec.KeyBoot },
		Offered, "its key is not the one that is pinned")},
	{Name: "one key a boot", OK: ofNewKeys(func(c claim) bool { return c.known.Key != "" && c.r.BootID == c.known.Boot },
		Offered, "its key is another one in the same boot")},
	{Name: "keys change seldom", OK: ofNewKeys(func(c claim) bool { return c.known.Key != "" && c.now.Sub(c.known.Since).Abs() < Settled },
		Offered, fmt.Sprintf("the last change of its key was less than %d minutes ago", int(Settled.Minutes())))},
}

// shortfall is what becomes of a report that does not count, and why.
type shortfall struct {
	verdict Verdict
	why     string
}

func (s *shortfall) Error() string { return s.why }

// ofNewKeys makes a check of a report by another key than the one that counts.
func ofNewKeys(wrong func(claim) bool, v Verdict, why string) func(claim) error {
	return func(c claim) error {
		if c.r.Key == c.known.Key || !wrong(c) {
			return nil
		}
		return &shortfall{v, why}
	}
}

func judge(rules check.List[claim], c claim) (Verdict, string) {
	var s *shortfall
	switch err := rules.Run(c); {
	case err == nil:
		return Counts, ""
	case errors.As(err, &s):
		return s.verdict, s.why
	default:
		return Refused, err.Error()
	}
}
