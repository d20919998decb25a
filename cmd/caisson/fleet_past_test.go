// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-os/caisson/fleet/history"
)

// TestPastOutlivesWhoAsks: a question goes on being read when the page that asked it has gone, is read
// once, and only so many wait at a time.
func TestPastOutlivesWhoAsks(t *testing.T) {
	t.Chdir(t.TempDir())
	s := newShelf(t)
	do := func(args ...string) {
		t.Helper()
		if out, err := s.run(args...); err != nil {
			t.Fatal(args, err, out)
		}
	}
	do("keys", "generate", "keys/operator")
	text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: test}\ntrust: {keys: {operator: keys/operator.pub}}\nnodes: [{name: a}]\n"
	if err := os.WriteFile("site.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	do("publish", "site.yaml", "--to", s.ref, "--key", "keys/operator.key")
	var out bytes.Buffer
	a, v := newApp(&out, &out), &serving{from: s.ref}
	v.look.whom.site = []string{"site.yaml"}
	now := v.reader(a)
	var asked atomic.Int32
	gate := make(chan struct{})
	table := history.NewPast(t.Context(), now.Published, func() (map[string]string, error) {
		asked.Add(1)
		<-gate
		return nil, nil
	})
	if _, err := table.List(t.Context(), "", ""); err == nil || !strings.Contains(err.Error(), "could not be read yet") {
		t.Errorf("before what is published was read: %v", err)
	}
	index := now.Index
	if _, err := index(t.Context(), ""); err != nil {
		t.Fatal(err, out.String())
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	for i := range 20 {
		node := "" // that of the first question
		if i > 0 {
			node = fmt.Sprint("x", i)
		}
		if _, err := table.List(gone, node, ""); !errors.Is(err, history.ErrReading) {
			t.Errorf("question %d: %v", i, err)
		}
	}
	if _, err := table.List(t.Context(), "one-too-many", ""); !errors.Is(err, history.ErrReading) {
		t.Errorf("more wait than may: %v", err)
	}
	close(gate)
	for range 2 {
		if list, err := table.List(t.Context(), "", ""); err != nil || len(list) != 1 {
			t.Errorf("%v %v", list, err)
		}
	}
	for i := 1; i < 8; i++ { // in no order
		if _, err := table.List(t.Context(), fmt.Sprint("x", i), ""); err == nil || !strings.Contains(err.Error(), "not published") {
			t.Errorf("of a node that is not there: %v", err)
		}
	}
	if n := asked.Load(); n != 8 {
		t.Errorf("%d questions were read, want 8", n)
	}
	if d, err := table.Between(t.Context(), "", "1", ""); d != nil || err != nil {
		t.Errorf("before the oldest: %v %v", d, err)
	}
	was := now.Published().Root()
	if err := os.WriteFile("site.yaml", []byte(text+"conf: {sysctl: {vm.swappiness: \"10\"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	do("publish", "site.yaml", "--to", s.ref, "--key", "keys/operator.key")
	if _, err := index(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	if list, err := table.List(t.Context(), "", ""); err != nil || len(list) != 2 {
		t.Errorf("after another publish: %v %v", list, err)
	}
	// An error that may pass is not kept for long.
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		table := history.NewPast(t.Context(), now.Published, func() (map[string]string, error) {
			tries++
			return nil, fmt.Errorf("try %d", tries)
		})
		for _, want := range []string{"try 1", "try 1", "try 2"} {
			if want == "try 2" {
				time.Sleep(time.Minute)
			}
			if _, err := table.List(t.Context(), "", ""); err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
	if d, err := table.Between(t.Context(), "1", "", "a"); err != nil || len(d.Groups) != 1 || d.Groups[0].Changes[0].To != "10" {
		t.Errorf("up to now: %+v %v", d, err)
	}
}
