// SPDX-License-Identifier: Apache-2.0

package report

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

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

	open func(node string, raw []byte, at time.Time) (*spec.Report, error) // verifies: [Open]

	mu      sync.Mutex
	nodes   map[string]Reporter
	owner   map[string]string   // node by id of its key
	opened  map[string]verified // by node: its last report that counted, in this run
	unsaved bool
}

// verified is a report that was verified and counted. The same bytes are not verified again as
// long as what is known of the node's keys is what it was then.
type verified struct {
	sum   [sha256.Size]byte // of the signed bytes
	fleet string
	at    time.Time // the latest time that it may name
	known Reporter
	says  Reported // but for the service's words
}

type reportersDoc struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Nodes      map[string]Reporter `json:"nodes"`
}

// OpenReporters reads the file; one that does not exist knows nobody yet. A fixed one is not
// written.
func OpenReporters(file string, fixed bool) (*Reporters, error) {
	k := &Reporters{file: file, fixed: fixed, open: Open, nodes: map[string]Reporter{}, owner: map[string]string{},
		opened: map[string]verified{}}
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
func (k *Reporters) judge(one Reported, fleet string, now time.Time) (Standing, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(one.Signed) == 0 {
		return Standing{}, errors.New("the service does not hand out what the node signed")
	}
	sum, at := sha256.Sum256(one.Signed), earlier(one.Received, now)
	was, known := k.opened[one.Node]
	if !known || was.sum != sum || was.fleet != fleet || was.known != k.nodes[one.Node] || at.Before(was.at) {
		says, err := k.verify(one, fleet, at, now)
		if err != nil {
			return Standing{}, err
		}
		was = verified{sum, fleet, says.Received, k.nodes[one.Node], says}
		k.opened[one.Node] = was
	}
	says := was.says
	says.Listens, says.Attested, says.TPM = earlier(one.Listens, now), one.Attested, one.TPM // by the service's word
	return StandingOf(says), nil
}

// verify opens a report that came at a time, and takes it as its node's next one where it counts.
func (k *Reporters) verify(one Reported, fleet string, at, now time.Time) (Reported, error) {
	r, err := k.open("", one.Signed, at)
	switch {
	case err != nil:
		return Reported{}, err
	case r.Node != one.Node || r.Fleet != fleet:
		return Reported{}, fmt.Errorf("it is node %.60q's of fleet %.60q", r.Node, r.Fleet)
	}
	was := k.nodes[one.Node]
	known := was
	if r.Key == was.Key && r.Seq == was.Seq { // as old as it was when it came first
		if was.Heard.Before(at) {
			at = was.Heard
			Bound(r, at)
		}
	} else {
		known.Silent = now.Sub(was.Heard) > view.Patience(time.Duration(was.Interval)*time.Second)
		of := Key{}
		if r.Key != was.Key {
			of.Node = k.owner[r.Key]
		}
		if verdict, why := Judge(known, of, r, now); verdict != Counts {
			if known.Grade == spec.KeyPinned && r.Key != was.Key {
				why += fmt.Sprintf(": it is %s; where that is right, take the node out of %s", r.Key, k.file)
			}
			return Reported{}, errors.New(why)
		}
		next := Reporter{Key: r.Key, Grade: Grade(known, of, r), Since: was.Since, Heard: at, Interval: r.Interval,
			Seq: r.Seq, Boot: r.BootID}
		if r.Key != was.Key {
			next.Since = at
			delete(k.owner, was.Key)
		}
		k.nodes[one.Node], k.owner[r.Key], k.unsaved = next, one.Node, true
	}
	n := view.Node{Name: one.Node, Received: at, Grade: k.nodes[one.Node].Grade, Report: view.NewBrief(r)}
	says, _ := Last(&n) // it did
	return says, nil
}

// save keeps what was heard of nodes that are published, where that is not what is kept.
func (k *Reporters) save(published func(string) bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.opened, func(name string, _ verified) bool { return !published(name) })
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
