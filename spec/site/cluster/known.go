// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"path"
	"reflect"
	"sync"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Known remembers objects as they were read last, so that one of thousands is read again when
// it alone is another. An object is the same while it is the same map in memory: what keeps
// objects puts another in its place, and never changes one. It may be used by several
// goroutines.
type Known struct {
	mu  sync.Mutex
	dir map[string]map[string]*prepared // by directory and name of the file
}

// prepared is an object as the file that it would be, taken apart.
type prepared struct {
	written
	src      *report.Source
	docs     []*tree.Value
	problems []report.Problem // that it has by itself
}

// prepare takes an object apart.
func prepare(o Object, name string) *prepared {
	p := &prepared{written: write(o)}
	p.src = &report.Source{Name: name, Data: p.text}
	r := &report.Report{}
	p.docs = tree.Parse(p.src, p.text, r)
	check(p.docs, r)
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
	for i, o := range objects {
		name := path.Join(dir, o.Kind+"."+o.Name)
		p := was[name]
		if p == nil || reflect.ValueOf(p.Content).Pointer() != reflect.ValueOf(o.Content).Pointer() {
			p = prepare(o, name)
		}
		now[name], out[i] = p, p
	}
	if k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.dir == nil {
			k.dir = map[string]map[string]*prepared{}
		}
		k.dir[dir] = now
	}
	return out
}
