// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/spec"
)

// claim is a report beside what is known of the node that it names, and of its key.
type claim struct {
	known Known
	key   Key
	r     *spec.Report
	now   time.Time
}

// again reports whether the key counted for this node before, and for longer than the
// one that counts now: that one came while this one was not heard, and its boot has not
// ended, as another one's key says that it has.
func (c claim) again() bool {
	return c.key.Node == c.r.Node && c.key.Counted > c.known.Counted()
}

// rules are the conditions under which a report counts, in this order.
var rules = check.List[claim]{
	{Name: "its number is new", OK: func(c claim) error {
		last := c.key.Seq
		switch {
		case c.r.Key == c.known.Key:
			last = c.known.Seq
		case c.key.Accepted && last == spec.MaxSeq: // it is not known, and an operator wants this key
			last = 0
		}
		if c.r.Seq > last {
			return nil
		}
		return &shortfall{Refused, fmt.Sprintf("number %d was taken before, %d was the last", c.r.Seq, last)}
	}},
	{Name: "the key does not belong to another node", OK: ofOthers(func(c claim) bool { return c.key.Node != "" && c.key.Node != c.r.Node },
		Refused, "its key belongs to another node")},
	{Name: "a pinned key stays", OK: unnamed(func(c claim) bool { return c.known.Grade != spec.KeyBoot },
		"its key is not the one that is pinned")},
	{Name: "what an operator ended does not come back", OK: unnamed(func(c claim) bool { return c.key.GivenUp },
		"an operator accepted another key instead of this one")},
	{Name: "one key a boot", OK: unnamed(func(c claim) bool { return c.key.Node == "" && c.r.BootID == c.known.Boot },
		"its key is another one in the same boot")},
	{Name: "a key that reports stays", OK: unnamed(func(c claim) bool { return !c.again() && !c.known.Silent },
		"the accepted key still reports")},
	{Name: "keys change seldom", OK: unnamed(func(c claim) bool { return !c.again() && c.now.Sub(c.known.Since).Abs() < Settled },
		fmt.Sprintf("the last change of its key was less than %d minutes ago", int(Settled.Minutes())))},
	{Name: "of several, the one from the node's place", OK: unnamed(func(c claim) bool { return !c.again() && c.key.Rivalled },
		"several keys report for it, and this one from another address than the node did")},
}

// shortfall tells of a report that does not count, and why.
type shortfall struct {
	verdict Verdict
	why     string
}

func (s *shortfall) Error() string { return s.why }

// ofOthers makes a check of a report by another key than the one that counts.
func ofOthers(wrong func(claim) bool, v Verdict, why string) func(claim) error {
	return func(c claim) error {
		if c.r.Key == c.known.Key || !wrong(c) {
			return nil
		}
		return &shortfall{v, why}
	}
}

// unnamed makes a check of a report by another key than the one that counts, where there
// is one and no operator named the other. What is wrong with it is for one to decide.
func unnamed(wrong func(claim) bool, why string) func(claim) error {
	return ofOthers(func(c claim) bool { return c.known.Key != "" && !c.key.Accepted && wrong(c) }, Offered, why)
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
