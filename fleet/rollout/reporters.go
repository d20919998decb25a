// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"
	"time"

	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// ReportersKind is the kind of the document of a [Reporters] file.
const ReportersKind = "Reporters"

// maxReporters caps what is read of the file, in bytes.
const maxReporters = 64 << 20

// Reporters are the keys by which nodes report, as who drives rollouts heard them: by the rules
// of fleet/report, of the very reports that nodes signed, so that a service can withhold what
// a node says and cannot make it up. It is a file of who drives. It may be used by several
// goroutines.
type Reporters struct {
	file  string
	fixed bool

	mu    sync.Mutex
	nodes map[string]Reporter
	owner map[string]string // node by id of its key
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
	k := &Reporters{file: file, fixed: fixed, nodes: map[string]Reporter{}, owner: map[string]string{}}
	data, err := ownfiles.ReadPublic(file, maxReporters)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	var doc reportersDoc
	if err == nil {
		err = spec.DecodeFile(data, ReportersKind, &doc)
	}
	if err != nil {
		return nil, fmt.Errorf("read the keys of reports %s: %w", file, err)
	}
	for name, one := range doc.Nodes {
		k.nodes[name], k.owner[one.Key] = one, name
	}
	return k, nil
}

// judge returns what a node's signed report says, or why it counts for nothing.
func (k *Reporters) judge(one view.Reported, fleet string, now time.Time) (Report, error) {
	if len(one.Signed) == 0 {
		return Report{}, errors.New("the service does not hand out what the node signed")
	}
	at := earlier(one.Received, now)
	r, err := report.Open(one.Signed, at)
	switch {
	case err != nil:
		return Report{}, err
	case r.Node != one.Node || r.Fleet != fleet:
		return Report{}, fmt.Errorf("it is node %.60q's of fleet %.60q", r.Node, r.Fleet)
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
			return Report{}, errors.New(why)
		}
		next := Reporter{Key: r.Key, Grade: report.Grade(known, of, r), Since: was.Since, Heard: at, Interval: r.Interval,
			Seq: r.Seq, Boot: r.BootID}
		if r.Key != was.Key {
			next.Since = at
			delete(k.owner, was.Key)
		}
		k.nodes[one.Node], k.owner[r.Key] = next, one.Node
	}
	n := view.Node{Name: one.Node, Received: at, Listens: earlier(one.Listens, now), Grade: k.nodes[one.Node].Grade, Report: view.NewBrief(r)}
	reported, _ := n.Reported()                             // it did
	reported.Attested, reported.TPM = one.Attested, one.TPM // by the service's word
	return FromReport(reported), nil
}

// save keeps what was heard of nodes that are published.
func (k *Reporters) save(published func(string) bool) error {
	if k.fixed {
		return nil
	}
	maps.DeleteFunc(k.nodes, func(name string, _ Reporter) bool { return !published(name) })
	data, err := json.MarshalIndent(reportersDoc{spec.APIVersion, ReportersKind, k.nodes}, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.WriteFile(k.file, append(data, '\n'), 0o644); err != nil {
		return cli.WithHint(fmt.Errorf("keep the keys of reports: %w", err), "--reporters FILE names another place")
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
