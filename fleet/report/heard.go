// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Standing is how a node stands, as a rollout judges it: what its last report that counts says. All
// times are the service's.
type Standing struct {
	At      time.Time // when it was received
	Listens time.Time // since when the service can hear the node, where that is later
	Overlay string    // digest of what the node runs
	Well    time.Time // since when all is well with it, after At while it is not proved; zero when it is not, or that is not known
	Trouble string    // why it is not
	Broken  bool      // and nothing will mend it by itself
	Waiting string    // what a change waits for, as in "window night"; "" when for nothing
	Staged  string    // digest of what it has and does not run yet
	Refused string    // why it does not take what is published for it; "" when it does
	Pinned  bool      // the key that signed it outlives a boot
	Attests bool      // its TPM showed that it booted what it runs
	Stale   bool      // its TPM has not shown that yet, or not for a while
	Garbled string    // why the report does not count: the node is silent

	RefusedSince time.Time     // zero where that is not known
	Interval     time.Duration // between two reports of the node
}

// Silence returns how long the node may say nothing: as long as the rollout says, and never
// less than a node may that reports so seldom.
func (r Standing) Silence(rule spec.RolloutRule) time.Duration {
	return max(time.Duration(rule.Silence)*time.Second, view.Patience(r.Interval))
}

// Unproved reports whether all is well with a node, which may yet undo what it runs by itself.
func (r Standing) Unproved() bool { return r.Well.After(r.At) }

// Asked names the nodes whose reports a step needs: those of the first waves of a plan.
type Asked struct {
	Fleet     string
	Plan      string // digest of its manifest
	Waves     int
	All       bool            // of all nodes: a budget counts them
	Published map[string]bool // the nodes of the fleet, by its own signed index and plan: of others nothing is read
	Heard     *Heard          // what was said at looks before; nil has each look read all
}

func (a Asked) has(node string) bool { return a.Published[node] }

// MaxLine bounds a [Reported] as JSON, for who reads one a line: what is in it is
// bounded, too.
const MaxLine = 48 << 10

// Reported holds what a node reported last, for those who drive a rollout. All of its times
// are by the clock of the service: the node's own counted as a difference, see
// [Bound].
type Reported struct {
	Node     string           `json:"node"`
	Received time.Time        `json:"received"`
	Listens  time.Time        `json:"listens,omitzero"`   // since when the service can hear nodes, where that is later
	Interval int64            `json:"interval,omitempty"` // seconds between two reports of the node
	Grade    spec.KeyGrade    `json:"grade"`
	Overlay  string           `json:"overlay"`          // digest
	Staged   string           `json:"staged,omitempty"` // digest of the overlay that waits for a reboot, be it for its layer alone
	Axes     spec.Axes        `json:"axes"`
	Attested string           `json:"attested,omitempty"` // digest of the overlay that the node attested last, where that still counts
	TPM      view.Attestation `json:"tpm,omitempty"`      // what its TPM showed, when it reported
	Signed   []byte           `json:"signed,omitempty"`   // the report as the node signed it, for who asks for that
}

// Cursor ends an answer with many [Reported]: who asks with it next is answered with what came since.
type Cursor struct {
	Cursor string `json:"cursor"`
}

// Last returns what a node reported last, and whether it ever did.
func Last(n *view.Node) (Reported, bool) {
	if n.Report == nil {
		return Reported{}, false
	}
	attested := ""
	word, _ := n.Attestation(n.Received)
	if word == view.Attested {
		attested = n.Quote.Overlay
	}
	return Reported{n.Name, n.Received, n.Listens, int64(n.Report.Interval / time.Second), n.Grade, n.Report.Overlay,
		n.Report.Staged, n.Report.Axes, attested, word, nil}, true
}

// Write writes what each node reported last, one line of JSON a node, of [MaxLine] bytes at most. A
// report that cannot be written costs that node, and never the others: what is in it was said by one.
// It reports whether somebody reads them.
func Write(w io.Writer, nodes []*view.Node, signed map[string]string, say func(string, ...any)) bool {
	for _, n := range nodes {
		r, ok := Last(n)
		if !ok {
			continue
		}
		r.Signed = []byte(signed[n.Name])
		line, err := spec.Encode(r) // no < becomes six bytes: a reader of lines has a bound for each
		if err == nil && len(line) >= MaxLine {
			err = fmt.Errorf("it has %d bytes as JSON", len(line))
		}
		if err != nil {
			say("node %s: its report is left out of /v1/reports: %v", n.Name, err)
			continue
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return false
		}
	}
	return true
}

const (
	maxLine = 4 * MaxLine // a later service may say more
	spare   = 1000        // lines about nodes that left meanwhile
)

// Hear reads what a fleet's service answers at /v1/reports: one [Reported] a line.
// A line that cannot be read is its node's alone, and of nodes that are not asked for nothing
// is kept. It verifies each report that a node signed; where by is nil the service's word counts.
func Hear(r io.Reader, asked Asked, by *Reporters, now time.Time) (map[string]Standing, error) {
	if by == nil {
		return asked.Heard.read(r, asked, func(one Reported) (Standing, error) { return StandingOf(one), nil })
	}
	if err := by.refresh(); err != nil {
		return nil, err
	}
	all, err := asked.Heard.read(r, asked, func(one Reported) (Standing, error) { return by.judge(one, asked.Fleet, now) })
	if err == nil {
		err = by.save(asked.has)
	}
	return all, err
}

