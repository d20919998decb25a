// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"path"
	"reflect"
	"sync"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Approval is a PublishApproval with what operators signed, as 'caisson approve' prints it.
type Approval struct {
	APIVersion string `json:"apiVersion" yaml:"apiVersion"`
	Kind       string `json:"kind" yaml:"kind"` // [PublishApproval]
	Metadata   struct {
		Name      string `json:"name" yaml:"name"`
		Namespace string `json:"namespace,omitempty" yaml:"namespace,omitempty"` // that of kubectl when empty
	} `json:"metadata" yaml:"metadata"`
	Spec ApprovalSpec `json:"spec" yaml:"spec"`
}

// ApprovalSpec says who approves what.
type ApprovalSpec struct {
	Plan       string   `json:"plan" yaml:"plan" site:",required" doc:"status.plan of the Site, as act:sha256:…: nothing else may be published"`
	Author     string   `json:"author" yaml:"author" site:",required" doc:"who approves; the history has it beside the name of this object"`
	Reason     string   `json:"reason,omitempty" yaml:"reason,omitempty" doc:"why the plan is approved"`
	Statements []string `json:"statements" yaml:"statements" doc:"signatures by 'caisson approve'; one that does not verify voids the object"`
}

// NewApproval returns an approval as it is applied.
func NewApproval(namespace, name string, s ApprovalSpec) (a Approval) {
	a.APIVersion, a.Kind, a.Spec = Group+"/"+Version, PublishApproval, s
	a.Metadata.Namespace, a.Metadata.Name = namespace, name
	return a
}

// YAML is the object as kubectl reads it.
func (a Approval) YAML() ([]byte, error) { return tree.Encode(a) }

// Known remembers objects as they were read last, so that one of thousands is read again when
// it alone is another. An object is the same while it is the same map in memory: what keeps
// objects puts another in its place, and never changes one. It may be used by several
// goroutines.
type Known struct {
	mu  sync.Mutex
	dir map[string]map[string]*prepared // by directory and name of the file
}

// prepared is an object taken apart, with the problems that it has by itself.
type prepared struct {
	written
	problems []report.Problem
}

// prepare takes an object apart, of so many values at most.
func prepare(o Object, name string, most int) *prepared {
	p, r := &prepared{written: write(o, name, min(most, MaxValues))}, &report.Report{}
	fail := func(at report.Pos, rule, hint, message string) {
		r.Add(report.Problem{At: at, Severity: report.Error, Rule: rule, Message: message, Hint: hint})
	}
	switch {
	case p.over:
		fail(report.Pos{Src: p.src, Line: 1, Col: 1}, "too-large", "divide it, or keep fewer objects in the namespace",
			fmt.Sprintf("it is nested more than %d deep, or has more than %d values, or with the others of its namespace more than %d",
				maxDepth, MaxValues, MaxTogether))
	case len(p.nul) > 0:
		fail(p.nul[0], "text", "", "a value must not contain a NUL character")
		p.doc = nil
	default:
		check([]*tree.Value{p.doc}, r)
	}
	p.problems = r.Problems
	return p
}

// all returns objects taken apart, in their order, those that are known without any work.
func (k *Known) all(dir string, objects []Object) []*prepared {
	var was map[string]*prepared
	if k != nil {
		k.mu.Lock()
		was = k.dir[dir]
		k.mu.Unlock()
	}
	now, out := make(map[string]*prepared, len(objects)), make([]*prepared, len(objects))
	left := MaxTogether
	for i, o := range objects {
		name := path.Join(dir, o.Kind+"."+o.Name)
		p := was[name]
		if p == nil || reflect.ValueOf(p.Content).Pointer() != reflect.ValueOf(o.Content).Pointer() || len(p.paths) > left {
			p = prepare(o, name, left)
		}
		out[i] = p
		if !p.over { // else it may be that the others were too many
			now[name] = p
			left -= len(p.paths)
		}
	}
	if k != nil {
		k.keep(dir, now)
	}
	return out
}

// keep remembers the objects of a directory, and forgets others where all are too many.
func (k *Known) keep(dir string, now map[string]*prepared) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dir == nil {
		k.dir = map[string]map[string]*prepared{}
	}
	k.dir[dir] = now
	all := values(now)
	for other, objects := range k.dir {
		if other == dir {
			continue
		}
		if all += values(objects); all > MaxTogether {
			all -= values(objects)
			delete(k.dir, other)
		}
	}
}

// values counts what objects have together.
func values(objects map[string]*prepared) (n int) {
	for _, p := range objects {
		n += len(p.paths)
	}
	return n
}
