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
// A fleet's service answers by [Write] with what it was told; [Hear] reads that, and says of each node how
// it stands, where [Reporters] judge the very reports that nodes signed. Else the package knows neither
// where reports come from nor where they are kept.
package report

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Open verifies a signed report with the key that it names, and returns it as [Bound] leaves it at
// the time now. One that was kept under the name of a node is of the time that it names, and of now at
// the latest.
func Open(node string, raw []byte, now time.Time) (*spec.Report, error) {
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
		if o.as != "" && !possible(o.r.Time, o.now) {
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

// Reporter holds what is known of a node's key, by which it reports.
type Reporter struct {
	Key      string        `json:"key"` // id; "" before the first report
	Grade    spec.KeyGrade `json:"grade"`
	Since    time.Time     `json:"since"`              // when it began to count
	Heard    time.Time     `json:"heard"`              // when it reported last
	Silent   bool          `json:"-"`                  // and could have been heard since, for longer than the node may say nothing
	Interval int64         `json:"interval,omitempty"` // seconds between two reports, where [Reporters] keep it
	Seq      uint64        `json:"seq"`                // of the last report
	Boot     string        `json:"boot"`               // of the last report
}

// Counted returns how long the key has counted.
func (k Reporter) Counted() time.Duration { return max(k.Heard.Sub(k.Since), 0) }

// Key holds what is known of the key that signed a report, where it is another one than
// counts for the node. The zero value is a key that was never seen.
type Key struct {
	Node     string        // that it counts or counted for
	Seq      uint64        // of its last report
	Counted  time.Duration // how long it counted, until another one did
	GivenUp  bool          // an operator accepted another one in its place
	Accepted bool          // an operator named it for this node
	Awaited  bool          // an operator named another one, which has not reported yet
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
func Judge(known Reporter, key Key, r *spec.Report, now time.Time) (Verdict, string) {
	return judge(rules, claim{known, key, r, now})
}

// Grade is the grade with which a report's key counts: what it says of the first key of
// a node, and of one that an operator named. Of one that came by itself it is that of a
// boot, whatever it says: else who was there first in a node's silence would be
// there for good.
func Grade(known Reporter, key Key, r *spec.Report) spec.KeyGrade {
	switch {
	case known.Key == r.Key:
		return known.Grade
	case known.Key == "" || key.Accepted:
		return r.Grade
	}
	return spec.KeyBoot
}

// What is kept of a report by any sender. What an agent of this project says is
// below all of it, so what is above is cut and not refused: a node that has much to say
// is heard.
const (
	maxText     = 256           // bytes of a text, and of a name in a map; a cut one ends with a sign more
	maxList     = 64            // entries of a list or a map
	maxNumber   = spec.MaxSeq   // of any number; none is below 0
	maxInterval = 7 * 24 * 3600 // seconds between two reports
	maxAhead    = 100 * 365 * 24 * time.Hour
)

// Earliest is before everything that a fleet has to tell: a time before it is of a clock
// that was never set.
var Earliest = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// possible reports whether something can have happened at a time: not before [Earliest],
// and not later than the clocks of two machines differ.
func possible(t, now time.Time) bool {
	return !t.Before(Earliest) && !t.After(now.Add(24*time.Hour))
}

// Bound makes a report one that can be shown, kept and compared: it cuts texts, lists
// and numbers, and puts all times into the clock of this service, by which the report
// is of the time at. Bounding a report again, at the time that it has then, changes nothing.
//
// The node's clock counts as a difference only: what it says happened an hour before it
// signed the report happened an hour before at. What it says is yet to come lies as far
// ahead.
func Bound(r *spec.Report, at time.Time) {
	at = at.UTC().Truncate(time.Millisecond)
	more := max(len(r.Drift)-maxList, 0) + max(len(r.Operations)-maxList, 0)
	bound(reflect.ValueOf(r).Elem())
	r.More, r.Interval = min(r.More+more, maxNumber), min(r.Interval, maxInterval)
	ahead := at.Sub(r.Time) // of the node's clock; 292 years at most
	since := func(t *time.Time) {
		if *t = shifted(*t, ahead); t.After(at) {
			*t = at
		}
	}
	until := func(t *time.Time) {
		if *t = shifted(*t, ahead); t.After(at.Add(maxAhead)) {
			*t = time.Time{}
		}
	}
	for _, a := range []*spec.Axis{&r.Axes.Tracking, &r.Axes.Sync, &r.Axes.Health, &r.Axes.Activity} {
		since(&a.Since)
		until(&a.Until)
	}
	for i := range r.Drift {
		since(&r.Drift[i].Since)
	}
	for i := range r.Operations {
		since(&r.Operations[i].Since)
		until(&r.Operations[i].Next)
	}
	if r.Rescue != nil {
		since(&r.Rescue.Since)
	}
	if w := r.NextWindow; w != nil {
		until(&w.From)
		until(&w.To)
	}
	if e := r.Expires.UTC(); e.Before(Earliest) || e.After(at.Add(maxAhead)) { // who signed it said when, by a clock of his own
		r.Expires = time.Time{}
	}
	r.Time = at
}

// shifted is a time in the clock of the service, zero where it is not known.
func shifted(t time.Time, by time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	if t = t.Add(by).UTC(); t.Before(Earliest) {
		return time.Time{}
	}
	return t
}

// bound cuts texts, lists and numbers at any depth, so that a field which a later
// release adds is bounded like the others.
func bound(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text(v.String()))
	case reflect.Int, reflect.Int64:
		v.SetInt(min(max(v.Int(), 0), maxNumber))
	case reflect.Uint64:
		v.SetUint(min(v.Uint(), maxNumber))
	case reflect.Float64:
		v.SetFloat(min(max(v.Float(), 0), longestBoot))
	case reflect.Pointer:
		if !v.IsNil() {
			bound(v.Elem())
		}
	case reflect.Slice:
		if v.Len() > maxList {
			v.Set(v.Slice(0, maxList))
		}
		for i := range v.Len() {
			bound(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return // see Bound
		}
		for i := range v.NumField() {
			bound(v.Field(i))
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(texts(v.Interface().(map[string]string)))) // a report has no other; a test has all of its fields bounded
	}
}

// text is one line that prints, and not a long one.
func text(s string) string { return plain.Cut(plain.Line(s), maxText) }

func texts(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(m))[:min(len(m), maxList)]
	return plain.Map(names, func(name string) (string, string) { return text(name), text(m[name]) })
}

// claim is a report beside what is known of the node that it names, and of its key.
type claim struct {
	known Reporter
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
	{Name: "the first key is the one that an operator named", OK: ofOthers(func(c claim) bool { return c.known.Key == "" && c.key.Awaited },
		Offered, "an operator accepted another key, which has not reported yet")},
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