// readLines adds to all what lines say, and returns the cursor that ends them, "" where none does.
func readLines(r io.Reader, asked Asked, all map[string]Standing, take func(Reported) (Standing, error)) (cursor string, err error) {
	lines := bufio.NewReaderSize(r, maxLine)
	for n := 0; ; n++ {
		line, err := lines.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		head := string(line[:min(len(line), maxHead)])
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("reports of nodes: %w", err)
		}
		var one struct {
			Reported
			Cursor
		}
		switch wrong := json.Unmarshal(line, &one); {
		case len(line) == 0 && err != nil:
			return cursor, nil
		case long:
			wrong = fmt.Errorf("it has more than %d bytes", maxLine)
			fallthrough
		case wrong != nil:
			if node := nodeOf(head); asked.has(node) { // a line without a node's name is of one that never reported
				all[node] = garbled(wrong)
			}
		case one.Node == "":
			cursor = one.Cursor.Cursor
		case asked.has(one.Node):
			if all[one.Node], wrong = take(one.Reported); wrong != nil {
				all[one.Node] = garbled(wrong)
			}
		}
		if n > 2*len(asked.Published)+spare {
			return "", fmt.Errorf("reports of nodes: there are more than twice as many as nodes, which are %d", len(asked.Published))
		}
		if err != nil {
			return cursor, nil
		}
	}
}

// maxHead is more than the beginning of a line that says whose it is.
const maxHead = 512

// nodeOf returns the node that a line begins with, "" where it does not name one.
func nodeOf(head string) string {
	name, begins := strings.CutPrefix(head, `{"node":"`)
	name, _, ends := strings.Cut(name, `"`)
	if !begins || !ends {
		return ""
	}
	return name
}

// StandingOf returns how a node stands by what it reported. One of its times
// that is later than when it was received is of a service that passes on a node's clock.
func StandingOf(r Reported) Standing {
	out := Standing{At: r.Received, Listens: r.Listens, Interval: time.Duration(r.Interval) * time.Second,
		Overlay: r.Overlay, Staged: r.Staged, Pinned: r.Grade == spec.KeyPinned,
		Attests: r.Attested != "" && r.Attested == r.Overlay, Stale: r.TPM == view.Stale}
	if r.Staged == r.Overlay {
		out.Overlay = "" // its layer waits for a reboot: it has not arrived
	}
	if state, code, refused := strings.Cut(r.Axes.Sync.State, ":"); refused && state == "refused" {
		out.Refused, out.RefusedSince = join(code, r.Axes.Sync.Detail), r.Axes.Sync.Since
	}
	if what, waits := strings.CutPrefix(r.Axes.Activity.State, string(spec.ActivityWaiting(""))); waits {
		out.Waiting = join(what, r.Axes.Activity.Detail)
	}
	if r.Axes.Health.State != string(spec.HealthOK) {
		out.Trouble, out.Broken = join(r.Axes.Health.State, r.Axes.Health.Detail), r.Axes.Health.State == string(spec.HealthBroken)
		return out
	}
	if out.Well = slices.MaxFunc([]time.Time{r.Axes.Sync.Since, r.Axes.Health.Since}, time.Time.Compare); out.Well.After(r.Received) {
		out.Well = r.Received
	}
	if r.Axes.Unproved() {
		out.Well = r.Received.Add(1) // not with this report
	}
	return out
}

func join(what, detail string) string { return Brief(plain.With(what, ": ", detail)) }

// maxBrief bounds [Brief], in bytes.
const maxBrief = 300

// Brief cuts what a node said to what the index and the history keep of it.
func Brief(text string) string { return plain.Cut(plain.Line(text), maxBrief) }

// Heard holds what a service said at the last look, and the cursor that the answer ended with: the
// next look asks for what came since. Its zero value has heard nothing. A service that knows no
// cursors says all each time, as does one that knows another cursor only.
type Heard struct {
	question string // what was asked for
	cursor   string
	reports  map[string]Standing
	refused  map[string]Reported // by node: what did not count, and may by now
}

// Query returns what /v1/reports is asked with.
func (a Asked) Query(by *Reporters) string {
	q := url.Values{}
	if !a.All {
		q = url.Values{"plan": {a.Plan}, "waves": {strconv.Itoa(a.Waves)}}
	}
	if by != nil {
		q.Set("signed", "1")
	}
	if h := a.Heard; h != nil {
		if question := q.Encode(); h.question != question {
			*h = Heard{question: question}
		}
		q.Set("after", h.cursor)
	}
	return q.Encode()
}

// maxCursor bounds a cursor, which is sent back, in bytes.
const maxCursor = 100

// read returns what an answer says beside what was heard before.
func (h *Heard) read(r io.Reader, asked Asked, take func(Reported) (Standing, error)) (map[string]Standing, error) {
	if h == nil {
		h = &Heard{}
	}
	fresh, refused := map[string]Standing{}, map[string]Reported{}
	cursor, err := readLines(r, asked, fresh, func(one Reported) (Standing, error) {
		says, err := take(one)
		if err != nil {
			refused[one.Node] = one
		}
		return says, err
	})
	if err != nil {
		return nil, err
	}
	if cursor == "" || len(cursor) > maxCursor {
		h.cursor, h.reports, h.refused = "", nil, nil
		return fresh, nil
	}
	all := map[string]Standing{}
	if h.cursor != "" {
		maps.Copy(all, h.reports)
		maps.DeleteFunc(all, func(name string, _ Standing) bool { return !asked.has(name) })
		for name, one := range h.refused {
			if _, again := fresh[name]; again || !asked.has(name) {
				continue
			}
			if all[name], err = take(one); err != nil {
				all[name], refused[name] = garbled(err), one
			}
		}
	}
	maps.Copy(all, fresh)
	h.cursor, h.reports, h.refused = cursor, all, refused
	return all, nil
}

func garbled(why error) Standing { return Standing{Garbled: Brief(why.Error())} }
