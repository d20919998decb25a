// SPDX-License-Identifier: Apache-2.0

// Package report decides what a node's report counts for: whether its own key signed
// it, whether it is new, and whether that key may speak for the node.
//
// The first key of a node is taken as it comes. One that is kept on a disk stays until
// an operator accepts another. One that is made at boot may change with the boot: another
// one is offered while it reports, and counts once it is silent. A key that was not heard
// for a while and had counted for longer than the one that came meanwhile counts again.
// What does not count is shown, with the reason, and acts nowhere.
//
// An [Inbox] reads the reports that nodes put into a registry, where each node has one: report:NODE.
// Else the package knows neither where reports come from nor where they are kept.
package report

import (
	"fmt"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Open verifies a signed report with the key that it names, and returns it as
// [Bound] leaves it at the time now.
func Open(raw []byte, now time.Time) (*spec.Report, error) { return OpenOf("", raw, now) }

// OpenOf is Open for a report that was kept under the name of a node: it is of the time
// that it names, and of now at the latest.
func OpenOf(node string, raw []byte, now time.Time) (*spec.Report, error) {
	payload, key, err := sign.OpenReport(raw)
	if err != nil {
		return nil, err
	}
	r, err := spec.DecodeReport(payload)
	if err != nil {
		return nil, err
	}
	if err := opening.Run(opened{r, key, node, now}); err != nil {
		return nil, err
	}
	at := now
	if node != "" && r.Time.Before(now) {
		at = r.Time
	}
	Bound(r, at)
	return r, nil
}

// Read reads a report that was opened at a time and kept, and bounds it again:
// others may have written to the database.
func Read(kept []byte, at time.Time) (*spec.Report, error) {
	r, err := spec.DecodeReport(kept)
	if err != nil {
		return nil, err
	}
	Bound(r, at)
	return r, nil
}

// opened is a report with a good signature.
type opened struct {
	r   *spec.Report
	key sign.Verifier
	as  string // node under whose name it was found; "" where it was sent
	now time.Time
}

var opening = check.List[opened]{
	{Name: "it names the key that signed it", OK: func(o opened) error {
		if o.r.Key != o.key.ID() {
			return fmt.Errorf("it names the key %.60q and is signed by %s", o.r.Key, o.key.ID())
		}
		return nil
	}},
	{Name: "the report is for the node it is stored under", OK: func(o opened) error {
		if o.as != "" && o.r.Node != o.as {
			return fmt.Errorf("stored for node %s, but signed for %.60q", o.as, o.r.Node)
		}
		return nil
	}},
	{Name: "the stored report has a plausible time", OK: func(o opened) error {
		if o.as != "" && !Possible(o.r.Time, o.now) {
			return fmt.Errorf("its time is %s, which cannot be", o.r.Time.Format(time.RFC3339))
		}
		return nil
	}},
	{Name: "its boot can be drawn", OK: func(o opened) error {
		if n := len(o.r.Boot); n > spec.MaxSteps {
			return fmt.Errorf("its boot has %d steps, %d are the most", n, spec.MaxSteps)
		}
		for _, s := range o.r.Boot {
			if s.Start < 0 || s.Took < 0 || s.Start+s.Took > longestBoot {
				return fmt.Errorf("a step of its boot took %g ms from %g ms on", s.Took, s.Start)
			}
		}
		return nil
	}},
	{Name: "layer and overlay are digests", OK: func(o opened) error {
		for what, said := range map[string]string{"layer": o.r.Layer, "overlay": o.r.Overlay, "staged": o.r.Staged} {
			if said != "" && !oci.ValidDigest(said) {
				return fmt.Errorf("its %s is %.80q, which is not a digest", what, said)
			}
		}
		if said := o.r.TPM; said != "" && said != spec.NoTPM && !oci.ValidDigest(said) {
			return fmt.Errorf("its TPM's key is %.80q, which is not a digest", said)
		}
		return nil
	}},
}

// longestBoot bounds the end of a step, in milliseconds: 30 years.
const longestBoot = 1e12

// Known holds what is known of a node's key.
type Known struct {
	Key    string // id; "" before the first report
	Grade  spec.KeyGrade
	Since  time.Time // when it began to count
	Heard  time.Time // when it reported last
	Silent bool      // and could have been heard since, for longer than the node may say nothing
	Seq    uint64    // of the last report
	Boot   string    // of the last report
}

// Counted returns how long the key has counted.
func (k Known) Counted() time.Duration { return max(k.Heard.Sub(k.Since), 0) }

// Key holds what is known of the key that signed a report, where it is another one than
// counts for the node. The zero value is a key that was never seen.
type Key struct {
	Node     string        // that it counts or counted for
	Seq      uint64        // of its last report
	Counted  time.Duration // how long it counted, until another one did
	GivenUp  bool          // an operator accepted another one in its place
	Accepted bool          // an operator named it for this node
	Rivalled bool          // another one is offered for the node, and this one comes from elsewhere than the node did
}

// Verdict is the outcome of judging a report.
type Verdict int

// Verdicts.
const (
	Refused Verdict = iota // it says nothing that counts or could
	Offered                // its key waits for an operator
	Counts                 // it is the node's word, and its key the node's key
)

// Settled is how long a key that is made at boot counts at least.
const Settled = 10 * time.Minute

// Judge says what becomes of a report, with what is known of the node that it names and
// of the key that signed it. For all but Counts there is a reason.
func Judge(known Known, key Key, r *spec.Report, now time.Time) (Verdict, string) {
	return judge(rules, claim{known, key, r, now})
}

// Grade is the grade with which a report's key counts: what it says of the first key of
// a node, and of one that an operator named. Of one that came by itself it is that of a
// boot, whatever it says: else who was there first in a node's silence would be
// there for good.
func Grade(known Known, key Key, r *spec.Report) spec.KeyGrade {
	switch {
	case known.Key == r.Key:
		return known.Grade
	case known.Key == "" || key.Accepted:
		return r.Grade
	}
	return spec.KeyBoot
}
