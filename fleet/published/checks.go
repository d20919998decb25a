// SPDX-License-Identifier: Apache-2.0

package published

import (
	"fmt"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// looked is fleet:index or fleet:current on its way through the checks. What a
// check reads was put there by an earlier one.
type looked struct {
	r         *Reader
	candidate trust.Candidate
	policy    Policy
	what      string // that is missing
	why       Purpose
	seen      Seen
	known     bool       // anything was seen at this place before
	past      Generation // that is wanted, of an earlier root

	said  sign.FleetPredicate // what the signature of the index says
	by    []string            // ids of the keys that it counts by
	index spec.FleetIndex
	fresh *trust.FleetState
}

func (l *looked) stamp() Stamp {
	return Stamp{Digest: oci.Digest(l.candidate.Document), IssuedAt: l.said.IssuedAt}
}

// absentChecks is the rule for a document that is not there.
var absentChecks = check.List[*looked]{
	{Name: "missing", OK: mayBeMissing},
}

// indexChecks is the rule for fleet:index.
var indexChecks = check.List[*looked]{
	{Name: "index signature", OK: indexIsSigned},
	{Name: "index form", OK: indexParses},
	{Name: "index fleet", OK: indexIsOurs},
	{Name: "index threshold", OK: thresholdIsMet},
	{Name: "index epoch", OK: epochIsGranted},
	{Name: "index numbers", OK: numbersAreBounded},
	{Name: "index age", OK: indexIsNotOlder},
	{Name: "index expiry", OK: func(l *looked) error { return l.unexpired(l.said.Expires, l.seen.Index) }},
	{Name: "index cut", OK: indexIsWhole},
}

// currentChecks is the rule for fleet:current, given a good index.
var currentChecks = check.List[*looked]{
	{Name: "current accepted", OK: currentIsAccepted},
	{Name: "current keys", OK: currentKeysAreThere},
	{Name: "current minimum", OK: minimumIsPublished},
	{Name: "current age", OK: func(l *looked) error {
		return notOlder(Stamp{Digest: oci.Digest(l.candidate.Document), IssuedAt: l.fresh.IssuedAt}, l.seen.Current)
	}},
	{Name: "current expiry", OK: func(l *looked) error { return l.unexpired(l.fresh.Expires, l.seen.Current) }},
}

// mayBeMissing: a layout is this machine's own, a registry is not asked twice
// whether it lost a fleet.
func mayBeMissing(l *looked) error {
	if l.what == "fleet:current" {
		if l.r.NewFleet || l.known && l.seen.Current == (Stamp{}) {
			return nil // the first publish was cut before it
		}
		return cli.WithHint(refusal.New(refusal.Missing, "%s holds fleet:index and no fleet:current", l.r.Registry.Ref()),
			"look at who removed it; 'caisson publish --new-fleet' begins another, with an empty reject list")
	}
	if l.what == "layer:current" {
		if l.seen.Layers == (Stamp{}) {
			return nil
		}
		return cli.WithHint(refusal.New(refusal.Missing, "%s holds no layer:current, and held that of %s before",
			l.r.Registry.Ref(), l.seen.Layers.IssuedAt.Format(time.RFC3339)),
			"look at what happened to the registry; 'caisson build' would begin the numbers of accounts again")
	}
	switch {
	case l.known && l.seen.Generation > 0:
		return cli.WithHint(refusal.New(refusal.Missing,
			"%s holds no fleet:index, and held generation %d of fleet %q before", l.r.Registry.Ref(), l.seen.Generation, l.seen.Fleet),
			"look at what happened to the registry; when the fleet really starts again, take this place out of "+l.r.Memory.Name())
	case l.r.NewFleet || l.r.Registry.Ref().IsLayout() || l.known || !l.why.Publish:
		return nil
	}
	return cli.WithHint(refusal.New(refusal.Missing, "%s holds no fleet:index", l.r.Registry.Ref()),
		"'caisson publish --new-fleet' makes a first fleet there; an existing one would begin again at epoch 0")
}

func indexIsSigned(l *looked) error {
	v, err := sign.VerifyFleet(l.candidate.Bundles, l.policy.Operator, l.policy.Threshold,
		oci.Digest(l.candidate.Document), sign.PredicateIndex)
	if err == nil {
		l.said, l.by = v.Predicate, v.Keys
	}
	return err
}

func indexParses(l *looked) error {
	if err := spec.Decode(l.candidate.Document, &l.index); err != nil {
		return refusal.New(refusal.Overlay, "%w", err)
	}
	if l.index.APIVersion != spec.APIVersion || l.index.Kind != spec.KindFleetIndex {
		return refusal.New(refusal.Overlay, "the document is %.40q %.40q", l.index.APIVersion, l.index.Kind)
	}
	if err := shardsAreCounted(l.index); err != nil {
		return err
	}
	if l.index.Fleet != l.said.Fleet {
		return refusal.New(refusal.Contradiction, "the index is for fleet %q, its statement for %q", l.index.Fleet, l.said.Fleet)
	}
	return nil
}

// shardsAreCounted: a node's shard follows from the bits of a hash.
func shardsAreCounted(x spec.FleetIndex) error {
	if n := len(x.Shards); n&(n-1) != 0 {
		return refusal.New(refusal.Overlay, "shard count %d is not a power of two", n)
	}
	return nil
}

func indexIsOurs(l *looked) error {
	if l.policy.Fleet != "" && l.index.Fleet != l.policy.Fleet {
		return cli.WithHint(refusal.New(refusal.WrongFleet, "the registry holds fleet %q, the site is %q", l.index.Fleet,
			l.policy.Fleet), "give every fleet a prefix of its own")
	}
	return nil
}

// thresholdIsMet: a publisher that trusts fewer keys than the fleet does lowers the
// threshold for what is signed next.
func thresholdIsMet(l *looked) error {
	if !l.why.Publish && l.index.Threshold > l.policy.Threshold {
		return cli.WithHint(refusal.New(refusal.Threshold, "the fleet demands %d signatures, %d are verified here",
			l.index.Threshold, l.policy.Threshold),
			"give --site, or every key; --threshold says how many must have signed")
	}
	return nil
}

func epochIsGranted(l *looked) error {
	if l.index.Epoch == 0 || len(l.policy.Epoch) == 0 && !l.policy.Site {
		return nil // without a site the epoch keys are not known: nodes verify the grant beside each overlay
	}
	if err := sign.VerifyEpoch([][]byte{l.index.Grant}, l.policy.Epoch, l.index.Fleet, l.index.Epoch); err != nil {
		return refusal.New(refusal.Epoch, "epoch %d without permission: %w", l.index.Epoch, err)
	}
	return nil
}

// FarAhead is how many generations may pass between two looks.
const FarAhead = 1 << 20

func numbersAreBounded(l *looked) error {
	x := l.index
	if l.why.Raise {
		return nil
	}
	if x.Epoch == l.seen.Epoch && x.Generation > max(l.seen.Generation, l.seen.Reserved)+FarAhead {
		return cli.WithHint(refusal.New(refusal.BadNumber, "generation %d, %d was the last one seen", x.Generation, l.seen.Generation),
			"another signer skipped generations: remove its key from the site, then 'caisson publish --epoch' with the epoch "+
				"key starts the generations again")
	}
	return nil
}

func indexIsNotOlder(l *looked) error {
	x := l.index
	if l.known && (x.Epoch < l.seen.Epoch || x.Epoch == l.seen.Epoch && x.Generation < l.seen.Generation) {
		return older("epoch %d, generation %d; seen before: %d, %d", x.Epoch, x.Generation, l.seen.Epoch, l.seen.Generation)
	}
	return notOlder(l.stamp(), l.seen.Index)
}

func notOlder(now, before Stamp) error {
	if now.IssuedAt.Before(before.IssuedAt) {
		return older("issued at %s; seen before: %s", now.IssuedAt.Format(time.RFC3339), before.IssuedAt.Format(time.RFC3339))
	}
	if now.IssuedAt.Equal(before.IssuedAt) && before.Digest != "" && now.Digest != before.Digest {
		return refusal.New(refusal.Replay, "issued at %s with other content than before", now.IssuedAt.Format(time.RFC3339))
	}
	return nil
}

func older(format string, args ...any) error {
	return cli.WithHint(refusal.New(refusal.Rollback, format, args...),
		"the registry serves old content: compare with a mirror, and look at who can push")
}

// unexpired lets pass what is exactly the newest that was seen: nobody renewed it,
// and nobody plays it back either.
func (l *looked) unexpired(expires time.Time, seen Stamp) error {
	exactly := seen.Digest == oci.Digest(l.candidate.Document)
	if l.r.Now.After(expires) && !exactly && !l.r.AcceptExpired {
		return cli.WithHint(refusal.New(refusal.Expired, "expired %s", expires.Format(time.RFC3339)),
			"it may be an old copy: compare with a mirror; --accept-expired uses it, if the fleet was not refreshed since")
	}
	return nil
}

func indexIsWhole(l *looked) error {
	if l.index.Reserved && !l.why.Publish && !l.why.Half {
		what, advice := CutChange(l.index)
		return cli.WithHint(refusal.New(refusal.Rollback, "%s", what), advice)
	}
	return nil
}

func currentIsAccepted(l *looked) (err error) {
	b := l.policy.bootstrap()
	l.fresh, err = trust.AcceptFleet(l.candidate, b, spec.Floor{}, l.index.Epoch, trust.Clock{RTC: l.r.Now})
	for _, f := range l.policy.Former {
		if !refusal.OfKeys(err) {
			break
		}
		if _, enough := f.Without(l.policy.Revoked()); !enough && l.seen.Current.Digest != "" &&
			l.seen.Current.Digest != oci.Digest(l.candidate.Document) {
			continue // a thief's list of what is rejected would be signed again
		}
		f.Fleet = l.policy.Fleet
		l.fresh, err = trust.AcceptFleet(l.candidate, f.bootstrap(), spec.Floor{}, l.index.Epoch, trust.Clock{RTC: l.r.Now})
	}
	return err
}

// minimumIsPublished: a least epoch or generation that the index does not reach
// was not made by a publish.
func minimumIsPublished(l *looked) error {
	m := l.fresh.Minimum
	if m.Compare(spec.Floor{Epoch: l.index.Epoch, Generation: l.index.Generation}) > 0 {
		return refusal.New(refusal.BadNumber, "the least is epoch %d, generation %d; the fleet is at %d, %d", m.Epoch,
			m.Generation, l.index.Epoch, l.index.Generation)
	}
	return nil
}

// Signed is one published overlay and its row of the index.
type Signed struct {
	Candidate trust.Candidate
	Overlay   spec.Overlay
	Accepted  *trust.Accepted // by the node's own decision

	name   string
	row    spec.Published
	index  *spec.FleetIndex
	policy Policy
	now    time.Time
	agent  *trust.Rules
}

// overlayChecks is the rule for an overlay that is about to be signed again.
var overlayChecks = check.List[*Signed]{
	{Name: "overlay form", OK: overlayParses},
	{Name: "overlay accepted", OK: overlayIsAccepted},
	{Name: "overlay digest", OK: func(l *Signed) error {
		return l.agree("digest", oci.Digest(l.Candidate.Document), l.row.Overlay)
	}},
	{Name: "overlay layer", OK: func(l *Signed) error { return l.agree("layer", l.Overlay.Layer, l.row.Layer) }},
	{Name: "overlay generation", OK: func(l *Signed) error {
		return l.agree("generation", fmt.Sprint(l.Accepted.Floor), fmt.Sprint(spec.Floor{Epoch: l.index.Epoch, Generation: l.row.Generation}))
	}},
	{Name: "overlay expiry", OK: func(l *Signed) error {
		return l.agree("expiry", fmt.Sprint(l.Accepted.Expires.Unix()), fmt.Sprint(l.row.Expires))
	}},
	{Name: "overlay match", OK: func(l *Signed) error {
		return l.agree("match", fmt.Sprint(l.Overlay.Match), fmt.Sprint(l.row.Match))
	}},
}

func (l *Signed) agree(what, got, want string) error {
	if got != want {
		return refusal.New(refusal.Contradiction, "%s is %s, fleet:index says %s", what, got, want)
	}
	return nil
}

func overlayParses(l *Signed) error {
	if err := spec.Decode(l.Candidate.Document, &l.Overlay); err != nil {
		return refusal.New(refusal.Overlay, "%w", err)
	}
	return nil
}

// overlayIsAccepted asks the node's own decision. Which machine the node is cannot
// be seen from here: it gets every identifier that the overlay asks for.
func overlayIsAccepted(l *Signed) (err error) {
	l.Accepted, err = l.agent.Accept(l.Candidate, l.policy.bootstrap(),
		trust.Identity{Node: l.name, MACs: l.Overlay.Match.MACs, UUIDs: l.Overlay.Match.UUIDs},
		trust.Clock{RTC: l.now}, trust.Known{Floor: spec.Floor{Epoch: l.index.Epoch}})
	return err
}
