// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// counted is a fleet in memory that counts who is read.
type counted struct {
	by   map[string]error
	gone error
	read map[string]int
}

func (o *counted) Overlay(_ context.Context, node string) (*spec.Overlay, error) {
	o.read[node]++
	if err := errors.Join(o.gone, o.by[node]); err != nil {
		return nil, err
	}
	m := &spec.Maintenance{Windows: map[string]spec.Window{"night": {StartGuard: int64(len(node) % 5)}}, Operations: []spec.Operation{{Name: node}}}
	return &spec.Overlay{Services: []spec.Service{{Name: "web", Commit: "c1"}}, Maintenance: m}, nil
}

func fleetOf(n int) (index.Rows, []string) {
	rows, nodes := index.Rows{}, []string{}
	for i := range n {
		name := fmt.Sprintf("n%04d", i)
		rows[name] = spec.Published{Overlay: "sha256:" + name}
		nodes = append(nodes, name)
	}
	return rows, nodes
}

// Each overlay is read once, so many at a time; what is published no more is forgotten.
func TestRead(t *testing.T) {
	rows, nodes := fleetOf(2*atOnce + 50)
	f := &counted{read: map[string]int{}}
	var s Sent
	for _, left := range []int{atOnce + 50, 50, 0, 0} {
		s.Read(t.Context(), f, rows, append(nodes, "of-the-site-alone"), atOnce)
		if got, err := s.Left(); got != left || err != nil {
			t.Errorf("%d left, want %d; %v", got, left, err)
		}
	}
	for node, n := range f.read {
		if n != 1 {
			t.Errorf("%s was read %d times", node, n)
		}
	}
	if got, read := s.Services("sha256:n0449"); !read || got["web"] != "c1" || len(f.read) != len(nodes) {
		t.Errorf("%v %v, %d read", got, read, len(f.read))
	}
	m, read := s.Windows("sha256:n0449")
	if other, _ := s.Windows("sha256:n0001"); !read || len(m.Windows) != 1 || m.Operations != nil || m != other {
		t.Errorf("%v %+v, of another node %+v: nodes of one kind have one", read, m, other)
	}
	rows["n0000"] = spec.Published{Overlay: "sha256:other"}
	s.Read(t.Context(), f, rows, nodes, atOnce)
	if _, read := s.Services("sha256:n0000"); read || f.read["n0000"] != 2 {
		t.Errorf("the old overlay is remembered: %v, read %d times", read, f.read["n0000"])
	}
}

// One overlay that is not there keeps nobody from the others, and is asked for once. A
// registry that does not answer is asked again, once a look.
func TestReadTrouble(t *testing.T) {
	rows, nodes := fleetOf(3)
	f := &counted{read: map[string]int{}, by: map[string]error{"n0000": oci.ErrNotFound}}
	var s Sent
	for range 2 {
		s.Read(t.Context(), f, rows, nodes, atOnce)
		if left, err := s.Left(); left != 0 || !errors.Is(err, oci.ErrNotFound) {
			t.Errorf("%d left, %v", left, err)
		}
	}
	if _, read := s.Services("sha256:n0000"); read || f.read["n0000"] != 1 || f.read["n0002"] != 1 {
		t.Errorf("%v %v", read, f.read)
	}
	down := errors.New("connection refused")
	f = &counted{read: map[string]int{}, gone: down}
	s = Sent{}
	for range 2 {
		s.Read(t.Context(), f, rows, nodes, atOnce)
		if left, err := s.Left(); left != 3 || !errors.Is(err, down) {
			t.Errorf("%d left, %v", left, err)
		}
	}
	if f.read["n0000"] != 2 || f.read["n0001"] != 0 {
		t.Errorf("%v", f.read)
	}
}
