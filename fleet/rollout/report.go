// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Report holds what a rollout wants to know of a node: its last report that counts. All
// times are the service's.
type Report struct {
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

// silence returns how long the node may say nothing: as long as the rollout says, and never
// less than a node may that reports so seldom.
func (r Report) silence(rule spec.RolloutRule) time.Duration {
	return max(time.Duration(rule.Silence)*time.Second, view.Patience(r.Interval))
}

// unproved reports whether all is well with a node, which may yet undo what it runs by itself.
func (r Report) unproved() bool { return r.Well.After(r.At) }

const (
	maxLine = 4 * view.MaxLine // a later service may say more
	spare   = 1000             // lines about nodes that left meanwhile
)

// ReadReports reads what a fleet's service answers at /v1/reports: one [view.Reported] a line.
// A line that cannot be read is its node's alone, and of nodes that are not asked for nothing
// is kept. It verifies each report that a node signed; where by is nil the service's word counts.
func ReadReports(r io.Reader, asked Asked, by *Reporters, now time.Time) (map[string]Report, error) {
	take := func(one view.Reported) (Report, error) {
		if by == nil {
			return FromReport(one), nil
		}
		by.mu.Lock()
		defer by.mu.Unlock()
		return by.judge(one, asked.Fleet, now)
	}
	if by != nil {
		if err := by.refresh(); err != nil {
			return nil, err
		}
	}
	all, err := asked.Heard.read(r, asked, take)
	if err == nil && by != nil {
		by.mu.Lock()
		defer by.mu.Unlock()
		err = by.save(asked.has)
	}
	return all, err
}

// readLines adds to all what lines say, and returns the cursor that ends them, "" where none does.
func readLines(r io.Reader, asked Asked, all map[string]Report, take func(view.Reported) (Report, error)) (cursor string, err error) {
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
			view.Reported
			view.Cursor
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

// FromReport returns what a rollout wants to know of a node's report. One of its times
// that is later than when it was received is of a service that passes on a node's clock.
func FromReport(r view.Reported) Report {
	out := Report{At: r.Received, Listens: r.Listens, Interval: time.Duration(r.Interval) * time.Second,
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
	if out.Well = later(r.Axes.Health.Since, r.Axes.Sync.Since); out.Well.After(r.Received) {
		out.Well = r.Received
	}
	if r.Axes.Unproved() {
		out.Well = r.Received.Add(1) // not with this report
	}
	return out
}

func join(what, detail string) string { return brief(plain.With(what, ": ", detail)) }

// maxBrief bounds what a node said, which the index and the history keep.
const maxBrief = 300

func brief(text string) string { return plain.Cut(plain.Line(text), maxBrief) }

// Heard holds what a service said at the last look, and the cursor that the answer ended with: the
// next look asks for what came since. Its zero value has heard nothing. A service that knows no
// cursors says all each time, as does one that knows another cursor only.
type Heard struct {
	question string // what was asked for
	cursor   string
	reports  map[string]Report
	refused  map[string]view.Reported // by node: what did not count, and may by now
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
func (h *Heard) read(r io.Reader, asked Asked, take func(view.Reported) (Report, error)) (map[string]Report, error) {
	if h == nil {
		h = &Heard{}
	}
	fresh, refused := map[string]Report{}, map[string]view.Reported{}
	cursor, err := readLines(r, asked, fresh, func(one view.Reported) (Report, error) {
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
	all := map[string]Report{}
	if h.cursor != "" {
		maps.Copy(all, h.reports)
		maps.DeleteFunc(all, func(name string, _ Report) bool { return !asked.has(name) })
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

func garbled(why error) Report { return Report{Garbled: brief(why.Error())} }

// ReportersKind is the kind of the document of a [Reporters] file.
const ReportersKind = "Reporters"

// maxReporters caps the file, in bytes: some 300 are a node's.
const maxReporters = 512 << 20

// Reporters are the keys by which nodes report, as who drives rollouts heard them: by the rules
// of fleet/report, of the very reports that nodes signed, so that a service can withhold what
// a node says and cannot make it up. It is a file of who drives. It may be used by several
// goroutines.
type Reporters struct {
	file  string
	stamp time.Time // of the file as it was read or written last
	fixed bool

	open func(node string, raw []byte, at time.Time) (*spec.Report, error) // verifies: [report.Open]

	mu      sync.Mutex
	nodes   map[string]Reporter
	owner   map[string]string // node by id of its key
	opened  map[string]opened // by node: its last report that counted, in this run
	unsaved bool
}

// opened is a report that was verified and counted. The same bytes are not verified again as
// long as what is known of the node's keys is what it was then.
type opened struct {
	sum   [sha256.Size]byte // of the signed bytes
	fleet string
	at    time.Time // the latest time that it may name
	known Reporter
	says  view.Reported // but for the service's words
}

// Reporter holds what is kept of a node.
type Reporter struct {
	Key      string        `json:"key"`
	Grade    spec.KeyGrade `json:"grade"`
	Since    time.Time     `json:"since"`              // when the key began to count
	Heard    time.Time     `json:"heard"`              // when its last report came
	Interval int64         `json:"interval,omitempty"` // seconds between two reports
	Seq      uint64        `json:"seq"`
	Boot     string        `json:"boot"`
}

type reportersDoc struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Nodes      map[string]Reporter `json:"nodes"`
}

// OpenReporters reads the file; one that does not exist knows nobody yet. A fixed one is not
// written.
func OpenReporters(file string, fixed bool) (*Reporters, error) {
	k := &Reporters{file: file, fixed: fixed, open: report.Open, nodes: map[string]Reporter{}, owner: map[string]string{},
		opened: map[string]opened{}}
	return k, k.refresh()
}

// refresh reads the file where somebody else has written it: an operator takes rows out.
func (k *Reporters) refresh() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	is, err := os.Stat(k.file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && is.ModTime().Equal(k.stamp) {
		return nil
	}
	var data []byte
	if err == nil {
		data, err = ownfiles.ReadPublic(k.file, maxReporters)
	}
	var doc reportersDoc
	if err == nil {
		err = spec.DecodeFile(data, ReportersKind, &doc)
	}
	if err != nil {
		return fmt.Errorf("read the keys of reports %s: %w", k.file, err)
	}
	k.stamp = is.ModTime()
	clear(k.nodes)
	clear(k.owner)
	for name, one := range doc.Nodes {
		k.nodes[name], k.owner[one.Key] = one, name
	}
	return nil
}

// judge returns what a node's signed report says, or why it counts for nothing.
func (k *Reporters) judge(one view.Reported, fleet string, now time.Time) (Report, error) {
	if len(one.Signed) == 0 {
		return Report{}, errors.New("the service does not hand out what the node signed")
	}
	sum, at := sha256.Sum256(one.Signed), earlier(one.Received, now)
	was, known := k.opened[one.Node]
	if !known || was.sum != sum || was.fleet != fleet || was.known != k.nodes[one.Node] || at.Before(was.at) {
		says, err := k.verify(one, fleet, at, now)
		if err != nil {
			return Report{}, err
		}
		was = opened{sum, fleet, says.Received, k.nodes[one.Node], says}
		k.opened[one.Node] = was
	}
	says := was.says
	says.Listens, says.Attested, says.TPM = earlier(one.Listens, now), one.Attested, one.TPM // by the service's word
	return FromReport(says), nil
}

// verify opens a report that came at a time, and takes it as its node's next one where it counts.
func (k *Reporters) verify(one view.Reported, fleet string, at, now time.Time) (view.Reported, error) {
	r, err := k.open("", one.Signed, at)
	switch {
	case err != nil:
		return view.Reported{}, err
	case r.Node != one.Node || r.Fleet != fleet:
		return view.Reported{}, fmt.Errorf("it is node %.60q's of fleet %.60q", r.Node, r.Fleet)
	}
	was := k.nodes[one.Node]
	known := report.Known{Key: was.Key, Grade: was.Grade, Since: was.Since, Heard: was.Heard, Seq: was.Seq, Boot: was.Boot}
	if r.Key == was.Key && r.Seq == was.Seq { // as old as it was when it came first
		if was.Heard.Before(at) {
			at = was.Heard
			report.Bound(r, at)
		}
	} else {
		known.Silent = now.Sub(was.Heard) > view.Patience(time.Duration(was.Interval)*time.Second)
		of := report.Key{}
		if r.Key != was.Key {
			of.Node = k.owner[r.Key]
		}
		if verdict, why := report.Judge(known, of, r, now); verdict != report.Counts {
			if known.Grade == spec.KeyPinned && r.Key != was.Key {
				why += fmt.Sprintf(": it is %s; where that is right, take the node out of %s", r.Key, k.file)
			}
			return view.Reported{}, errors.New(why)
		}
		next := Reporter{Key: r.Key, Grade: report.Grade(known, of, r), Since: was.Since, Heard: at, Interval: r.Interval,
			Seq: r.Seq, Boot: r.BootID}
		if r.Key != was.Key {
			next.Since = at
			delete(k.owner, was.Key)
		}
		k.nodes[one.Node], k.owner[r.Key], k.unsaved = next, one.Node, true
	}
	n := view.Node{Name: one.Node, Received: at, Grade: k.nodes[one.Node].Grade, Report: view.NewBrief(r)}
	says, _ := n.Reported() // it did
	return says, nil
}

// save keeps what was heard of nodes that are published, where that is not what is kept.
func (k *Reporters) save(published func(string) bool) error {
	maps.DeleteFunc(k.opened, func(name string, _ opened) bool { return !published(name) })
	if k.fixed {
		return nil
	}
	all := len(k.nodes)
	maps.DeleteFunc(k.nodes, func(name string, _ Reporter) bool { return !published(name) })
	if !k.unsaved && len(k.nodes) == all {
		return nil
	}
	// also where one was taken out and the write fails
	k.unsaved = true
	data, err := json.MarshalIndent(reportersDoc{spec.APIVersion, ReportersKind, k.nodes}, "", "  ") // an operator takes rows out
	if err != nil {
		return err
	}
	if len(data) > maxReporters {
		return fmt.Errorf("keep the keys of reports: they have %d bytes, %d are the most", len(data), maxReporters)
	}
	if is, err := os.Stat(k.file); err == nil && !is.ModTime().Equal(k.stamp) {
		return nil // an operator wrote it meanwhile: the next look heeds that
	}
	if err := durable.WriteFile(k.file, append(data, '\n'), 0o644); err != nil {
		return cli.WithHint(fmt.Errorf("keep the keys of reports: %w", err), "--reporters FILE names another place")
	}
	k.unsaved = false
	if is, err := os.Stat(k.file); err == nil {
		k.stamp = is.ModTime()
	}
	return nil
}

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{b, a}, time.Time.Compare) }
